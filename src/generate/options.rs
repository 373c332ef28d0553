//! The options of a generation and their ranges.

use crate::adapter::{Adapter, check_scales};
use crate::cancel::CancellationToken;
use crate::chat::ChatOptions;
use crate::error::{Error, Result};
use crate::grammar::Grammar;
use crate::scheduler::costs::MOST_GUESSES;
use crate::tools::ToolChoice;
use model_factory_diagnostics::spec::{GREEDY_BELOW, Sampling};
use model_factory_text::answer::StopStrings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How to generate. By default tokens are chosen as the model's files say, up to 256 of them, until a stop token.
///
/// In JSON, a missing option has its default, and an unknown name is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the generation when it contains one. They are not part of the output, and only generated text counts.
    pub stop: Vec<String>,
    /// Whether the stop string that ends the generation is part of the output.
    pub include_stop: bool,
    /// Tokens that end the generation, besides the model's own stop tokens. They are not part of the output.
    pub stop_tokens: Vec<u32>,
    /// What the answer must be. Only tokens that continue it are drawn, with all other options, and stop tokens only where the
    /// answer may end; the thoughts of a reasoning model are free. It ends with [`FinishReason::Grammar`](super::FinishReason)
    /// where nothing can follow.
    pub grammar: Option<Grammar>,
    /// Whether the answer calls tools, of those that [`chat`](Self::chat) gives the template. Calls come as
    /// [`Piece::tool_call`](super::Piece::tool_call), read in the format that the template shows.
    pub tool_choice: ToolChoice,
    /// Whether an answer may call several tools. If not, it ends after its first call.
    pub parallel_tool_calls: bool,
    /// The most tokens that the thoughts of the answer may have together; then the mark that ends a thought comes, whatever the model
    /// says, and the answer follows it. Tokens count from the mark that begins a thought, or from the end of a prompt that has
    /// opened one; neither mark counts, nor do names of channels. A character is completed first, by up to three tokens more. 0 ends
    /// each thought at once. Where that mark is a stop token, it does not come before `min_tokens`. The template is not told. Models
    /// that do not mark thoughts have none, and stay within any budget.
    pub thinking_budget: Option<usize>,
    /// Goes on after one of the model's stop tokens, which then is a token like any other (for measurements);
    /// [`stop`](Self::stop) and [`stop_tokens`](Self::stop_tokens) still end it.
    pub ignore_stop: bool,
    /// Gives every piece the log-probability of its token, and of this many of the most likely tokens, up to 20.
    pub logprobs: Option<usize>,
    /// Gives the log-probability of each token of the prompt after the first, and of this many of the most likely tokens there, up
    /// to 20: [`Piece::prompt_logprobs`](super::Piece::prompt_logprobs). The prompt is then computed whole, but for what the model
    /// keeps of prompts that began alike; with `max_tokens` of 0 nothing else is. A stop token that ends the
    /// generation then has a piece too, without a text.
    pub prompt_logprobs: Option<usize>,
    /// Whether the next tokens are guessed and computed together with the known ones. Text, ids and everything else are the same
    /// as without guesses, to the bit; only the time differs.
    pub speculate: Speculation,
    /// Texts that the generation may repeat, besides its prompt and what it generated.
    pub speculate_from: Vec<String>,
    /// This many guesses a step, up to 15, instead of as many as pay off by the measured times of steps.
    pub speculative_tokens: Option<usize>,
    /// Options of the chat template: tools, variables, and which template it is.
    pub chat: ChatOptions,
    /// Who shares the cached prompt, such as the name of a user. Prompts of one salt share their common beginning, to the
    /// token, and nothing with other salts. Prompts without a salt share whole pages of 256 tokens with each other, so that no
    /// count and no time tells more about the prompts of others. `None` leaves a session its salt; a new session has none.
    /// Prompts of a salt that begins with NUL are not kept on disk ([`prompt_cache`](crate::ModelBuilder::prompt_cache)).
    pub cache_salt: Option<String>,
    /// What is added to the products of the model's weights: adapters, each with a scale, in the order of their sums. None leave a
    /// session those that it has; a new session has none. It is not part of the JSON.
    #[serde(skip)]
    pub adapters: Vec<(Adapter, f64)>,
    /// Ends the generation when it is cancelled, also in the middle of the prompt. It is not part of the JSON.
    #[serde(skip)]
    pub cancel: Option<CancellationToken>,
}

