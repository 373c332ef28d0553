//! Generations that do not fit next to others wait for them, in order of arrival, or are refused, as the builder says.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)] // a test that cannot go on says why

use crate::common::given::{greedy, options};
use crate::common::{self, seeded_tokens};

use model_factory::diagnostics::plan::KV_PAGE;
use model_factory::error::EngineError;
use model_factory::{Admission, CancellationToken, Error, FinishReason, Model, Session};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a thread to come to wait on a busy machine, and much shorter than the second after which nobody is waited
/// for. Where it was too short a test passes without having tried what it says.
const SOON: Duration = Duration::from_millis(400);

/// A model of sessions of four pages, with `sessions` times that for all.
fn model(admission: Admission, sessions: usize) -> Model {
    let fixture = common::named("llama-3").folder.join("bf16");
    let builder = common::builder().context_length(4 * KV_PAGE).sessions(sessions).admission(admission);
    builder.prefix_caching(true).load(fixture).unwrap()
}

fn page(model: &Model) -> u64 {
    model.report().plan.as_ref().unwrap().kv_per_token * KV_PAGE as u64
}

#[test]
fn those_that_do_not_fit_wait_and_generate_what_they_generate_alone() {
    let model = model(Admission::Wait, 2);
    // Three pages of the eight each, or three and one to grow into.
    let prompts: Vec<Vec<u32>> =
        (0..8).map(|seed| seeded_tokens(seed, 2 * KV_PAGE + 250 * (seed % 2) as usize, 320)).collect();
    let alone: Vec<Vec<u32>> = prompts.iter().map(|prompt| greedy(&model, prompt, 20).unwrap()).collect();
    let budget = 8 * page(&model);
    for _ in 0..5 {
        let (line, left) = (Barrier::new(prompts.len()), AtomicUsize::new(prompts.len()));
        thread::scope(|scope| {
            for (prompt, expected) in prompts.iter().zip(&alone) {
                let (model, line, left) = (&model, &line, &left);
                scope.spawn(move || {
                    line.wait();
                    let found = greedy(model, prompt, 20);
                    left.fetch_sub(1, Ordering::Relaxed);
                    assert_eq!(found.unwrap(), *expected);
                });
            }
            while left.load(Ordering::Relaxed) > 0 {
                let usage = model.cache_usage();
                assert!(usage.bytes <= budget, "{usage:?}");
                thread::yield_now();
            }
        });
        let usage = model.cache_usage();
        assert_eq!((usage.bytes, usage.reserved), (usage.unused, 0), "all is given back");
    }
}

#[test]
fn one_that_is_refused_is_refused_at_once() {
    let model = model(Admission::Refuse, 1);
    let mut first = model.generate(&seeded_tokens(1, 3 * KV_PAGE, 320), &options(50)).unwrap();
    first.next().unwrap().unwrap();
    let begun = Instant::now();
    assert!(matches!(
        greedy(&model, &seeded_tokens(2, 2 * KV_PAGE, 320), 5),
        Err(Error::Engine(EngineError::CacheBudget { .. }))
    ));
    assert!(begun.elapsed() < Duration::from_secs(1), "that is how long one waits where nobody generates");
    // What can never fit, in either mode.
    for admission in [Admission::Refuse, Admission::Wait] {
        let refused =
            self::model(admission, 1).generate(&seeded_tokens(2, 4 * KV_PAGE + 1, 320), &options(5)).map(drop);
        assert!(matches!(refused, Err(Error::ContextOverflow { .. })), "{refused:?}");
    }
}

#[test]
fn what_is_reserved_is_there_when_it_is_needed() {
    let model = model(Admission::Wait, 1);
    let (prompt, page) = (seeded_tokens(1, KV_PAGE - 3, 320), page(&model));
    let expected = greedy(&model, &prompt, 2 * KV_PAGE).unwrap();
    let mut generation = model.generate(&prompt, &options(2 * KV_PAGE)).unwrap();
    assert_eq!(model.cache_usage().reserved, 0, "nothing is computed yet");
    generation.next().unwrap().unwrap();
    let usage = model.cache_usage();
    assert_eq!((usage.bytes - usage.unused, usage.reserved), (page, 2 * page), "taken as it grows");
    // One page is left for who does not wait.
    let mut by_hand = model.session();
    by_hand.forward(&seeded_tokens(2, 10, 320)).unwrap();
    let refused = by_hand.forward(&seeded_tokens(2, KV_PAGE, 320));
    assert!(matches!(refused, Err(Error::Engine(EngineError::CacheBudget { left: 0, .. }))), "{refused:?}");
    assert!(matches!(model.session().forward(&[1]), Err(Error::Engine(EngineError::CacheBudget { .. }))));
    generation.text().unwrap();
    assert_eq!(generation.ids(), expected);
    // A session that goes on by hand has what is free, and no more.
    let mut session = generation.into_inner();
    assert_eq!(model.cache_usage().reserved, 0);
    assert!(matches!(
        session.forward(&seeded_tokens(3, KV_PAGE, 320)),
        Err(Error::Engine(EngineError::CacheBudget { .. }))
    ));
    drop(by_hand);
    session.forward(&seeded_tokens(3, KV_PAGE - 10, 320)).unwrap();
}

