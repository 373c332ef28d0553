//! The JSON of a request of `chat/completions` or `completions` -> prompts and options.

use super::fields::Fields;
use super::format::grammar;
use super::llama_cpp::sampling as llama_cpp_sampling;
use super::messages::message;
use super::tools;
use crate::error::RequestError;
use model_factory::generate::MAX_ANSWERS;
use model_factory::tokenizer::Tokenizer;
use model_factory::{Error, GenerateOptions, Generation, Message, Model, Prompt, Session};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// The most stop strings of a request: each is searched for in every piece.
const MOST_STOPS: usize = 16;

/// The most bytes of all stop strings of a request: each of its answers keeps them.
const MOST_STOP_BYTES: usize = 4096;

/// The most log-probabilities of prompts in an answer.
const MOST_PROMPT_LOGPROBS: usize = 1 << 17;

/// The tokens that thought may have: as llama.cpp's server names that, as vLLM does, and Qwen's API.
pub(super) const THINKING_BUDGET: [&str; 4] =
    ["thinking_budget_tokens", "reasoning_budget_tokens", "thinking_token_budget", "thinking_budget"];

/// The bytes of a `cache_salt`, which the cache keeps as long as the pages of its prompts.
const SALT_BYTES: RangeInclusive<usize> = 1..=256;

/// A request of `chat/completions` or `completions`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The name of the model, if given. The server has to check whether it has such a model.
    pub model: Option<String>,
    /// The prompts.
    pub input: CompletionInput,
    /// The number of answers to each prompt, from 1 to 128.
    pub n: usize,
    /// How many answers to each prompt are computed, at least `n`: the `n` whose tokens have the greatest mean log-probability are
    /// the answer.
    pub best_of: usize,
    /// Whether the text of an answer begins with its prompt.
    pub echo: bool,
    /// The fields of the answer that have log-probabilities.
    pub(crate) logprobs: LogProbFields,
    /// Whether the answer is streamed as events.
    pub stream: bool,
    /// Whether the events end with the usage.
    pub include_usage: bool,
    /// Whether every event has the usage so far.
    pub continuous_usage: bool,
    /// Whether tools were given as `functions`, so that a call is the message's `function_call`.
    pub has_functions: bool,
    /// The options of each generation. Without a limit in the request it goes on until the context is full.
    pub options: GenerateOptions,
    /// Adapters (LoRA) by the numbers that the server has given them, each with a scale; not together with
    /// a [`model`](Self::model) that is an adapter. The server has to put them into the options.
    pub lora: Option<Vec<(usize, f64)>>,
    /// Whether chunks have what only other APIs say: ids, timings of each answer, and the whole prompt.
    pub(crate) details: bool,
    /// What is added to the logits of all tokens of a text, until these are known.
    pub(crate) text_bias: Vec<(String, f64)>,
}

/// The fields of an answer that have log-probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LogProbFields {
    /// Whether those of the answer only say which is the best.
    pub(crate) are_hidden: bool,
    /// How many at each place `logprobs` has of the prompt that the answer begins with.
    pub(crate) of_echo: Option<usize>,
    /// How many at each place `prompt_logprobs` has of the prompt, as in vLLM.
    pub(crate) prompt: Option<usize>,
}

/// An entry of `lora`, as in llama.cpp's server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lora {
    id: usize,
    scale: f64,
}

/// The prompts of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompletionInput {
    /// One conversation, from `chat/completions`.
    Messages(Vec<Message>),
    /// One or more texts.
    Texts(Vec<String>),
    /// The ids of each prompt.
    Ids(Vec<Vec<u32>>),
    /// Texts and ids, in the order of each prompt.
    Mixed(Vec<Vec<PromptPart>>),
    /// Texts before a place, and the text after it: what is between is the answer.
    Infill {
        /// The text before the place, for each answer.
        prefixes: Vec<String>,
        /// The text after it.
        suffix: String,
        /// Other files, each with its name and its text.
        files: Vec<(String, String)>,
    },
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PromptPart {
    /// A text. Special tokens spelled in it become their ids; BOS stands in front of one that begins the prompt, where the tokenizer
    /// puts it there.
    Text(String),
    /// Ids as they are.
    Ids(Vec<u32>),
}