/// How tokens are guessed, to be computed ahead. A guess is accepted if and only if it is the token that the sampler, with its
/// seed and all tokens so far, draws from the model's own logits at that place.
///
/// Nothing is guessed where the bits of a row depend on the other rows: on a GPU, and with one int8 scale of activations
/// for all rows; nor while other sequences share the steps of the model, which gains more than guesses do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Speculation {
    /// No guesses.
    #[default]
    Off,
    /// By n-grams (prompt lookup): the tokens that followed an earlier occurrence of the last two to four, in the prompt, in
    /// the generated text or in [`GenerateOptions::speculate_from`]. Their number depends on how often such guesses were right
    /// and on the measured times of steps; nothing is guessed where that does not pay off.
    Ngram,
    /// By the draft model that was loaded with the model ([`ModelBuilder::draft`](crate::ModelBuilder::draft)), with the
    /// sampling options and the seed of the generation. The number of guesses also depends on the draft model's own time.
    Draft,
    /// By the multi-token prediction head that the model brings and was loaded with ([`ModelBuilder::mtp`](crate::ModelBuilder::mtp)),
    /// used like a draft model.
    Mtp,
}

/// Do-not-repeat-yourself, as in llama.cpp: where the last `n` tokens occurred before, the token that followed them there loses
/// `multiplier * base ^ (n - allowed_length)` of its logit, for the longest such `n` from `allowed_length` up. The power is at
/// most `base ^ 64`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dry {
    /// The factor of the penalty, from 0 up; 0 turns it off.
    pub multiplier: f64,
    /// The base of the exponential, from 1 up.
    pub base: f64,
    /// Repetitions of fewer tokens are free; at least 1.
    pub allowed_length: usize,
    /// How many of the last tokens are searched, including the prompt's; all tokens when absent.
    pub last_tokens: Option<usize>,
    /// Sequence breakers: no repetition goes on over a token that contains one of these, nor does such a token lose anything.
    /// One that is spelled by several tokens is not found.
    pub breakers: Vec<String>,
}

impl Default for Dry {
    /// llama.cpp's values (`common_params_sampling`), with the multiplier that its authors recommend.
    fn default() -> Self {
        let breakers = ["\n", ":", "\"", "*"].map(String::from).to_vec();
        Dry { multiplier: 0.8, base: 1.75, allowed_length: 2, last_tokens: None, breakers }
    }
}

/// Exclude top choices, as in llama.cpp: with `probability`, of the tokens at least as probable as `threshold` only the least
/// probable one stays, if there are several. Applies last, after min-p and temperature (llama.cpp: before it), and not greedily.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xtc {
    /// The probability that it applies to a token, from 0 to 1.
    pub probability: f64,
    /// The least probability of a top choice, from 0 to 1; nothing happens above 0.5.
    pub threshold: f64,
}

