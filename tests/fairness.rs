//! Sessions that compute at the same time share passes over the weights. Every pass is in the trace, so what is counted is
//! passes, not time.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

mod common;

use common::given::greedy;
use common::spans::{Begun, watch_process};
use std::sync::{Barrier, Mutex};
use std::thread;

/// A pass over the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    /// Of one sequence.
    Alone,
    /// Of several: how many, and their tokens.
    Shared(u64, u64),
}

static LOG: Mutex<Vec<Pass>> = Mutex::new(Vec::new());

fn watch(span: &Begun) {
    let pass = match (span.name, span.number("layer")) {
        ("step", _) => {
            let number = |field| span.number(field).expect("a count");
            Pass::Shared(number("sequences"), number("tokens"))
        }
        ("layer", Some(0)) if span.parent != Some("step") => Pass::Alone,
        _ => return,
    };
    LOG.lock().unwrap().push(pass);
}

/// Greedy ids after `prompt`.
#[test]
fn a_long_prompt_and_several_generations_share_passes() {
    const PROMPT: usize = 6000;
    const CHUNK: usize = model_factory::diagnostics::plan::PREFILL_CHUNK;
    watch_process(watch);
    let fixture = common::named("llama-3").folder.join("bf16");
    let model = common::builder().load(fixture).unwrap();
    let prompt = |seed: u32, count: usize| -> Vec<u32> { (0..count as u32).map(|i| (i * 97 + seed) % 320).collect() };
    let requests = [(prompt(5, PROMPT), 1), (prompt(6, 3), 300), (prompt(7, 9), 300), (prompt(8, 1), 300)];
    let alone: Vec<Vec<u32>> = requests.iter().map(|(prompt, count)| greedy(&model, prompt, *count).unwrap()).collect();
    let passes_alone = std::mem::take(&mut *LOG.lock().unwrap());
    assert!(passes_alone.iter().all(|pass| *pass == Pass::Alone), "nobody shares with itself");
    assert_eq!(passes_alone.len(), PROMPT.div_ceil(CHUNK) + 3 * 300);

    let start = Barrier::new(requests.len());
    let together: Vec<Vec<u32>> = thread::scope(|scope| {
        let spawn = |(prompt, count): &'_ (Vec<u32>, usize)| {
            let (model, start, prompt, count) = (&model, &start, prompt.clone(), *count);
            scope.spawn(move || {
                start.wait();
                greedy(model, &prompt, count).unwrap()
            })
        };
        let threads: Vec<_> = requests.iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone, "other requests change no token");

    let log = LOG.lock().unwrap();
    // Whoever generates waits for no more than a quarter of a chunk of the prompt. Before that there are only prompts.
    let large = |pass: &&Pass| matches!(pass, Pass::Shared(_, tokens) if *tokens > CHUNK as u64 / 4);
    let first =
        log.iter().position(|pass| matches!(pass, Pass::Shared(..)) && !large(&pass)).expect("they share passes");
    assert!(first <= 2 + log.iter().take_while(|pass| **pass == Pass::Alone).count(), "{:?}", &log[..=first]);
    let late: Vec<&Pass> = log[first..].iter().filter(large).collect();
    assert!(late.is_empty(), "{late:?}");
    // On a busy machine threads come back late, and share less.
    let shared = log.iter().filter(|pass| **pass != Pass::Alone).count();
    assert!(shared >= 3, "{shared} of {} passes are shared", log.len());
}
