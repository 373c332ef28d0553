//! The log-probabilities of a prompt's tokens: those of the logits of the whole prompt, whatever is shared and whoever computes.
#![allow(clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, seeded_tokens};

use model_factory::diagnostics::plan::KV_PAGE;
use model_factory::generate::{LogProbs, Timings};
use model_factory::{Error, FinishReason, GenerateOptions, Generation, Model, Session};
use std::path::Path;
use std::thread;

fn load(path: &Path) -> Model {
    common::builder().context_length(2048).prefix_caching(true).load(path).unwrap()
}

fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(max_tokens).temperature(0.0).ignore_stop(true).prompt_logprobs(3)
}

/// What a generation says of its prompt, its text, and its timings.
fn run(mut generation: Generation<Session>) -> (Vec<LogProbs>, String, Timings) {
    let answer = generation.answer().unwrap();
    (answer.prompt_logprobs, answer.text, generation.finish().1)
}

/// The same of the logits of the whole prompt: the chosen one and the most likely ones, by another way of computing.
fn expected(model: &Model, prompt: &[u32]) -> Vec<(f64, Vec<u32>)> {
    let logits = model.all_logits(prompt).unwrap();
    let of = |(row, id): (&[f32], &u32)| {
        let best = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
        let sum = row.iter().map(|logit| (f64::from(*logit) - best).exp()).sum::<f64>().ln() + best;
        let mut ids: Vec<u32> =
            (0..).take(row.len()).filter(|id| !model.tokenizer().unused_ids().contains(id)).collect();
        ids.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
        ids.truncate(3);
        (f64::from(row[*id as usize]) - sum, ids)
    };
    logits.rows().zip(&prompt[1..]).map(of).collect()
}

fn check(found: &[LogProbs], expected: &[(f64, Vec<u32>)], name: &str) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (place, (found, (chosen, top))) in found.iter().zip(expected).enumerate() {
        let ids: Vec<u32> = found.top.iter().map(|(id, _)| *id).collect();
        // Sums of the same numbers in the same order.
        assert_eq!((found.chosen, &ids), (*chosen, top), "{name}: {place}");
    }
}

#[test]
fn they_are_those_of_the_logits_of_the_whole_prompt() {
    for name in ["llama-3", "qwen3.5", "gemma-3", "phi-3.5", "deepseek-v3"] {
        let model = load(&common::named(name).folder.join("bf16"));
        let vocab = u32::try_from(model.spec().vocab).unwrap();
        let prompt = seeded_tokens(5, 2 * KV_PAGE + 40, vocab.min(256));
        let expected = expected(&model, &prompt);
        let mut plain = options(12);
        plain.prompt_logprobs = None;
        let text = model.generate(&prompt, &plain).unwrap().text().unwrap();
        let (found, said, _) = run(model.generate(&prompt, &options(12)).unwrap());
        check(&found, &expected, name);
        assert_eq!(said, text, "{name}");
        // Without anything generated, and again where they are known.
        let mut nothing = model.generate(&prompt, &options(0)).unwrap();
        let answer = nothing.answer().unwrap();
        check(&answer.prompt_logprobs, &expected, name);
        assert_eq!((answer.text.as_str(), nothing.finish().0), ("", Some(FinishReason::Length)), "{name}");
    }
}

#[test]
fn prompts_that_begin_alike_are_computed_once() {
    for name in ["llama-3", "qwen3.5"] {
        let path = common::named(name).folder.join("bf16");
        let (alone, model) = (load(&path), load(&path));
        // One more than two pages: what the last of them predicts is another token in each.
        let begin = seeded_tokens(7, 2 * KV_PAGE + 1, 256);
        let prompts: Vec<Vec<u32>> = (0..6).map(|seed| [&*begin, &seeded_tokens(20 + seed, 9, 256)].concat()).collect();
        let of_prompts: Vec<_> = prompts.iter().map(|prompt| expected(&alone, prompt)).collect();
        // One after the other, and then at the same time, after a beginning that nobody has computed.
        for at_once in [false, true] {
            let model = if at_once { load(&path) } else { model.clone() };
            let generations: Vec<_> =
                prompts.iter().map(|prompt| model.generate(prompt, &options(1)).unwrap()).collect();
            let found: Vec<_> = if at_once {
                thread::scope(|scope| {
                    let threads: Vec<_> = generations.into_iter().map(|own| scope.spawn(move || run(own))).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                })
            } else {
                generations.into_iter().map(run).collect()
            };
            let mut computed = 0;
            for ((found, _, timings), expected) in found.iter().zip(&of_prompts) {
                check(found, expected, name);
                computed += timings.prompt_tokens;
            }
            // A state is kept at the last page of a prompt only, so at once each computes its own.
            if !(at_once && name == "qwen3.5") {
                assert_eq!(computed, 2 * KV_PAGE + 6 * 10, "{name}, at once: {at_once}");
            }
        }
        // Another salt, and prompts for which other numbers of tokens are wanted, share nothing.
        for other in [options(1).cache_salt("other"), options(1).prompt_logprobs(2)] {
            let (found, _, timings) = run(model.generate(&prompts[0], &other).unwrap());
            assert_eq!((found.len(), timings.cached_tokens), (prompts[0].len() - 1, 0), "{name}");
        }
    }
}

#[test]
fn company_changes_nothing() {
    let model = load(&common::named("llama-3").folder.join("bf16"));
    let prompts: Vec<Vec<u32>> = (0..5).map(|seed| seeded_tokens(60 + seed, 300, 256)).collect();
    let alone: Vec<_> = prompts.iter().map(|prompt| expected(&model, prompt)).collect();
    thread::scope(|scope| {
        let company = model.generate(&seeded_tokens(90, 20, 256), &GenerateOptions::default().max_tokens(60)).unwrap();
        scope.spawn(move || company.count());
        let of = |prompt| model.generate(prompt, &options(4)).unwrap();
        let threads: Vec<_> = prompts.iter().map(of).map(|own| scope.spawn(move || run(own))).collect();
        for (thread, expected) in threads.into_iter().zip(&alone) {
            check(&thread.join().unwrap().0, expected, "company");
        }
    });
    let error = model.generate(&prompts[0], &options(1).prompt_logprobs(21)).err();
    assert!(matches!(error, Some(Error::Option { option: "prompt_logprobs", .. })), "{error:?}");
}