/// How the next token is chosen. An option that is `None` has the value that the model ships
/// ([`ModelSpec::sampling`](crate::diagnostics::spec::ModelSpec::sampling)), or off where it ships nothing: a model
/// without `generation_config.json` is greedy.
///
/// The steps and their order are those of transformers (`GenerationMixin._get_logits_processor`): repetition penalty,
/// then temperature, top-k, top-p and min-p. Presence and frequency penalties, which transformers lacks, follow the
/// repetition penalty, as in vLLM (`apply_penalties`). A step sees what the one before left, so the probabilities of
/// top-p are those among the tokens of top-k.
///
/// In greedy decoding (temperature 0 or none) only the penalties apply: no later step changes which token is the most likely. On
/// a tie the lowest id counts as the more likely.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
#[non_exhaustive]
pub struct SamplingOptions {
    /// The temperature, from 0 up. 0 takes the most likely token; above 0, logits are divided by it before one is drawn.
    pub temperature: Option<f64>,
    /// Draws among this many of the most likely tokens; 0 means all.
    pub top_k: Option<usize>,
    /// Draws among the fewest most likely tokens that together are this probable, from 0 to 1; 1 means all.
    pub top_p: Option<f64>,
    /// Draws among tokens at least this share as probable as the most likely one, from 0 to 1; 0 means all.
    pub min_p: Option<f64>,
    /// Above 0. The logit of a token of the prompt or of the text so far is divided by this when it is positive,
    /// else multiplied (transformers' `RepetitionPenaltyLogitsProcessor`); 1 is off, below 1 favors repetition.
    pub repetition_penalty: Option<f64>,
    /// Subtracted from the logit of a token that was generated before, from -2 to 2, as in the OpenAI API; 0 is off.
    pub presence_penalty: f64,
    /// Subtracted from the logit of a token once for every time it was generated, from -2 to 2, as in the OpenAI API; 0 is
    /// off.
    pub frequency_penalty: f64,
    /// Added to the logits of these tokens before all else, from -100 to 100, as in the OpenAI API.
    pub logit_bias: BTreeMap<u32, f64>,
    /// Stop tokens are not chosen before this many tokens were generated, unless nothing else is possible. Stop strings still end
    /// the text.
    pub min_tokens: usize,
    /// DRY: a penalty on tokens that would repeat an earlier part of the sequence.
    pub dry: Option<Dry>,
    /// XTC: now and then excludes the most likely tokens.
    pub xtc: Option<Xtc>,
    /// The seed of the draws: the same seed, prompt and model give the same text. Without one it is random, and reported in the
    /// timings.
    pub seed: Option<u64>,
}

impl GenerateOptions {
    /// Whether every option is in its range.
    ///
    /// # Errors
    /// `Option` for the first that is not, `EmptyStopString`, `Grammar`.
    pub fn check(&self) -> Result<()> {
        self.sampling.in_range()?;
        self.in_range()?;
        check_scales(&self.adapters)?;
        self.grammar.as_ref().map_or(Ok(()), Grammar::check)?;
        Ok(StopStrings::new(&self.stop).map(drop)?)
    }

    /// The options for the chat template, without tools where none may be called.
    pub fn template_options(&self) -> Cow<'_, ChatOptions> {
        match (&self.tool_choice, &self.chat.tools) {
            (ToolChoice::None, Some(_)) => {
                let mut chat = self.chat.clone();
                chat.tools = None;
                Cow::Owned(chat)
            }
            _ => Cow::Borrowed(&self.chat),
        }
    }

    /// `Option` for more log-probabilities than the OpenAI API allows, and for more guesses than a step can have.
    pub(super) fn in_range(&self) -> Result<()> {
        let (logprobs, guesses) = (self.logprobs.map(|top| top as f64), self.speculative_tokens.map(|n| n as f64));
        in_ranges([
            ("logprobs", logprobs, 0.0..=20.0, "a whole number from 0 to 20"),
            ("prompt_logprobs", self.prompt_logprobs.map(|top| top as f64), 0.0..=20.0, "a whole number from 0 to 20"),
            ("speculative_tokens", guesses, 0.0..=MOST_GUESSES as f64, "a whole number from 0 to 15"),
        ])
    }
}

impl Default for GenerateOptions {
    fn default() -> Self {
        let sampling = SamplingOptions::default();
        GenerateOptions {
            max_tokens: 256,
            sampling,
            stop: Vec::new(),
            include_stop: false,
            stop_tokens: Vec::new(),
            grammar: None,
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            thinking_budget: None,
            ignore_stop: false,
            logprobs: None,
            prompt_logprobs: None,
            speculate: Speculation::Off,
            speculate_from: Vec::new(),
            speculative_tokens: None,
            chat: ChatOptions::default(),
            cache_salt: None,
            adapters: Vec::new(),
            cancel: None,
        }
    }
}

