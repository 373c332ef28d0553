//! Generations with all that they give, so that two can be compared to the bit.
#![allow(clippy::unwrap_used)] // a test that cannot go on says why

use super::bits;
use model_factory::generate::Timings;
use model_factory::{Error, FinishReason, GenerateOptions, Model, Piece};

/// Whether `TEST_DEVICE` names a GPU, where nothing is guessed and some models have no kernels.
pub(crate) fn on_gpu() -> bool {
    std::env::var_os("TEST_DEVICE").is_some_and(|device| device != "cpu")
}

/// A text that the bundled model goes on to repeat, in ids.
pub(crate) fn repeating(model: &Model) -> Vec<u32> {
    model.tokenizer().encode_prompt(&"Greta sold apples on the market square. ".repeat(4)).unwrap()
}

/// The likeliest tokens, as many as asked for.
pub(crate) fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(max_tokens).temperature(0.0).ignore_stop(true)
}

/// The ids of the likeliest tokens after `prompt`.
pub(crate) fn greedy(model: &Model, prompt: &[u32], max_tokens: usize) -> Result<Vec<u32>, Error> {
    let mut generation = model.generate(prompt, &options(max_tokens))?;
    generation.text()?;
    Ok(generation.ids().to_vec())
}

/// All that a generation gives, and what its session holds.
#[derive(Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) ids: Vec<u32>,
    pub(crate) finish: Option<FinishReason>,
    pub(crate) held: Vec<u32>,
    pub(crate) cache: usize,
    /// Of the session after one more token.
    pub(crate) logits: Vec<u32>,
}

pub(crate) fn generate(model: &Model, prompt: &[u32], options: &GenerateOptions) -> (Given, Timings) {
    let mut generation = model.generate(prompt, options).unwrap();
    let pieces = generation.by_ref().map(Result::unwrap).collect();
    let (ids, (finish, timings)) = (generation.ids().to_vec(), generation.finish());
    let mut session = generation.into_inner();
    let (held, cache) = (session.ids().to_vec(), session.cache_bytes());
    let logits = if finish == Some(FinishReason::Context) { Vec::new() } else { bits(&mut session, &prompt[..1]) };
    (Given { pieces, ids, finish, held, cache, logits }, timings)
}

/// Options of every kind.
pub(crate) fn kinds(max_tokens: usize) -> Vec<GenerateOptions> {
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
