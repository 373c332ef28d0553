//! Sequences that begin alike share the pages of what they have in common: computed once, held once, and no bit differs.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, bits, seeded_tokens};

use model_factory::diagnostics::plan::KV_PAGE;
use model_factory::error::EngineError;
use model_factory::{Error, GenerateOptions, KvDtype, Model, Session};
use std::sync::Barrier;
use std::thread;

fn model(prefix_caching: bool) -> Model {
    let fixture = common::named("llama-3").folder.join("bf16");
    common::builder().context_length(2048).prefix_caching(prefix_caching).load(fixture).unwrap()
}

/// `start` and then tokens of one's own.
fn with(start: &[u32], seed: u32, count: usize) -> Vec<u32> {
    [start, &seeded_tokens(seed, count, 320)].concat()
}

/// Ids that every fixture has.
fn small(ids: Vec<u32>) -> Vec<u32> {
    ids.into_iter().map(|id| id % 256).collect()
}

/// Ids, and the tokens of the prompt that were found and that were computed.
fn generate(session: &mut Session, prompt: &[u32]) -> (Vec<u32>, usize, usize) {
    generate_for(session, prompt, None)
}

/// As [`generate`], for whom `salt` names.
fn generate_for(session: &mut Session, prompt: &[u32], salt: Option<&str>) -> (Vec<u32>, usize, usize) {
    let options = GenerateOptions::default().max_tokens(8).temperature(0.0).ignore_stop(true);
    let options = salt.into_iter().fold(options, GenerateOptions::cache_salt);
    let mut generation = session.generate_ids(prompt, &options).unwrap();
    generation.text().unwrap();
    let timings = generation.finish().1;
    (generation.ids().to_vec(), timings.cached_tokens, timings.prompt_tokens)
}

fn page_bytes(model: &Model) -> u64 {
    model.report().plan.as_ref().unwrap().kv_per_token * KV_PAGE as u64
}

