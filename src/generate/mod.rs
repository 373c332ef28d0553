//! Prompt ids -> text, a piece at a time.

mod sampler;
mod stop;

use crate::error::{Error, Result};
use crate::tokenizer::{PieceDecoder, Tokenizer};
use candle_core::Tensor;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use sampler::{Sampler, SamplingOptions};
pub use stop::{FinishReason, StopTokens};

/// What a generation needs of a model: the logits after one more run of tokens.
pub trait Step {
    /// Continues the sequence with `tokens` and returns the logits `[vocab]`, F32, after the last of them.
    ///
    /// # Errors
    /// Whatever stops the computation; the sequence is then as it was before.
    fn forward(&mut self, tokens: &[u32]) -> Result<Tensor>;

    /// Tokens that still fit in the context.
    fn room(&self) -> usize;
}

impl<S: Step + ?Sized> Step for &mut S {
    fn forward(&mut self, tokens: &[u32]) -> Result<Tensor> {
        (**self).forward(tokens)
    }

    fn room(&self) -> usize {
        (**self).room()
    }
}

/// How to generate. The default is greedy, up to 256 tokens, and ends on the model's stop tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: SamplingOptions,
    /// Goes on after a stop token, which then is a token like any other (for measurements).
    pub ignore_stop: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions { max_tokens: 256, sampling: SamplingOptions::default(), ignore_stop: false }
    }
}

impl GenerateOptions {
    /// With at most `max_tokens` tokens.
    #[must_use]
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// With this temperature; 0 is greedy.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.sampling.temperature = temperature;
        self
    }

    /// With this seed; the same seed, prompt and model give the same text.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampling.seed = Some(seed);
        self
    }
}

/// A step of a generation. Pieces put together are the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text that is complete with this token; empty while a character waits for its last byte.
    pub text: String,
    /// The token, or `None` for text that was left over when the generation ended.
    pub token: Option<u32>,
}

/// How long a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Time until the first token was chosen.
    pub prefill: Duration,
    /// Tokens that were generated; a stop token is not counted.
    pub generated: usize,
    /// Time of all steps after the first.
    pub decode: Duration,
    /// Steps that `decode` took.
    pub decode_steps: usize,
    /// The seed that chose the tokens; with it the same request gives the same text.
    pub seed: u64,
}

impl Timings {
    /// Steps a second after the prompt; 0 before the second one.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.decode_steps, self.decode)
    }

    /// Prompt tokens a second.
    pub fn prompt_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 || time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// A running generation: an iterator of pieces. Dropping it stops.
pub struct Generation<S> {
    step: S,
    tokenizer: Arc<Tokenizer>,
    decoder: PieceDecoder,
    sampler: Sampler,
    stop: StopTokens,
    max_tokens: usize,
    /// What the next step continues with: the prompt, then the last token.
    input: Vec<u32>,
    finish: Option<FinishReason>,
    timings: Timings,
}

impl<S: Step> Generation<S> {
    /// Prepares to continue with `prompt`, ids that `step` has not seen, until one of `stop`. `before` are the ids it
    /// has seen: text that continues them keeps its leading space. Nothing is computed before the first `next`.
    ///
    /// # Errors
    /// `EmptyPrompt`, `ContextOverflow` when the prompt does not fit, `Option` for a sampling option out of range.
    pub fn new(
        step: S,
        tokenizer: Arc<Tokenizer>,
        before: &[u32],
        prompt: Vec<u32>,
        stop: StopTokens,
        options: &GenerateOptions,
    ) -> Result<Self> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let (limit, asked) = (step.room(), prompt.len());
        if asked > limit {
            return Err(Error::ContextOverflow { limit, asked });
        }
        let sampler = Sampler::new(&options.sampling, tokenizer.vocab_len())?;
        let decoder = tokenizer.stream_after(&[before, &prompt].concat());
        let timings = Timings { prompt_tokens: asked, seed: sampler.seed(), ..Timings::default() };
        let finish = (options.max_tokens == 0).then_some(FinishReason::Length);
        Ok(Generation {
            step,
            tokenizer,
            decoder,
            sampler,
            stop: if options.ignore_stop { StopTokens::default() } else { stop },
            max_tokens: options.max_tokens,
            input: prompt,
            finish,
            timings,
        })
    }

    /// Why the generation ended (`None` while it runs, or after an error) and how long it took.
    pub fn finish(&self) -> (Option<FinishReason>, Timings) {
        (self.finish, self.timings)
    }

    /// Generates to the end and returns the whole text.
    ///
    /// # Errors
    /// The first error of any step.
    pub fn text(&mut self) -> Result<String> {
        self.try_fold(String::new(), |text, piece| Ok(text + &piece?.text))
    }

    fn advance(&mut self) -> Result<Option<Piece>> {
        let begun = Instant::now();
        let logits = self.step.forward(&self.input)?;
        let token = self.sampler.sample(&logits)?;
        if self.timings.prefill.is_zero() {
            self.timings.prefill = begun.elapsed();
        } else {
            self.timings.decode += begun.elapsed();
            self.timings.decode_steps += 1;
        }
        if self.stop.contains(token) {
            self.finish = Some(FinishReason::Stop(token));
            let mut text = String::new();
            self.decoder.finish(&mut text);
            return Ok((!text.is_empty()).then_some(Piece { text, token: None }));
        }
        self.timings.generated += 1;
        self.input.clear();
        self.input.push(token);
        let mut text = String::new();
        self.decoder.push(self.tokenizer.token_bytes(token).unwrap_or_default(), &mut text);
        if self.timings.generated == self.max_tokens {
            self.finish = Some(FinishReason::Length);
        } else if self.step.room() == 0 {
            self.finish = Some(FinishReason::Context);
        }
        if self.finish.is_some() {
            self.decoder.finish(&mut text);
        }
        Ok(Some(Piece { text, token: Some(token) }))
    }
}

impl<S: Step> Iterator for Generation<S> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finish.is_some() || self.input.is_empty() {
            return None;
        }
        let result = self.advance();
        if result.is_err() {
            // An error ends the iteration: nothing sensible can follow.
            self.input.clear();
        }
        result.transpose()
    }
}

#[cfg(test)]
mod tests;
