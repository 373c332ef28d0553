//! Only the pool of a model computes: no request starts a thread that `threads` does not govern and that stays. In a
//! process of its own, as another test's threads would be counted.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)] // a test that cannot go on says why

mod common;

use model_factory::generate::Sampler;
use model_factory::{GenerateOptions, Message, Session};
use std::time::{Duration, Instant};

/// The names of this process's threads, sorted; `None` where the system does not list them.
fn threads() -> Option<Vec<String>> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    Some(names)
}

#[test]
fn a_model_of_one_thread_starts_no_other_that_stays() {
    let Some(before) = threads() else { return println!("skipped: no /proc/self/task") };
    // A thread that was joined is listed for a moment longer.
    let only_those_before = |after: &str| {
        let begun = Instant::now();
        while threads().as_ref() != Some(&before) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{after}: {:?}, before {before:?}", threads());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let drawn = GenerateOptions::default().max_tokens(16).temperature(0.8).seed(7).logprobs(5);
    let narrowed = drawn.clone().top_k(40).top_p(0.9).min_p(0.01).repetition_penalty(1.1).presence_penalty(0.1);
    for path in ["demo", "demo-q4_k_m.gguf", "models/llama-3.1/bf16"] {
        let model = common::builder().threads(1).load(common::fixtures().join(path)).unwrap();
        only_those_before("load");
        for options in [&GenerateOptions::default().max_tokens(16), &drawn, &narrowed] {
            assert!(!model.generate("Once upon a time", options).unwrap().text().unwrap().is_empty());
            only_those_before("generate");
        }
        assert!(model.chat(&[Message::user("Hello")], &drawn).unwrap().text().is_ok());
        only_those_before("chat");
        // candle computes element by element on a pool of its own from 65,536 elements on.
        let ids: Vec<u32> = (0..1100).map(|index| 5 + index % 250).take(model.context_length().min(1100)).collect();
        assert_eq!(model.logits(&ids).unwrap().dims(), [ids.len(), model.spec().vocab]);
        let (mut one, mut two) = (model.session(), model.session());
        Session::batch(&mut [(&mut one, &ids[..300]), (&mut two, &ids[..100])]).unwrap();
        only_those_before("logits and a batch");
        // More than a chunk together is computed session by session.
        let (mut one, mut two) = (model.session(), model.session());
        Session::batch(&mut [(&mut one, &ids), (&mut two, &ids[..400])]).unwrap();
        only_those_before("a batch that is computed session by session");
    }
    // A vocabulary as large models have it.
    let logits: Vec<f32> = (0..150_000).map(|index| (index % 977) as f32 / 100.0).collect();
    Sampler::new(&drawn.sampling, 150_000).unwrap().sample(&logits).unwrap();
    only_those_before("a draw of 150,000");
}
