//! Sessions on one model take turns. Every turn and every wait is in the trace, so what is counted is turns, not time.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

mod common;

use common::spans::{Begun, watch_process};
use model_factory::{GenerateOptions, Model};
use std::sync::{Barrier, Mutex};
use std::thread::{self, ThreadId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// Stands in the line behind so many others.
    Waits(u64),
    /// Its turn begins.
    Begins,
}

static LOG: Mutex<Vec<(ThreadId, Event)>> = Mutex::new(Vec::new());

fn watch(span: &Begun) {
    let event = match (span.name, span.number("layer")) {
        ("wait", _) => Event::Waits(span.number("ahead").expect("how many are ahead")),
        ("layer", Some(0)) => Event::Begins,
        _ => return,
    };
    LOG.lock().unwrap().push((thread::current().id(), event));
}

/// Greedy ids after `prompt`.
fn generate(model: &Model, prompt: &[u32], count: usize) -> Vec<u32> {
    let options = GenerateOptions::default().max_tokens(count).temperature(0.0).ignore_stop(true);
    let mut session = model.session();
    let mut generation = session.generate_ids(prompt, &options).unwrap();
    generation.text().unwrap();
    generation.ids().to_vec()
}

/// For every wait: how many stood ahead, and how many others' turns began before the own one did.
fn waits(log: &[(ThreadId, Event)]) -> Vec<(u64, u64)> {
    let wait = |(index, (thread, event)): (usize, &(ThreadId, Event))| {
        let Event::Waits(ahead) = event else { return None };
        let until = log[index + 1..].iter().take_while(|(who, _)| who != thread);
        Some((*ahead, until.filter(|(_, event)| *event == Event::Begins).count() as u64))
    };
    log.iter().enumerate().filter_map(wait).collect()
}

#[test]
fn a_long_prompt_and_several_generations_take_turns() {
    const PROMPT: usize = 6000;
    watch_process(watch);
    let model = common::load(common::named("llama-3").folder.join("bf16"));
    let prompt = |seed: u32, count: usize| -> Vec<u32> { (0..count as u32).map(|i| (i * 97 + seed) % 320).collect() };
    let requests = [(prompt(5, PROMPT), 1), (prompt(6, 3), 300), (prompt(7, 9), 300), (prompt(8, 1), 300)];
    let alone: Vec<Vec<u32>> = requests.iter().map(|(prompt, count)| generate(&model, prompt, *count)).collect();
    let uncontended = std::mem::take(&mut *LOG.lock().unwrap());
    assert!(uncontended.iter().all(|(_, event)| *event == Event::Begins), "nobody waits for itself");

    let start = Barrier::new(requests.len());
    let (together, prompts_thread) = thread::scope(|scope| {
        let spawn = |(prompt, count): &'_ (Vec<u32>, usize)| {
            let (model, start, prompt, count) = (&model, &start, prompt.clone(), *count);
            scope.spawn(move || {
                start.wait();
                generate(model, &prompt, count)
            })
        };
        let threads: Vec<_> = requests.iter().map(spawn).collect();
        let first = threads[0].thread().id();
        (threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>(), first)
    });
    assert_eq!(together, alone, "company changes no token");

    let log = LOG.lock().unwrap();
    let waits = waits(&log);
    assert!(waits.len() > 10, "only {} waits: they did not run at once", waits.len());
    for (ahead, passed) in &waits {
        assert!(*ahead < requests.len() as u64, "{ahead} ahead");
        assert!(passed <= ahead, "{passed} turns of others passed one that was behind {ahead}");
    }
    // While others wait, the prompt is cut finer than into the chunks of one that is alone.
    let turns = log.iter().filter(|entry| **entry == (prompts_thread, Event::Begins)).count();
    let chunks = PROMPT.div_ceil(model_factory::diagnostics::plan::PREFILL_CHUNK);
    assert!(turns > chunks, "{turns} turns for {chunks} chunks");
}