#[test]
fn one_that_has_ended_and_is_kept_leaves_what_it_did_not_take() {
    let (model, cancel) = (model(Admission::Wait, 1), CancellationToken::new());
    let mut kept = model.generate(&seeded_tokens(1, 9, 320), &options(3 * KV_PAGE).cancel(&cancel)).unwrap();
    kept.next().unwrap().unwrap();
    assert!(model.cache_usage().reserved > 0);
    cancel.cancel();
    kept.text().unwrap();
    assert_eq!((kept.finish().0, model.cache_usage().reserved), (Some(FinishReason::Cancelled), 0));
    greedy(&model, &seeded_tokens(2, 2 * KV_PAGE, 320), 5).unwrap();
    drop(kept);
}

#[test]
fn they_come_in_order_of_arrival() {
    let model = model(Admission::Wait, 1);
    let mut first = model.generate(&seeded_tokens(1, 2 * KV_PAGE, 320), &options(5)).unwrap();
    first.next().unwrap().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        // All four pages; one page, of which there are two.
        for (name, prompt) in [("large", seeded_tokens(2, 4 * KV_PAGE - 5, 320)), ("small", seeded_tokens(3, 9, 320))] {
            let (model, order) = (&model, &order);
            scope.spawn(move || {
                let mut generation = model.generate(&prompt, &options(5)).unwrap();
                generation.next().unwrap().unwrap();
                order.lock().unwrap().push(name);
            });
            thread::sleep(SOON);
        }
        assert!(order.lock().unwrap().is_empty(), "the small one does not overtake");
        // Longer than sessions that are open and idle would be waited for.
        thread::sleep(Duration::from_millis(1500));
        first.text().unwrap();
        drop(first);
    });
    assert_eq!(order.into_inner().unwrap(), ["large", "small"]);
}

#[test]
fn one_that_waits_is_cancelled_and_those_behind_it_go_on() {
    let model = model(Admission::Wait, 1);
    let mut first = model.generate(&seeded_tokens(1, 2 * KV_PAGE, 320), &options(5)).unwrap();
    first.next().unwrap().unwrap();
    thread::scope(|scope| {
        let cancel = CancellationToken::new();
        let large = scope.spawn({
            let options = options(5).cancel(&cancel);
            let model = &model;
            move || {
                let mut generation = model.generate(&seeded_tokens(2, 4 * KV_PAGE - 5, 320), &options).unwrap();
                (generation.text().unwrap(), generation.finish().0, generation.into_inner().len())
            }
        });
        thread::sleep(SOON);
        let small = scope.spawn(|| greedy(&model, &seeded_tokens(3, 9, 320), 5).unwrap());
        thread::sleep(SOON);
        assert!(!large.is_finished() && !small.is_finished());
        cancel.cancel();
        assert_eq!(large.join().unwrap(), (String::new(), Some(FinishReason::Cancelled), 0));
        assert_eq!(small.join().unwrap().len(), 5, "while the first one is still there");
    });
    first.text().unwrap();
}

