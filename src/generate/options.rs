//! What a caller may ask of a generation, and the ranges of it.

use super::sampler::Sampler;
use super::stop::StopStrings;
use crate::chat::ChatOptions;
use crate::error::{Error, Result};
use std::ops::RangeInclusive;

/// How to generate. The default is greedy, up to 256 tokens, and ends on the model's stop tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the generation when it contains one; none is part of the output. Only generated text counts.
    pub stop: Vec<String>,
    /// Goes on after a stop token, which then is a token like any other (for measurements).
    pub ignore_stop: bool,
    /// What the chat template is given beside the messages.
    pub chat: ChatOptions,
}

/// How the next token is chosen. The default is greedy, and every other option is off.
///
/// The steps and their order are those of transformers (`GenerationMixin._get_logits_processor`): repetition penalty,
/// then temperature, top-k, top-p and min-p. Presence and frequency penalties, which transformers has not, follow the
/// repetition penalty, as in vLLM (`apply_penalties`). A step sees what the one before left, so the probabilities of
/// top-p are those among the tokens of top-k.
///
/// Greedily (temperature 0) only the penalties apply: no later step changes which token is the most likely. Among
/// equals the lowest id is the more likely.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingOptions {
    /// From 0 up. 0 takes the most likely token; above, logits are divided by it before one is drawn.
    pub temperature: f64,
    /// Draws among this many of the most likely tokens; 0 is all.
    pub top_k: usize,
    /// From 0 to 1. Draws among the fewest most likely tokens that together are this probable; 1 is all.
    pub top_p: f64,
    /// From 0 to 1. Draws among tokens at least this share as probable as the most likely one; 0 is all.
    pub min_p: f64,
    /// Above 0. A token of the prompt or of the text so far has its logit divided by this when the logit is positive,
    /// else multiplied (transformers' `RepetitionPenaltyLogitsProcessor`); 1 is off, below 1 favours repetition.
    pub repetition_penalty: f64,
    /// From -2 to 2, as in the OpenAI API. Taken off the logit of a token that was generated before; 0 is off.
    pub presence_penalty: f64,
    /// From -2 to 2, as in the OpenAI API. Taken off the logit of a token once for every time it was generated; 0 is
    /// off.
    pub frequency_penalty: f64,
    /// The seed of the draws; without one it is drawn, and reported in the timings.
    pub seed: Option<u64>,
}

impl GenerateOptions {
    /// Whether every option is in its range.
    pub(crate) fn check(&self) -> Result<()> {
        Sampler::new(&self.sampling, 1)?;
        StopStrings::new(&self.stop).map(drop)
    }
}

impl Default for GenerateOptions {
    fn default() -> Self {
        let sampling = SamplingOptions::default();
        GenerateOptions {
            max_tokens: 256,
            sampling,
            stop: Vec::new(),
            ignore_stop: false,
            chat: ChatOptions::default(),
        }
    }
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
        }
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

    /// With draws among the `top_k` most likely tokens; 0 is all.
    #[must_use]
    pub fn top_k(mut self, top_k: usize) -> Self {
        self.sampling.top_k = top_k;
        self
    }

    /// With draws among the fewest most likely tokens that together have the probability `top_p`; 1 is all.
    #[must_use]
    pub fn top_p(mut self, top_p: f64) -> Self {
        self.sampling.top_p = top_p;
        self
    }

    /// With draws among tokens at least `min_p` times as probable as the most likely one; 0 is all.
    #[must_use]
    pub fn min_p(mut self, min_p: f64) -> Self {
        self.sampling.min_p = min_p;
        self
    }

    /// With this penalty on tokens of the prompt and the text so far; 1 is off.
    #[must_use]
    pub fn repetition_penalty(mut self, penalty: f64) -> Self {
        self.sampling.repetition_penalty = penalty;
        self
    }

    /// With this penalty on tokens that were generated before; 0 is off.
    #[must_use]
    pub fn presence_penalty(mut self, penalty: f64) -> Self {
        self.sampling.presence_penalty = penalty;
        self
    }

    /// With this penalty on tokens for every time they were generated; 0 is off.
    #[must_use]
    pub fn frequency_penalty(mut self, penalty: f64) -> Self {
        self.sampling.frequency_penalty = penalty;
        self
    }

    /// With this seed; the same seed, prompt and model give the same text.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampling.seed = Some(seed);
        self
    }

    /// With the variable `name` for the chat template, such as `enable_thinking`.
    #[must_use]
    pub fn chat_variable(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.chat = self.chat.variable(name, value);
        self
    }

    /// With this for the chat template: tools, variables, and which template it is.
    #[must_use]
    pub fn chat(mut self, chat: ChatOptions) -> Self {
        self.chat = chat;
        self
    }

    /// With `text` as one more text that ends the generation.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }
}

impl SamplingOptions {
    /// `Option` for the first value out of its range; NaN is out of every range.
    pub(super) fn in_range(&self) -> Result<()> {
        let ranges: [(&'static str, f64, RangeInclusive<f64>, &'static str); 6] = [
            ("temperature", self.temperature, 0.0..=f64::MAX, "a number from 0 up"),
            ("top_p", self.top_p, 0.0..=1.0, "a number from 0 to 1"),
            ("min_p", self.min_p, 0.0..=1.0, "a number from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, f64::MIN_POSITIVE..=f64::MAX, "a number above 0"),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0, "a number from -2 to 2"),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0, "a number from -2 to 2"),
        ];
        for (option, value, range, expected) in ranges {
            if !range.contains(&value) {
                return Err(Error::Option { option, value, expected });
            }
        }
        Ok(())
    }
}