/// The ids of a prompt of `parts`, of which there may be up to `limit`.
fn joined(parts: &[PromptPart], tokenizer: &Tokenizer, limit: usize) -> model_factory::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match part {
            PromptPart::Ids(of) => ids.extend_from_slice(of),
            PromptPart::Text(text) => {
                let asked = ids.len() + tokenizer.least_tokens(text);
                if asked > limit {
                    return Err(Error::ContextOverflow { limit, asked });
                }
                ids.extend(if index == 0 { tokenizer.encode_prompt(text)? } else { tokenizer.encode(text, false)? });
            }
        }
    }
    Ok(ids)
}

impl CompletionInput {
    /// Takes a text, the ids of one, or a list of either.
    pub(super) fn take(fields: &mut Fields, name: &str) -> Result<CompletionInput, RequestError> {
        let prompt: Value = fields.require(name)?;
        let is_list_of = |is: fn(&Value) -> bool| prompt.as_array().is_some_and(|list| list.iter().all(is));
        let input = match &prompt {
            Value::String(_) => serde_json::from_value(json!([prompt])).map(CompletionInput::Texts),
            _ if is_list_of(Value::is_string) => serde_json::from_value(prompt).map(CompletionInput::Texts),
            _ if is_list_of(Value::is_number) => serde_json::from_value(json!([prompt])).map(CompletionInput::Ids),
            _ => serde_json::from_value(prompt).map(CompletionInput::Ids),
        };
        let input = input.ok().filter(|input| input.count() > 0);
        input.ok_or_else(|| fields.at(name).wrong("expected a text, a list of ids, or a list of either"))
    }

    /// The number of prompts.
    pub fn count(&self) -> usize {
        match self {
            CompletionInput::Messages(_) => 1,
            CompletionInput::Texts(texts) | CompletionInput::Infill { prefixes: texts, .. } => texts.len(),
            CompletionInput::Ids(prompts) => prompts.len(),
            CompletionInput::Mixed(prompts) => prompts.len(),
        }
    }

    /// The prompts, where each is one of the library's; otherwise [`CompletionRequest::ids`] makes them ids.
    fn prompts(&self) -> Option<Vec<Prompt<'_>>> {
        match self {
            CompletionInput::Messages(messages) => Some(vec![messages.into()]),
            CompletionInput::Texts(texts) => Some(texts.iter().map(Prompt::from).collect()),
            CompletionInput::Ids(prompts) => Some(prompts.iter().map(Prompt::from).collect()),
            CompletionInput::Infill { prefixes, suffix, files } if files.is_empty() => {
                Some(prefixes.iter().map(|prefix| Prompt::Infill { prefix, suffix }).collect())
            }
            CompletionInput::Infill { .. } | CompletionInput::Mixed(_) => None,
        }
    }
}