/// Makes methods that each set one option: the name and arguments, then the field and its value. With a second type, whose
/// fields have the names of the methods, the documentation is that of the fields.
macro_rules! setters {
    ($options:ident: $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),+) => $($field:ident).+ = $value:expr;)*) => {
        impl $options {
            $($(#[$doc])*
            pub fn $name(mut self, $($argument: $type),+) -> Self {
                self.$($field).+ = $value;
                self
            })*
        }
    };
    ($options:ident, $fields:ident: $($name:ident($($arguments:tt)+) => $($field:ident).+ = $value:expr;)*) => {
        $crate::generate::setters! {
            $options:
            $(#[doc = concat!("Sets [`", stringify!($name), "`](field@", stringify!($fields), "::", stringify!($name), ").")]
            $name($($arguments)+) => $($field).+ = $value;)*
        }
    };
}

pub(crate) use setters;

setters! {
    GenerateOptions, SamplingOptions:
    temperature(temperature: f64) => sampling.temperature = Some(temperature);
    top_k(top_k: usize) => sampling.top_k = Some(top_k);
    top_p(top_p: f64) => sampling.top_p = Some(top_p);
    min_p(min_p: f64) => sampling.min_p = Some(min_p);
    repetition_penalty(penalty: f64) => sampling.repetition_penalty = Some(penalty);
    presence_penalty(penalty: f64) => sampling.presence_penalty = penalty;
    frequency_penalty(penalty: f64) => sampling.frequency_penalty = penalty;
    min_tokens(tokens: usize) => sampling.min_tokens = tokens;
    dry(dry: Dry) => sampling.dry = Some(dry);
    xtc(probability: f64, threshold: f64) => sampling.xtc = Some(Xtc { probability, threshold });
    seed(seed: u64) => sampling.seed = Some(seed);
}

setters! {
    GenerateOptions, GenerateOptions:
    max_tokens(max_tokens: usize) => max_tokens = max_tokens;
    ignore_stop(ignore_stop: bool) => ignore_stop = ignore_stop;
    include_stop(include: bool) => include_stop = include;
    stop_tokens(ids: impl Into<Vec<u32>>) => stop_tokens = ids.into();
    parallel_tool_calls(parallel: bool) => parallel_tool_calls = parallel;
    thinking_budget(tokens: usize) => thinking_budget = Some(tokens);
    logprobs(top: usize) => logprobs = Some(top);
    prompt_logprobs(top: usize) => prompt_logprobs = Some(top);
    speculate(speculate: Speculation) => speculate = speculate;
    speculative_tokens(tokens: usize) => speculative_tokens = Some(tokens);
    chat(chat: ChatOptions) => chat = chat;
    cache_salt(salt: impl Into<String>) => cache_salt = Some(salt.into());
    tool_choice(choice: ToolChoice) => tool_choice = choice;
    cancel(cancel: &CancellationToken) => cancel = Some(cancel.clone());
    grammar(grammar: &Grammar) => grammar = Some(grammar.clone());
}

impl GenerateOptions {
    /// Adds `adapter`, multiplied by `scale`, to those that the generation has: 1 is as it was trained.
    pub fn adapter(mut self, adapter: &Adapter, scale: f64) -> Self {
        self.adapters.push((adapter.clone(), scale));
        self
    }

    /// Adds `bias` to the logit of `token`.
    pub fn logit_bias(mut self, token: u32, bias: f64) -> Self {
        self.sampling.logit_bias.insert(token, bias);
        self
    }

    /// Adds `text` to the texts that the generation may repeat, such as a file to be edited that the prompt does not show.
    pub fn speculate_from(mut self, text: impl Into<String>) -> Self {
        self.speculate_from.push(text.into());
        self
    }

