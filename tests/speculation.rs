//! Speculation changes the time alone: ids, text, log-probabilities and the session are those that come without it.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

mod common;

use common::phi_128k::write_128k;
use futures::executor::{block_on, block_on_stream};
use model_factory::generate::Timings;
use model_factory::{CancellationToken, Error, FinishReason, GenerateOptions, KvDtype, Model, Piece, Session, Speculation};
use std::thread;

/// Guesses are computed at every length, whether they pay or not.
const COUNTS: [usize; 3] = [1, 4, 15];

fn demo() -> Model {
    common::load(common::fixtures().join("demo"))
}

/// A text that the bundled model goes on to repeat, in ids.
fn repeating(model: &Model) -> Vec<u32> {
    model.tokenizer().encode_prompt(&"Greta sold apples on the market square. ".repeat(4)).unwrap()
}

fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(max_tokens).temperature(0.0).ignore_stop(true)
}

fn guessing(options: &GenerateOptions, tokens: usize) -> GenerateOptions {
    options.clone().speculate(Speculation::Ngram).speculative_tokens(tokens)
}

/// All that a generation gives, and what its session holds.
#[derive(Debug, PartialEq)]
struct Given {
    pieces: Vec<Piece>,
    ids: Vec<u32>,
    finish: Option<FinishReason>,
    held: Vec<u32>,
    cache: usize,
    /// Of the session after one more token.
    logits: Vec<u32>,
}

fn bits(session: &mut Session, token: u32) -> Vec<u32> {
    let logits = session.forward(&[token]).unwrap().to_vec1::<f32>().unwrap();
    logits.into_iter().map(f32::to_bits).collect()
}

fn generate(model: &Model, prompt: &[u32], options: &GenerateOptions) -> (Given, Timings) {
    let mut generation = model.generate(prompt, options).unwrap();
    let pieces = generation.by_ref().map(Result::unwrap).collect();
    let (ids, (finish, timings)) = (generation.ids().to_vec(), generation.finish());
    let mut session = generation.into_inner();
    let (held, cache) = (session.ids().to_vec(), session.cache_bytes());
    let logits = if finish == Some(FinishReason::Context) { Vec::new() } else { bits(&mut session, prompt[0]) };
    (Given { pieces, ids, finish, held, cache, logits }, timings)
}

/// Compares a generation without guesses to those with them; how many were computed, and how many accepted.
fn same(model: &Model, prompt: &[u32], options: &GenerateOptions, what: &str) -> (usize, usize) {
    let (expected, plain) = generate(model, prompt, options);
    assert_eq!((plain.guessed, plain.accepted), (0, 0));
    let (mut guessed, mut accepted) = (0, 0);
    for count in COUNTS {
        let (found, timings) = generate(model, prompt, &guessing(options, count));
        assert_eq!(found, expected, "{what}, {count} guesses a step, {options:?}");
        assert_eq!((timings.generated, timings.decode_steps), (plain.generated, plain.decode_steps));
        assert!(timings.accepted <= timings.guessed);
        guessed += timings.guessed;
        accepted += timings.accepted;
    }
    let (found, _) = generate(model, prompt, &options.clone().speculate(Speculation::Ngram));
    assert_eq!(found, expected, "{what}, as many guesses as pay, {options:?}");
    (guessed, accepted)
}

/// Options of every kind.
fn kinds(max_tokens: usize) -> Vec<GenerateOptions> {
    let warm = options(max_tokens).temperature(1.0);
    vec![
        options(max_tokens),
        options(max_tokens).logprobs(3),
        warm.clone().seed(1),
        warm.clone().seed(2).logprobs(0),
        warm.seed(3).top_k(20).top_p(0.9).min_p(0.01),
        options(max_tokens).repetition_penalty(1.3),
        options(max_tokens).temperature(0.8).seed(4).presence_penalty(0.5).frequency_penalty(-0.5),
        options(max_tokens).temperature(0.3).seed(5).ignore_stop(false),
    ]
}

#[test]
fn every_family_generates_the_same() {
    let (mut files, mut guessed, mut accepted) = (0, 0, 0);
    for fixture in common::all() {
        for file in fixture.expected.files.keys() {
            let Some(model) = common::load_where_it_runs(fixture.folder.join(file)) else { continue };
            // The first tokens of a case, three times: n-grams that occurred before.
            let case: &[u32] = &fixture.expected.cases["short"].tokens;
            let prompt: Vec<u32> = case.iter().take(6).cycle().take(18).copied().collect();
            for options in kinds(24) {
                let counts = same(&model, &prompt, &options, &format!("{}/{file}", fixture.name()));
                guessed += counts.0;
                accepted += counts.1;
            }
            files += 1;
        }
    }
    println!("{files} files: {guessed} guessed, {accepted} accepted");
    assert!(files >= 20);
    if std::env::var_os("TEST_DEVICE").is_none() {
        assert!(accepted > 1000 && guessed > accepted + 1000, "{guessed} guessed, {accepted} accepted");
    }
}