impl CompletionRequest {
    /// Reads the body of a request of `chat/completions`.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn chat(body: &[u8]) -> Result<CompletionRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        let messages: Vec<Value> = fields.require("messages")?;
        fields.at("messages").ensure(!messages.is_empty(), "expected one message at least")?;
        let messages = messages.into_iter().enumerate().map(|(index, value)| message(index, value));
        let input = CompletionInput::Messages(messages.collect::<Result<_, _>>()?);
        let mut request = CompletionRequest::read(&mut fields, input)?;
        let options = &mut request.options;
        let top = fields.count("top_logprobs", None)?;
        options.logprobs = match (fields.take("logprobs")?.unwrap_or(false), top) {
            (true, top) => Some(top.unwrap_or(0)),
            (false, None | Some(0)) => None,
            (false, Some(_)) => return Err(fields.at("top_logprobs").wrong("expected logprobs to be true")),
        };
        request.has_functions = tools::read(&mut fields, options)?;
        options.chat.continue_final_message = fields.take("continue_final_message")?.unwrap_or(false);
        if options.chat.continue_final_message {
            let prompt = fields.take::<bool>("add_generation_prompt")?.unwrap_or(false);
            fields
                .at("add_generation_prompt")
                .ensure(!prompt, "continue_final_message is given too, expected false")?;
        }
        options.chat.variables = fields.take("chat_template_kwargs")?.unwrap_or_default();
        if let Some(name) = ["messages", "tools"].into_iter().find(|name| options.chat.variables.contains_key(*name)) {
            return Err(fields.at("chat_template_kwargs").wrong(format_args!("{name} is a field of the request")));
        }
        if let Some(effort) = fields.take::<String>("reasoning_effort")? {
            options.chat.variables.insert("reasoning_effort".into(), effort.into());
        }
        if let Some(thinks) = fields.take::<bool>("enable_thinking")? {
            options.chat.variables.insert("enable_thinking".into(), thinks.into());
        }
        let limit = fields.count("max_completion_tokens", Some(usize::MAX))?;
        options.max_tokens = limit.unwrap_or(options.max_tokens);
        fields.end()?;
        Ok(request)
    }

    /// Reads the body of a request of `completions`.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn text(body: &[u8]) -> Result<CompletionRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        let mut input = CompletionInput::take(&mut fields, "prompt")?;
        let suffix: Option<String> = fields.take("suffix")?;
        if let Some(suffix) = suffix.filter(|suffix| !suffix.is_empty()) {
            let CompletionInput::Texts(prefixes) = input else {
                return Err(fields.at("suffix").wrong("the prompt has ids, expected a text"));
            };
            input = CompletionInput::Infill { prefixes, suffix, files: Vec::new() };
        }
        let mut request = CompletionRequest::read(&mut fields, input)?;
        let options = &mut request.options;
        options.logprobs = fields.count("logprobs", None)?;
        request.echo = fields.take("echo")?.unwrap_or(false);
        request.logprobs.of_echo = options.logprobs.filter(|_| request.echo);
        if request.echo {
            let is_infill = matches!(request.input, CompletionInput::Infill { .. });
            fields.at("echo").ensure(!is_infill, "suffix is given too, expected false")?;
            options.prompt_logprobs = options.prompt_logprobs.max(options.logprobs);
        }
        request.best_of = fields.count("best_of", None)?.unwrap_or(request.n);
        let expected = format_args!("expected a whole number from n, which is {}, to {MAX_ANSWERS}", request.n);
        fields.at("best_of").ensure((request.n..=MAX_ANSWERS).contains(&request.best_of), expected)?;
        if request.best_of > request.n {
            fields.at("best_of").ensure(!request.stream, "the best are known at the end, expected no stream")?;
            request.logprobs.are_hidden = options.logprobs.is_none();
            options.logprobs = options.logprobs.or(Some(0));
        }
        fields.end()?;
        Ok(request)
    }

    /// Reads the fields that both kinds of requests have.
    pub(super) fn read(fields: &mut Fields, input: CompletionInput) -> Result<CompletionRequest, RequestError> {
        let limits = [fields.count("max_tokens", Some(usize::MAX))?, fields.count("n_predict", Some(usize::MAX))?];
        let mut options =
            GenerateOptions::default().max_tokens(limits.into_iter().flatten().min().unwrap_or(usize::MAX));
        options.stop = stops(fields, "stop")?;
        options.include_stop = fields.take("include_stop_str_in_output")?.unwrap_or(false);
        options.stop_tokens = fields.take("stop_token_ids")?.unwrap_or_default();
        options.thinking_budget = fields.one_count(&THINKING_BUDGET, Some(usize::MAX))?;
        options.ignore_stop = fields.take("ignore_eos")?.unwrap_or(false);
        options.cache_salt = fields.take("cache_salt")?;
        let is_salt = options.cache_salt.as_ref().is_none_or(|salt| SALT_BYTES.contains(&salt.len()));
        let [least, most] = [SALT_BYTES.start(), SALT_BYTES.end()];
        fields.at("cache_salt").ensure(is_salt, format_args!("expected a text of {least} to {most} bytes"))?;
        let sampling = &mut options.sampling;
        sampling.temperature = fields.take("temperature")?;
        sampling.top_p = fields.take("top_p")?;
        sampling.top_k = fields.count("top_k", Some(0))?;
        sampling.min_tokens = fields.count("min_tokens", None)?.unwrap_or_default();
        sampling.min_p = fields.take("min_p")?;
        sampling.repetition_penalty = fields.one_of(&["repetition_penalty", "repeat_penalty"])?;
        sampling.presence_penalty = fields.take("presence_penalty")?.unwrap_or_default();
        sampling.frequency_penalty = fields.take("frequency_penalty")?.unwrap_or_default();
        sampling.logit_bias = fields.take("logit_bias")?.unwrap_or_default();
        sampling.seed = fields.take::<i64>("seed")?.map(i64::cast_unsigned);
        llama_cpp_sampling(fields, sampling)?;
        options.grammar = grammar(fields)?;
        let [mut include_usage, mut continuous_usage] = [false; 2];
        if let Some(mut stream_options) = fields.object("stream_options")? {
            include_usage = stream_options.take("include_usage")?.unwrap_or(false);
            continuous_usage = stream_options.take("continuous_usage_stats")?.unwrap_or(false) && include_usage;
            stream_options.take::<bool>("include_obfuscation")?;
            stream_options.end()?;
        }
        let n = fields.count("n", None)?.unwrap_or(1);
        let expected = format_args!("expected a whole number from 1 to {MAX_ANSWERS}");
        fields.at("n").ensure((1..=MAX_ANSWERS).contains(&n), expected)?;
        let lora: Option<Vec<Lora>> = fields.take("lora")?;
        options.prompt_logprobs = fields.count("prompt_logprobs", None)?;
        let logprobs = LogProbFields { prompt: options.prompt_logprobs, ..LogProbFields::default() };
        Ok(CompletionRequest {
            model: fields.take("model")?,
            lora: lora.map(|lora| lora.into_iter().map(|Lora { id, scale }| (id, scale)).collect()),
            input,
            n,
            best_of: n,
            echo: false,
            logprobs,
            stream: fields.take("stream")?.unwrap_or(false),
            include_usage,
            continuous_usage,
            has_functions: false,
            options,
            details: false,
            text_bias: Vec::new(),
        })
    }

    /// Whether there are images in it, which [`generations`](Self::generations) computes before it returns.
    pub fn has_images(&self) -> bool {
        self.input.prompts().iter().flatten().any(Prompt::has_images)
    }

    /// The number of all answers that are computed: [`best_of`](Self::best_of) to each prompt.
    pub fn answers(&self) -> usize {
        self.input.count().saturating_mul(self.best_of)
    }

    /// Renders and tokenizes the prompts ahead of [`generations`](Self::generations), which then only compiles the grammar. The
    /// [`input`](Self::input) is ids afterwards, so make a [`ChunkBuilder`](super::ChunkBuilder) before that.
    ///
    /// # Errors
    /// The errors of [`Model::generations`] about its prompt.
    pub fn tokenize(&mut self, model: &Model) -> model_factory::Result<()> {
        for (text, bias) in std::mem::take(&mut self.text_bias) {
            let ids = model.tokenizer().encode(&text, false)?;
            self.options.sampling.logit_bias.extend(ids.into_iter().map(|id| (id, bias)));
        }
        if let CompletionInput::Ids(ids) = &self.input {
            return self.bound_logprobs(ids);
        }
        // Images are computed with their generations.
        if self.has_images() {
            return Ok(());
        }
        let ids = self.ids(model)?;
        if matches!(self.input, CompletionInput::Infill { .. }) && !self.options.ignore_stop {
            self.options.stop_tokens.extend(model.tokenizer().infill_stops());
        }
        self.bound_logprobs(&ids)?;
        self.input = CompletionInput::Ids(ids);
        Ok(())
    }

    /// The ids of each prompt.
    fn ids(&self, model: &Model) -> model_factory::Result<Vec<Vec<u32>>> {
        let (limit, tokenizer) = (model.context_length(), model.tokenizer());
        match &self.input {
            CompletionInput::Mixed(prompts) => prompts.iter().map(|parts| joined(parts, tokenizer, limit)).collect(),
            CompletionInput::Infill { prefixes, suffix, files } => {
                let ids = |prefix: &String| {
                    let (text, spans) = tokenizer.infill_prompt_after(files, prefix, suffix)?;
                    let asked = tokenizer.least_tokens(&text);
                    if asked > limit {
                        return Err(Error::ContextOverflow { limit, asked });
                    }
                    Ok(tokenizer.encode_prompt_within(&text, &spans)?)
                };
                prefixes.iter().map(ids).collect()
            }
            input => {
                let options = self.options.template_options();
                let ids = |prompt| model.prompt_ids_within(prompt, &options, limit).map(Cow::into_owned);
                input.prompts().into_iter().flatten().map(ids).collect()
            }
        }
    }

    /// Refuses more log-probabilities of prompts than an answer should have: each takes up to a kilobyte of memory for a moment.
    fn bound_logprobs(&self, prompts: &[Vec<u32>]) -> model_factory::Result<()> {
        let Some(top) = self.options.prompt_logprobs else { return Ok(()) };
        let tokens: usize = prompts.iter().map(Vec::len).sum();
        let value = tokens.saturating_mul(top + 1).saturating_mul(self.best_of);
        if value <= MOST_PROMPT_LOGPROBS {
            return Ok(());
        }
        let expected = "at most 131072 log-probabilities of all prompts together, n times; ask for fewer, or for fewer prompts at once";
        Err(Error::Option { option: "prompt_logprobs", value: value as f64, expected })
    }

    /// The tokens of all prompts, with those that hold the places of images, of which only the sizes are read.
    ///
    /// # Errors
    /// The errors of [`Model::generations`] about its prompt.
    pub fn input_tokens(&self, model: &Model) -> model_factory::Result<usize> {
        Ok(self.ids(model)?.iter().map(Vec::len).sum())
    }

    /// A generation for each answer; those of a prompt run together. Takes as long as tokenizing prompts and compiling a grammar.
    ///
    /// # Errors
    /// The errors of [`Model::generations`].
    pub fn generations(&self, model: &Model) -> model_factory::Result<Vec<Generation<Session>>> {
        let of = |prompt| model.generations(prompt, self.best_of, &self.options);
        let Some(prompts) = self.input.prompts().filter(|_| self.text_bias.is_empty()) else {
            let mut request = self.clone();
            request.tokenize(model)?;
            return request.generations(model);
        };
        Ok(prompts.into_iter().map(of).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// The stop strings in the field `name`.
pub(super) fn stops(fields: &mut Fields, name: &str) -> Result<Vec<String>, RequestError> {
    let stops = fields.texts(name)?.unwrap_or_default();
    let bytes: usize = stops.iter().map(String::len).sum();
    let expected = format_args!("expected {MOST_STOPS} texts at most, together of {MOST_STOP_BYTES} bytes");
    fields.at(name).ensure(stops.len() <= MOST_STOPS && bytes <= MOST_STOP_BYTES, expected)?;
    Ok(stops)
}
