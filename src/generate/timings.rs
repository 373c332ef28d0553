//! How long a generation took, and the tokens that it took the time for.

use std::time::Duration;

/// How long a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timings {
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Tokens of the prompt before those, which the session held from an earlier turn or found in the cache of another. Together
    /// with `prompt_tokens` they are the whole prompt.
    pub cached_tokens: usize,
    /// Time until the first token was chosen.
    pub prefill: Duration,
    /// Tokens that were generated; a stop token is not counted.
    pub generated: usize,
    /// Time of all steps after the first.
    pub decode: Duration,
    /// The number of steps in `decode`; a step that was computed ahead counts.
    pub decode_steps: usize,
    /// How many of `generated` were the only tokens that the grammar allowed, or ended a thought that had used its budget up, and so
    /// took no step of their own.
    pub forced: usize,
    /// Guessed tokens that were computed ahead ([`GenerateOptions::speculate`](super::GenerateOptions::speculate)).
    pub guessed: usize,
    /// How many of the guessed tokens were right, so that they took no pass over the weights.
    pub accepted: usize,
    /// The seed that chose the tokens; with it the same request gives the same text.
    pub seed: u64,
}

impl Timings {
    /// Steps per second after the prompt; 0 before the second step.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.decode_steps, self.decode)
    }

    /// Prompt tokens per second.
    pub fn prompt_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 || time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