    /// Holds the answer to this JSON schema ([`Grammar::json_schema`]).
    pub fn json_schema(self, schema: impl Into<Value>) -> Self {
        self.grammar(&Grammar::json_schema(schema))
    }

    /// Holds the answer to the schema of `T` ([`Grammar::json`]).
    pub fn json<T: JsonSchema>(self) -> Self {
        self.grammar(&Grammar::json::<T>())
    }

    /// Holds the answer to this regular expression ([`Grammar::regex`]).
    pub fn regex(self, regex: impl Into<String>) -> Self {
        self.grammar(&Grammar::regex(regex))
    }

    /// Holds the answer to this Lark grammar ([`Grammar::lark`]).
    pub fn lark(self, grammar: impl Into<String>) -> Self {
        self.grammar(&Grammar::lark(grammar))
    }

    /// Makes the answer one of these texts.
    pub fn choice<S: AsRef<str>>(self, texts: &[S]) -> Self {
        self.grammar(&Grammar::choice(texts))
    }

    /// Adds `text` to the texts that end the generation.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }
}

impl SamplingOptions {
    /// These options, with the values that the model ships where they are `None`. If top-k, top-p or min-p is given, tokens are
    /// drawn: at temperature 1, if neither gives another.
    pub fn or(&self, model: &Sampling) -> SamplingOptions {
        let asks = self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        SamplingOptions {
            temperature: self.temperature.or(model.temperature).or(asks.then_some(1.0)),
            top_k: self.top_k.or(model.top_k),
            top_p: self.top_p.or(model.top_p),
            min_p: self.min_p.or(model.min_p),
            repetition_penalty: self.repetition_penalty.or(model.repetition_penalty),
            ..self.clone()
        }
    }

    /// Whether tokens are drawn, rather than always taking the most likely one.
    pub fn draws(&self) -> bool {
        self.temperature.is_some_and(|temperature| temperature >= GREEDY_BELOW)
    }

    /// `Option` for the first value out of its range.
    pub(super) fn in_range(&self) -> Result<()> {
        let penalty = f64::MIN_POSITIVE..=f64::MAX;
        let bias = self.logit_bias.values().copied().find(|bias| !(-100.0..=100.0).contains(bias));
        let dry = self.dry.as_ref();
        in_ranges([
            ("logit_bias", bias, -100.0..=100.0, "a number from -100 to 100"),
            ("dry.multiplier", dry.map(|dry| dry.multiplier), 0.0..=f64::MAX, "a number from 0 up"),
            ("dry.base", dry.map(|dry| dry.base), 1.0..=f64::MAX, "a number from 1 up"),
            ("dry.allowed_length", dry.map(|dry| dry.allowed_length as f64), 1.0..=f64::MAX, "a number from 1 up"),
            ("xtc.probability", self.xtc.map(|xtc| xtc.probability), 0.0..=1.0, "a number from 0 to 1"),
            ("xtc.threshold", self.xtc.map(|xtc| xtc.threshold), 0.0..=1.0, "a number from 0 to 1"),
            ("temperature", self.temperature, 0.0..=f64::MAX, "a number from 0 up"),
            ("top_p", self.top_p, 0.0..=1.0, "a number from 0 to 1"),
            ("min_p", self.min_p, 0.0..=1.0, "a number from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, penalty, "a number above 0"),
            ("presence_penalty", Some(self.presence_penalty), -2.0..=2.0, "a number from -2 to 2"),
            ("frequency_penalty", Some(self.frequency_penalty), -2.0..=2.0, "a number from -2 to 2"),
        ])
    }
}

/// The name of an option, its value if it has one, and its range, also in words.
type Ranged = (&'static str, Option<f64>, RangeInclusive<f64>, &'static str);

/// `Option` for the first value out of its range; NaN is out of every range.
pub(crate) fn in_ranges<const N: usize>(options: [Ranged; N]) -> Result<()> {
    for (option, value, range, expected) in options {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            return Err(Error::Option { option, value, expected });
        }
    }
    Ok(())
}