#[test]
fn nobody_is_waited_for_where_none_generates() {
    let model = model(Admission::Wait, 1);
    let mut idle = model.session();
    idle.forward(&seeded_tokens(1, 2 * KV_PAGE, 320)).unwrap();
    let (prompt, begun) = (seeded_tokens(2, 2 * KV_PAGE + 100, 320), Instant::now());
    let refused = greedy(&model, &prompt, 5);
    assert!(matches!(refused, Err(Error::Engine(EngineError::CacheBudget { .. }))), "{refused:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "a session may be about to be dropped");
    // As it is here.
    thread::scope(|scope| {
        let waits = scope.spawn(|| greedy(&model, &prompt, 5));
        thread::sleep(SOON);
        assert!(!waits.is_finished());
        idle.truncate(KV_PAGE);
        waits.join().unwrap().unwrap();
    });
    // Two conversations that hold what the other one needs: neither waits for ever.
    drop(idle);
    let mut sessions = [model.session(), model.session()];
    for (seed, session) in (3..).zip(&mut sessions) {
        session.forward(&seeded_tokens(seed, 2 * KV_PAGE - 1, 320)).unwrap();
    }
    thread::scope(|scope| {
        for (seed, mut session) in (3..).zip(sessions) {
            scope.spawn(move || {
                let next = seeded_tokens(seed, 3 * KV_PAGE, 320);
                let result = session.generate_ids(&next, &options(5)).unwrap().text();
                assert!(matches!(result, Ok(_) | Err(Error::Engine(EngineError::CacheBudget { .. }))), "{result:?}");
                if result.is_err() {
                    assert_eq!(session.len(), 2 * KV_PAGE - 1, "it is as it was");
                }
            });
        }
    });
    assert_eq!(model.cache_usage().bytes, model.cache_usage().unused);
}

/// While a prompt waits it keeps no page that others could have.
#[test]
fn one_that_waits_holds_nothing() {
    let model = model(Admission::Wait, 1);
    let start = seeded_tokens(1, 2 * KV_PAGE, 320);
    greedy(&model, &[&start[..], &[5]].concat(), 1).unwrap();
    let mut first = model.generate(&seeded_tokens(2, 1, 320), &options(5)).unwrap();
    first.next().unwrap().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| greedy(&model, &[&start[..], &seeded_tokens(3, KV_PAGE, 320)].concat(), KV_PAGE));
        thread::sleep(SOON);
        assert!(!waits.is_finished(), "it needs four pages, and has found two");
        let usage = model.cache_usage();
        assert_eq!(usage.unused, usage.bytes - page(&model));
        let mut by_hand: Session = model.session();
        by_hand.forward(&seeded_tokens(4, 3 * KV_PAGE, 320)).unwrap();
        drop(by_hand);
        drop(first);
        waits.join().unwrap().unwrap();
    });
}

/// Alone either takes three of four pages; two of these they have in common.
#[test]
fn prompts_that_fit_by_what_they_share_are_not_refused() {
    for admission in [Admission::Refuse, Admission::Wait] {
        for round in 0..10 {
            let model = model(admission, 1);
            let (prompt, line) = (seeded_tokens(round, 2 * KV_PAGE + 100, 320), Barrier::new(2));
            thread::scope(|scope| {
                for seed in [1, 2] {
                    let (model, line, prompt) = (&model, &line, &prompt);
                    scope.spawn(move || {
                        let mut session = model.session();
                        line.wait();
                        let whole = [&prompt[..], &[seed]].concat();
                        let text = session.generate_ids(&whole, &options(20)).unwrap().text();
                        line.wait(); // both are open
                        text.unwrap();
                    });
                }
            });
        }
    }
}

/// A sequence that grows past the original context of longrope is computed again, and its pages with it.
#[test]
fn one_that_is_computed_anew_is_admitted_anew() {
    let load = |admission| {
        let builder = common::builder().context_length(2 * KV_PAGE).sessions(1).admission(admission);
        builder.prefix_caching(true).load(common::named("phi-3.5").folder.join("bf16")).unwrap()
    };
    let (plain, model) = (load(Admission::Refuse), load(Admission::Wait));
    let prompt = seeded_tokens(1, KV_PAGE - 6, 320);
    let expected = greedy(&plain, &prompt, 20).unwrap();
    for _ in 0..2 {
        let line = Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    line.wait();
                    assert_eq!(greedy(&model, &prompt, 20).unwrap(), expected);
                });
            }
        });
    }
}

#[cfg(feature = "async")]
#[test]
fn streams_wait_without_holding_up_others() {
    use futures::StreamExt;
    use futures::executor::block_on;

    let model = model(Admission::Wait, 1);
    let prompts: Vec<Vec<u32>> = (0..20).map(|seed| seeded_tokens(seed, 1 + 30 * seed as usize, 320)).collect();
    let alone: Vec<Vec<u32>> = prompts.iter().map(|prompt| greedy(&model, prompt, 20).unwrap()).collect();
    let stream = |prompt: &[u32], count| model.generate(prompt, &options(count)).unwrap().into_stream();
    let mut first = stream(&seeded_tokens(30, KV_PAGE - 100, 320), 90);
    block_on(first.next()).unwrap().unwrap();
    // It waits, is dropped, and is forgotten.
    let large = stream(&seeded_tokens(31, 4 * KV_PAGE - 5, 320), 5);
    thread::sleep(SOON);
    for _ in 0..80 {
        block_on(first.next()).unwrap().unwrap();
    }
    drop(large);
    let all = prompts.iter().map(|prompt| {
        let mut stream = stream(prompt, 20);
        async {
            stream.text().await.unwrap();
            stream.into_generation().unwrap().ids().to_vec()
        }
    });
    let all: Vec<_> = all.collect();
    assert_eq!(block_on(futures::future::join_all(all)), alone);
    drop(first);
    // The thread of the streams is still dropping.
    let begun = Instant::now();
    while model.cache_usage().bytes > model.cache_usage().unused && begun.elapsed() < Duration::from_secs(10) {
        thread::yield_now();
    }
    let usage = model.cache_usage();
    assert_eq!((usage.bytes, usage.reserved), (usage.unused, 0));
}