#[test]
fn twenty_sessions_with_one_system_prompt_compute_and_hold_it_once() {
    let (plain, model, system) = (model(false), model(true), seeded_tokens(1, 2 * KV_PAGE, 320));
    let prompts: Vec<Vec<u32>> = (0..20).map(|seed| with(&system, 2 + seed, 30)).collect();
    let expected: Vec<Vec<u32>> = prompts.iter().map(|prompt| generate(&mut plain.session(), prompt).0).collect();
    for at_once in [false, true] {
        let mut sessions: Vec<Session> = prompts.iter().map(|_| model.session()).collect();
        let line = Barrier::new(sessions.len());
        let generated: Vec<_> = thread::scope(|scope| {
            let threads = sessions.iter_mut().zip(&prompts).map(|(session, prompt)| {
                let line = &line;
                let thread = scope.spawn(move || {
                    if at_once {
                        line.wait();
                    }
                    generate(session, prompt)
                });
                if at_once {
                    return Err(thread);
                }
                Ok(thread.join().unwrap())
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.unwrap_or_else(|thread| thread.join().unwrap())).collect()
        });
        for ((ids, cached, computed), expected) in generated.iter().zip(&expected) {
            assert_eq!(ids, expected);
            assert_eq!(cached + computed, system.len() + 30);
        }
        // The first one's prompt, of which it found nothing but what an earlier round left.
        let computed: usize = generated.iter().map(|(_, _, computed)| computed).sum();
        assert!(computed <= system.len() + 20 * 30, "{computed} tokens were computed");
        let usage = model.cache_usage();
        assert_eq!(usage.bytes - usage.unused, page_bytes(&model) * (2 + 20), "two pages that all share, and one each");
    }
    let usage = model.cache_usage();
    assert_eq!(usage.bytes, usage.unused, "no session is left");
    assert!(usage.bytes <= model.report().plan.as_ref().unwrap().kv_cache, "no more than the plan counts");
}

/// Computes `tokens` for whom one salt names.
fn salted(model: &Model, tokens: &[u32]) {
    let mut session = model.session();
    session.set_cache_salt(Some("one"));
    bits(&mut session, tokens);
}

/// 16 known tokens and a guess at the next one: told by what was found, another user's prompt was read in as many guesses as there are
/// ids for each token.
#[test]
fn nothing_but_whole_pages_is_told_of_a_strangers_prompt() {
    let (plain, model, secret) = (model(false), model(true), seeded_tokens(7, 2 * KV_PAGE + 100, 320));
    generate(&mut model.session(), &secret);
    for known in [17, 40, KV_PAGE - 1, KV_PAGE, KV_PAGE + 16, 2 * KV_PAGE - 1, 2 * KV_PAGE + 60] {
        let prompt = with(&secret[..known], 50, 30);
        let (ids, found, computed) = generate(&mut model.session(), &prompt);
        assert_eq!((found, computed), (known / KV_PAGE * KV_PAGE, known % KV_PAGE + 30), "{known}");
        assert_eq!(ids, generate(&mut plain.session(), &prompt).0, "{known}");
    }
}

#[test]
fn prompts_of_two_salts_share_nothing() {
    for name in ["llama-3", "phi-3-window", "qwen3.5"] {
        let fixture = common::named(name).folder.join("bf16");
        let load = |on| common::builder().context_length(1024).sessions(6).prefix_caching(on).load(&fixture).unwrap();
        let (plain, model, prompt) = (load(false), load(true), small(seeded_tokens(7, KV_PAGE + 40, 320)));
        let expected = generate(&mut plain.session(), &prompt).0;
        let ask = |salt| {
            let (ids, found, _) = generate_for(&mut model.session(), &prompt, salt);
            assert_eq!(ids, expected, "{}, {salt:?}", fixture.display());
            found
        };
        assert_eq!([None, Some("one"), Some("")].map(ask), [0; 3], "{}", fixture.display());
        // The states of layers that have one are known only at the ends of pages.
        let exact = if name == "qwen3.5" { KV_PAGE } else { prompt.len() - 1 };
        assert_eq!([Some("one"), Some(""), None].map(ask), [exact, exact, KV_PAGE], "{}", fixture.display());
    }
}

/// Two prompts at once, of which one would otherwise wait for the other's pages.
#[test]
fn two_salts_at_once_compute_what_they_have_in_common_twice() {
    let (plain, model, prompt) = (model(false), model(true), seeded_tokens(8, 2 * KV_PAGE + 40, 320));
    let (expected, line) = (generate(&mut plain.session(), &prompt).0, Barrier::new(4));
    thread::scope(|scope| {
        for salt in ["one", "two", "three", "four"] {
            let (model, prompt, expected, line) = (&model, &prompt, &expected, &line);
            scope.spawn(move || {
                let mut session = model.session();
                line.wait();
                assert_eq!(generate_for(&mut session, prompt, Some(salt)), (expected.clone(), 0, prompt.len()));
            });
        }
    });
}

/// What it shared by the first salt stays there: nothing of it is offered to the second one's.
#[test]
fn a_session_that_changes_its_salt_is_computed_anew() {
    let (plain, prompt) = (model(false), seeded_tokens(9, KV_PAGE + 40, 320));
    let fixture = common::named("llama-3").folder.join("bf16");
    let model = common::builder().context_length(1024).sessions(6).prefix_caching(true).load(fixture).unwrap();
    let longer = with(&prompt, 10, KV_PAGE);
    let expected = bits(&mut plain.session(), &longer);
    let mut session = model.session();
    for salt in [Some("one"), Some("two"), None] {
        session.set_cache_salt(salt);
        session.truncate(prompt.len());
        let rest = &longer[session.len()..];
        assert_eq!(bits(&mut session, rest), expected, "{salt:?}");
        let fork = bits(&mut session.fork().unwrap(), &[1]);
        assert_eq!(fork, bits(&mut plain.session(), &[&longer[..], &[1]].concat()), "{salt:?}");
    }
    drop(session);
    let usage = model.cache_usage();
    assert_eq!(usage.bytes, usage.unused, "nothing is held twice and never freed");
    for salt in [Some("one"), Some("two"), None] {
        let (_, found, _) = generate_for(&mut model.session(), &with(&longer, 11, 9), salt);
        // A fork left its last part too, which is offered within a salt.
        assert!((2 * KV_PAGE..=longer.len()).contains(&found), "{salt:?}: {found}");
    }
}

#[test]
fn what_is_found_has_the_bits_of_what_is_computed() {
    for (fixture, dtype) in [
        ("llama-3", KvDtype::F32),
        ("llama-3", KvDtype::F16),
        ("llama-3", KvDtype::Q8_0),
        ("phi-3-window", KvDtype::F32),
        ("phi-3.5", KvDtype::F32),
        ("qwen3", KvDtype::F16),
        ("qwen3.5", KvDtype::F16),
        ("lfm2", KvDtype::F32),
        ("granite-4-h", KvDtype::F32),
        ("jamba", KvDtype::F16),
        ("kimi-linear", KvDtype::F16),
        ("bloom", KvDtype::F32),
        ("mpt", KvDtype::Q8_0),
        ("gpt-neox", KvDtype::F16),
        ("deepseek-v3", KvDtype::F32),
        ("deepseek-v2", KvDtype::Q8_0),
        ("llama-4-chunks", KvDtype::F32),
        ("gemma-3n", KvDtype::F16),
        ("gemma-4-e2b", KvDtype::F32),
    ] {
        let fixture = common::named(fixture);
        let load = |on| {
            let builder = common::builder().context_length(1024).kv_cache(dtype).prefix_caching(on);
            builder.load(fixture.folder.join("bf16")).unwrap()
        };
        let (plain, model, start) = (load(false), load(true), small(seeded_tokens(3, 700, 320)));
        salted(&model, &start);
        // Whole pages, a part of one, from a part on, longer than what is there, the same once more, something else.
        for (shared, own) in [(512, 9), (300, 40), (690, 5), (700, 100), (700, 1), (20, 300), (0, 30)] {
            let prompt = small(with(&start[..shared], 4, own));
            let (mut found, mut computed) = (model.session(), plain.session());
            found.set_cache_salt(Some("one"));
            assert_eq!(bits(&mut found, &prompt), bits(&mut computed, &prompt), "{dtype:?} {shared} {own}");
            for next in [1, 2] {
                assert_eq!(bits(&mut found, &[next]), bits(&mut computed, &[next]), "{dtype:?} {shared} {own}");
            }
        }
    }
}

/// Layers with a state: it is kept at the ends of pages, for others and for the sequence itself.
#[test]
fn states_are_kept_at_the_ends_of_pages() {
    for fixture in ["qwen3.5", "lfm2", "granite-4-h", "nemotron-h", "falcon-h1", "jamba", "olmo-hybrid", "kimi-linear"]
    {
        let fixture = common::named(fixture).folder.join("bf16");
        let load = |on| common::builder().context_length(1024).prefix_caching(on).load(&fixture).unwrap();
        let (plain, model, start) = (load(false), load(true), small(seeded_tokens(3, 2 * KV_PAGE + 150, 320)));
        let mut first = model.session();
        first.forward(&start).unwrap();
        let of = |prompt: &[u32]| bits(&mut plain.session(), prompt);
        // Only whole pages are found: a state is that of one position.
        let prompt = small(with(&start, 4, 20));
        let (ids, found, computed) = generate(&mut model.session(), &prompt);
        assert_eq!((ids, found, computed), (generate(&mut plain.session(), &prompt).0, 2 * KV_PAGE, 170));
        // Back within a chunk of the state, after a page, before it, into nothing, and each time on.
        for back in [start.len() - 1, start.len() - 100, KV_PAGE + 3, KV_PAGE, 40, 0] {
            first.truncate(back);
            let next = small(seeded_tokens(back as u32, 30, 320));
            assert_eq!(bits(&mut first, &next), of(&[&start[..back], &next].concat()), "back to {back}");
            first.truncate(back);
            if back > 0 {
                first.truncate(back - 1);
                assert_eq!(bits(&mut first, &[start[back - 1]]), of(&start[..back]), "back to {back}, by one more");
            }
        }
        for len in [1, 20, KV_PAGE, 2 * KV_PAGE + 100] {
            let mut first = model.session();
            first.forward(&start[..len]).unwrap();
            let mut second = first.fork().unwrap();
            assert_eq!(bits(&mut first, &[7]), of(&[&start[..len], &[7]].concat()), "{len}");
            assert_eq!(bits(&mut second, &[8]), of(&[&start[..len], &[8]].concat()), "{len}, forked");
        }
        // Where others have filled what is kept, the latest are kept all the same.
        for seed in 10..16 {
            bits(&mut model.session(), &small(seeded_tokens(seed, 700, 320)));
        }
        let start = small(seeded_tokens(30, 600, 320));
        bits(&mut model.session(), &start);
        let (_, found, _) = generate(&mut model.session(), &small(with(&start, 31, 9)));
        assert_eq!(found, 2 * KV_PAGE);
        first.truncate(0);
        assert_eq!(first.cache_bytes(), 0, "what is empty takes nothing");
        drop(first);
        let usage = model.cache_usage();
        assert!(usage.bytes == usage.unused && usage.bytes <= model.report().plan.as_ref().unwrap().kv_cache);
    }
}

/// Layers with a state only: there are no pages, and states are kept in the memory of sessions that are idle.
#[test]
fn a_model_of_states_only_keeps_them_where_sessions_are_idle() {
    for fixture in ["mamba", "falcon-mamba", "mamba-2"] {
        let path = common::named(fixture).folder.join("bf16");
        let load = |on| common::builder().context_length(1024).sessions(6).prefix_caching(on).load(&path).unwrap();
        let (plain, model, start) = (load(false), load(true), small(seeded_tokens(3, 2 * KV_PAGE + 150, 320)));
        model.session().forward(&start).unwrap();
        let prompt = small(with(&start, 4, 20));
        let (ids, found, computed) = generate(&mut model.session(), &prompt);
        assert_eq!((ids, found, computed), (generate(&mut plain.session(), &prompt).0, 2 * KV_PAGE, 170), "{fixture}");
        // Others take their place, and the latest are kept.
        for seed in 10..40 {
            bits(&mut model.session(), &small(seeded_tokens(seed, 700, 320)));
        }
        let latest = small(seeded_tokens(39, 700, 320));
        assert_eq!(generate(&mut model.session(), &small(with(&latest, 5, 9))).1, 2 * KV_PAGE, "{fixture}");
        let usage = model.cache_usage();
        assert!(usage.bytes == usage.unused && usage.bytes <= model.report().plan.as_ref().unwrap().kv_cache);
    }
}

#[test]
fn a_fork_goes_on_by_itself() {
    let (plain, model) = (model(false), model(true));
    for len in [1, KV_PAGE - 1, KV_PAGE, KV_PAGE + 1, 2 * KV_PAGE + 100] {
        for model in [&plain, &model] {
            let mut first = model.session();
            assert!(first.fork().unwrap().is_empty());
            first.forward(&seeded_tokens(5, len, 320)).unwrap();
            let mut second = first.fork().unwrap();
            assert_eq!(second.ids(), first.ids());
            let alone = |next: &[u32]| {
                let mut session = plain.session();
                bits(&mut session, &[&seeded_tokens(5, len, 320), next].concat())
            };
            assert_eq!(bits(&mut first, &[7]), alone(&[7]), "{len}");
            assert_eq!(bits(&mut second, &[8]), alone(&[8]), "{len}");
            // Back into what both hold, and on: the other one's stays.
            let back = len / 2;
            first.truncate(back);
            let mut short = plain.session();
            let expected = bits(&mut short, &[&seeded_tokens(5, len, 320)[..back], &[9]].concat());
            assert_eq!(bits(&mut first, &[9]), expected, "{len}");
            assert_eq!(bits(&mut second, &[9]), alone(&[8, 9]), "{len}");
        }
    }
}

#[test]
fn what_nobody_holds_makes_room() {
    let fixture = common::named("llama-3").folder.join("bf16");
    let model = common::builder().prefix_caching(true).context_length(4 * KV_PAGE).sessions(1).load(fixture).unwrap();
    let page = page_bytes(&model);
    // Three pages that stay, and one that was never complete.
    salted(&model, &seeded_tokens(1, 3 * KV_PAGE + 100, 320));
    assert_eq!((model.cache_usage().bytes, model.cache_usage().unused), (4 * page, 4 * page));
    let mut session = model.session();
    bits(&mut session, &seeded_tokens(2, KV_PAGE, 320));
    let usage = model.cache_usage();
    assert_eq!((usage.bytes, usage.unused), (4 * page, 3 * page), "the last of the four was freed first");
    let (_, found, _) =
        generate_for(&mut model.session(), &with(&seeded_tokens(1, 2 * KV_PAGE, 320), 9, 1), Some("one"));
    assert_eq!(found, 2 * KV_PAGE, "the first two are there, and the third made room");
    bits(&mut session, &seeded_tokens(3, 3 * KV_PAGE, 320));
    assert_eq!(model.cache_usage().unused, 0, "all is held");
    let refused = model.session().forward(&[1]);
    assert!(matches!(refused, Err(Error::Engine(EngineError::CacheBudget { left: 0, .. }))), "{refused:?}");
    drop(session);
    model.session().forward(&[1]).unwrap();
}

/// A session that ends within a page that is offered already, or with a few tokens, keeps nothing that could not be freed.
#[test]
fn whatever_is_kept_can_be_freed() {
    let fixture = common::named("llama-3").folder.join("bf16");
    let model = common::builder().prefix_caching(true).context_length(4 * KV_PAGE).sessions(1).load(fixture).unwrap();
    for (seed, len, back) in [(1, 512, 260), (2, 512, 400), (3, 700, 513), (4, 9, 9), (5, 300, 1)] {
        let mut session = model.session();
        session.set_cache_salt(Some("one"));
        bits(&mut session, &seeded_tokens(seed, len, 320));
        session.truncate(back);
        drop(session);
        let usage = model.cache_usage();
        assert_eq!(usage.bytes, usage.unused, "{len} {back}");
        // More than can be had costs nobody a page.
        let refused = model.session().fork().and_then(|_| {
            let mut two = [model.session(), model.session()];
            bits(&mut two[0], &seeded_tokens(9, 2 * KV_PAGE, 320));
            two[1].forward(&seeded_tokens(10, 3 * KV_PAGE, 320))
        });
        assert!(matches!(refused, Err(Error::Engine(EngineError::CacheBudget { .. }))), "{refused:?}");
        bits(&mut model.session(), &seeded_tokens(11 + seed, 4 * KV_PAGE, 320));
    }
}

#[test]
fn a_model_may_do_without() {
    let model = model(false);
    let prompt = seeded_tokens(1, 600, 320);
    for salt in [None, None, Some("one"), Some("one")] {
        assert_eq!(generate_for(&mut model.session(), &prompt, salt).1, 0);
    }
    assert_eq!(model.cache_usage().bytes, 0);
}
