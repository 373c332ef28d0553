//! Pieces of generations -> the JSON of an answer, whole or in chunks.

use super::request::{CompletionInput, CompletionRequest, LogProbFields};
use super::tokens::text_of;
use model_factory::generate::Timings;
use model_factory::generate::{AnswerDelta, AnswerReader, LogProbs};
use model_factory::tokenizer::Tokenizer;
use model_factory::{Error, FinishReason, Model, Piece, Result};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The field with the mean log-probability of an answer, until the best are known.
const LIKELY: &str = "mean_logprob";

/// Pieces of the generations of a request -> chunks of its answer in OpenAI's form: objects `chat.completion.chunk` or
/// `text_completion` with one choice each. Without streaming they are parts of a `chat.completion`, which [`append`]
/// puts together.
#[derive(Debug)]
pub struct ChunkBuilder {
    /// The fields that all chunks have.
    head: Value,
    is_chat: bool,
    is_stream: bool,
    /// Whether a call is `function_call`, the form before tools.
    has_functions: bool,
    /// The prompt's tokens and those so far, where each chunk has them; `None` inside where only the last chunk has the usage.
    usage_so_far: Option<Option<[usize; 2]>>,
    /// The stop strings of the request.
    stop: Vec<String>,
    stop_tokens: Vec<u32>,
    /// How many answers are computed for each prompt, and how many of them are the answer.
    n: usize,
    best: usize,
    /// Whether the answer begins with its prompt, and the texts of the prompts.
    echo: Option<Vec<String>>,
    /// The ids of the prompts, where something of them is in the answer.
    prompts: Vec<Vec<u32>>,
    logprobs: LogProbFields,
    /// Whether a stop token that ends an answer has a piece.
    gives_stop: bool,
    /// Whether chunks have what only other APIs say.
    details: bool,
    tokenizer: Arc<Tokenizer>,
    choices: Vec<Choice>,
    prompt: usize,
    cached: usize,
    generated: usize,
    /// The number of reasoning tokens.
    reasoning: usize,
    /// The timings of the choice that ended last.
    timings: Timings,
}

#[derive(Debug, Default)]
struct Choice {
    reader: AnswerReader,
    /// The number of characters of its text so far; `None` before its first part.
    said: Option<usize>,
    calls: usize,
    reasoning: usize,
    /// Tokens that the usage so far does not have yet.
    uncounted: usize,
    /// The sum of the log-probabilities of its tokens, where they are known, their number, and the last.
    likely: (f64, usize, f64),
}

impl ChunkBuilder {
    /// Chunks of the answer to `request`, by the model that clients know as `name`.
    pub fn new(request: &CompletionRequest, model: &Model, name: &str) -> ChunkBuilder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_chat = matches!(request.input, CompletionInput::Messages(_));
        let (kind, object) = match (is_chat, request.stream) {
            (true, true) => ("chatcmpl", "chat.completion.chunk"),
            (true, false) => ("chatcmpl", "chat.completion"),
            (false, _) => ("cmpl", "text_completion"),
        };
        let id = format!("{kind}-{:x}-{:x}", now.as_micros(), COUNT.fetch_add(1, Ordering::Relaxed));
        let fingerprint = model.system_fingerprint();
        let head = json!({
            "id": id, "object": object, "created": now.as_secs(), "model": name, "system_fingerprint": fingerprint,
        });
        ChunkBuilder {
            head,
            is_chat,
            is_stream: request.stream,
            has_functions: request.has_functions,
            usage_so_far: (request.stream && request.include_usage)
                .then_some(request.continuous_usage.then_some([0, 0])),
            stop: request.options.stop.clone(),
            stop_tokens: request.options.stop_tokens.clone(),
            n: request.best_of.max(1),
            best: request.n,
            echo: request.echo.then(|| texts(&request.input, model.tokenizer())),
            prompts: Vec::new(),
            logprobs: request.logprobs,
            gives_stop: request.options.prompt_logprobs.is_some(),
            details: request.details,
            tokenizer: Arc::clone(model.tokenizer()),
            choices: (0..request.answers()).map(|_| Choice::default()).collect(),
            prompt: 0,
            cached: 0,
            generated: 0,
            reasoning: 0,
            timings: Timings::default(),
        }
    }

    /// Takes the ids of the prompts of `request`, once they are ids, where chunks have something of them.
    pub fn with_prompts(&mut self, request: &CompletionRequest) {
        if let (Some(Some([prompt, _])), CompletionInput::Ids(prompts)) = (&mut self.usage_so_far, &request.input) {
            *prompt = prompts.iter().map(Vec::len).sum();
        }
        let has_some = request.options.prompt_logprobs.is_some() || self.details;
        if let (true, CompletionInput::Ids(prompts)) = (has_some, &request.input) {
            self.prompts.clone_from(prompts);
        }
    }

    /// The chunk of a piece of the generation of this index; `None` if the chunk would be empty.
    ///
    /// # Panics
    /// If the request has no answer of this index.
    pub fn push(&mut self, index: usize, mut piece: Piece) -> Option<Value> {
        if let Some(Some([_, tokens])) = &mut self.usage_so_far {
            // A token without a text may be the stop token, which is not counted: the next piece or the end tells.
            let has_token = usize::from(piece.token.is_some());
            let of_stop = if self.gives_stop && piece.text.is_empty() { has_token } else { 0 };
            let before = std::mem::replace(&mut self.choices[index].uncounted, of_stop);
            *tokens += before + has_token - of_stop;
        }
        if let Some(of_prompt) = piece.prompt_logprobs.take() {
            return Some(self.of_prompt(index, &of_prompt));
        }
        let choice = &mut self.choices[index];
        choice.reasoning += usize::from(piece.thinking && piece.token.is_some());
        // The answer to a text prompt has no separate thoughts.
        piece.thinking &= self.is_chat;
        let (id, token) = (piece.token.filter(|_| self.details), piece.token.zip(piece.logprobs.take()));
        if let Some((_, of)) = &token {
            choice.likely = (choice.likely.0 + of.chosen, choice.likely.1 + 1, of.chosen);
        }
        let token = token.filter(|_| !piece.thinking && !self.logprobs.are_hidden);
        let delta = choice.reader.push(piece);
        let says = token.is_some() || id.is_some() || delta != AnswerDelta::default();
        let mut chunk = says.then(|| self.chunk(index, delta, token, None));
        if let (Some(id), Some(chunk)) = (id, &mut chunk) {
            chunk["choices"][0]["token_ids"] = json!([id]);
        }
        chunk
    }

    /// The last chunk of the generation of this index, from the result of [`finish`](model_factory::Generation::finish).
    ///
    /// # Errors
    /// `Cancelled` if it was cancelled, or did not come to its end.
    ///
    /// # Panics
    /// If the request has no answer of this index.
    pub fn last_chunk(&mut self, index: usize, (reason, timings): (Option<FinishReason>, Timings)) -> Result<Value> {
        let choice = &mut self.choices[index];
        // What ended it, as in vLLM: a stop string, or a token that the request names.
        let stop: Value = match reason {
            Some(FinishReason::StopString(which)) => self.stop.get(which).cloned().into(),
            Some(FinishReason::Stop(token)) if self.stop_tokens.contains(&token) => token.into(),
            _ => Value::Null,
        };
        let ended_by_stop = matches!(reason, Some(FinishReason::Stop(_)));
        let is_full = matches!(reason, Some(FinishReason::Context));
        let reason = match reason {
            None | Some(FinishReason::Cancelled) => return Err(Error::Cancelled),
            Some(FinishReason::Length | FinishReason::Context) => "length",
            _ if choice.calls > 0 && self.has_functions => "function_call",
            _ if choice.calls > 0 => "tool_calls",
            Some(_) => "stop",
        };
        // The prompt is counted only once for all its answers.
        if index.is_multiple_of(self.n) {
            self.prompt += timings.prompt_tokens + timings.cached_tokens;
            self.cached += timings.cached_tokens;
        }
        self.generated += timings.generated;
        self.reasoning += choice.reasoning;
        self.timings = timings;
        let uncounted = if ended_by_stop { 0 } else { std::mem::take(&mut choice.uncounted) };
        if let Some(Some([_, tokens])) = &mut self.usage_so_far {
            *tokens += uncounted;
        }
        let delta = choice.reader.flush();
        let mut chunk = self.chunk(index, delta, None, Some(reason));
        chunk["choices"][0]["stop_reason"] = stop;
        if self.details {
            let prompt = self
                .prompts
                .get(index / self.n)
                .filter(|_| index.is_multiple_of(self.n))
                .map(|ids| text_of(&self.tokenizer, ids));
            let details = json!({ "prompt": prompt, "truncated": is_full, "timings": timings_json(&self.timings) });
            chunk["choices"][0]["details"] = details;
        }
        if self.best < self.n {
            let (mut sum, mut tokens, last) = self.choices[index].likely;
            if ended_by_stop && self.gives_stop {
                (sum, tokens) = (sum - last, tokens.saturating_sub(1));
            }
            // An answer without tokens is the least likely.
            if tokens > 0 {
                chunk["choices"][0][LIKELY] = (sum / tokens as f64).into();
            }
        }
        Ok(chunk)
    }

    /// A chunk without choices that has the `usage` of all choices, and the `timings` of the last one, as in llama.cpp's server. It
    /// is the end of a stream if [`CompletionRequest::include_usage`] asks for it.
    pub fn usage(&self) -> Value {
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([]);
        chunk["usage"] = json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": { "cached_tokens": self.cached },
            "completion_tokens_details": { "reasoning_tokens": self.reasoning },
        });
        chunk["timings"] = timings_json(&self.timings);
        chunk
    }

    /// A whole answer that is still empty: [`append`] all chunks to it, and the usage.
    pub fn whole(&self) -> Value {
        let empty = if self.is_chat { json!({ "message": { "content": null, "refusal": null } }) } else { json!({}) };
        self.with_choices(vec![empty; self.choices.len()].into())
    }

    fn with_choices(&self, choices: Value) -> Value {
        let mut chunk = self.head.clone();
        chunk["choices"] = choices;
        if let Some(so_far) = self.usage_so_far {
            let usage = |[prompt, tokens]: [usize; 2]| json!({ "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens });
            chunk["usage"] = so_far.map(usage).into();
        }
        chunk
    }

    fn chunk(
        &mut self,
        index: usize,
        delta: AnswerDelta,
        token: Option<(u32, LogProbs)>,
        finish_reason: Option<&str>,
    ) -> Value {
        let said = self.choices[index].said;
        let logprobs = token.map(|(id, of)| self.logprobs(id, &of, said.unwrap_or(0)));
        let mut chunk = json!({ "index": index, "logprobs": logprobs, "finish_reason": finish_reason });
        let choice = &mut self.choices[index];
        if !self.is_chat {
            let echo = self.echo.as_ref().filter(|_| said.is_none()).map(|texts| &*texts[index / self.n]);
            let text = [echo.unwrap_or_default(), &delta.text].concat();
            choice.said = Some(said.unwrap_or(0) + text.chars().count());
            chunk["text"] = text.into();
            return self.with_choices(json!([chunk]));
        }
        choice.said = Some(said.unwrap_or(0) + delta.text.chars().count());
        let mut message = Map::new();
        if said.is_none() {
            message.insert("role".into(), "assistant".into());
        }
        for (name, text) in [("content", delta.text), ("reasoning_content", delta.thinking)] {
            if !text.is_empty() {
                message.insert(name.into(), text.into());
            }
        }
        if let Some(call) = delta.tool_call {
            let function = json!({ "name": call.name, "arguments": call.arguments_json() });
            if self.has_functions {
                message.insert("function_call".into(), function);
            } else {
                let mut json = json!({ "id": call.id, "type": "function", "function": function });
                if self.is_stream {
                    json["index"] = choice.calls.into();
                }
                message.insert("tool_calls".into(), json!([json]));
            }
            choice.calls += 1;
        }
        chunk[if self.is_stream { "delta" } else { "message" }] = message.into();
        self.with_choices(json!([chunk]))
    }

    /// The chunk of a prompt whose log-probabilities are known: its text, if the answer begins with it.
    fn of_prompt(&mut self, index: usize, of: &[LogProbs]) -> Value {
        let mut chunk = self.chunk(index, AnswerDelta::default(), None, None);
        let ids = self.prompts.get(index / self.n).map(Vec::as_slice).unwrap_or_default();
        let first = |of: &LogProbs, most: usize| LogProbs::new(of.chosen, of.top[..most.min(of.top.len())].to_vec());
        if let Some(most) = self.logprobs.of_echo {
            let mut parts = json!({ "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": [] });
            let (mut decoder, mut offset) = (self.tokenizer.stream(), 0);
            for (id, of) in ids.iter().zip(std::iter::once(None).chain(of.iter().map(Some))) {
                extend(&mut parts, self.token_parts(*id, of.map(|of| first(of, most)).as_ref(), offset));
                let mut text = String::new();
                decoder.push(self.tokenizer.token_bytes(*id).unwrap_or_default(), &mut text);
                offset += text.chars().count();
            }
            chunk["choices"][0]["logprobs"] = parts;
        }
        if let Some(most) = self.logprobs.prompt {
            let each = ids.iter().skip(1).zip(of).map(|(id, of)| {
                let entry = |rank: Option<usize>, (id, logprob): (u32, f64)| {
                    let of = json!({ "logprob": logprob, "rank": rank, "decoded_token": self.token_text(id) });
                    (id.to_string(), of)
                };
                let of = first(of, most);
                let chosen =
                    entry(of.top.iter().position(|(top, _)| top == id).map(|place| place + 1), (*id, of.chosen));
                let top = of.top.iter().enumerate().map(|(place, top)| entry(Some(place + 1), *top));
                Value::Object(top.chain([chosen]).collect())
            });
            let all: Value = std::iter::once(Value::Null).chain(each).collect();
            let of = if self.is_chat { &mut chunk } else { &mut chunk["choices"][0] };
            of["prompt_logprobs"] = all;
        }
        chunk
    }

    fn logprobs(&self, id: u32, of: &LogProbs, offset: usize) -> Value {
        if self.is_chat || self.details {
            let mut token = self.token(id, of.chosen);
            token["top_logprobs"] = of.top.iter().map(|(id, logprob)| self.token(*id, *logprob)).collect();
            return json!({ "content": [token] });
        }
        self.token_parts(id, Some(of), offset)
    }

    /// A token in the log-probabilities of a text; nothing predicts the first of a prompt.
    fn token_parts(&self, id: u32, of: Option<&LogProbs>, offset: usize) -> Value {
        let top = of.map(|of| of.top.iter().map(|(id, p)| (self.token_text(*id), (*p).into())).collect::<Map<_, _>>());
        let (token, logprob) = (self.token_text(id), of.map(|of| of.chosen));
        json!({ "tokens": [token], "token_logprobs": [logprob], "top_logprobs": [top], "text_offset": [offset] })
    }

    /// A token in a chat's log-probabilities, with its `id` as in llama.cpp's server.
    fn token(&self, id: u32, logprob: f64) -> Value {
        let bytes = self.tokenizer.token_bytes(id);
        json!({ "id": id, "token": self.token_text(id), "bytes": bytes, "logprob": logprob })
    }

    /// The text that a token adds, or its name if it adds none.
    fn token_text(&self, id: u32) -> String {
        match self.tokenizer.token_bytes(id).unwrap_or_default() {
            [] => self.tokenizer.token_text(id).unwrap_or_default(),
            bytes => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// Appends a chunk to [`ChunkBuilder::whole`]. Values that are not chunks of the same answer are ignored.
pub fn append(whole: &mut Value, mut chunk: Value) {
    for choice in chunk.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
        let index = choice["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        if let Some(whole) = index.and_then(|index| whole.get_mut("choices")?.get_mut(index)) {
            extend(whole, choice.take());
        }
    }
    for name in ["prompt_logprobs", "usage", "timings"] {
        if let (Some(value), Some(whole)) = (chunk.get_mut(name), whole.as_object_mut()) {
            whole.insert(name.into(), value.take());
        }
    }
}

/// Keeps of every `of` answers of [`ChunkBuilder::whole`] the `n` whose tokens are the most likely, in that order.
pub fn keep_best(whole: &mut Value, n: usize, of: usize) {
    let Some(choices) = whole.get_mut("choices").and_then(Value::as_array_mut).filter(|_| n < of) else { return };
    let likely = |choice: &Value| choice[LIKELY].as_f64().unwrap_or(f64::NEG_INFINITY);
    let mut best = Vec::new();
    for group in choices.chunks_mut(of) {
        group.sort_by(|a, b| likely(b).total_cmp(&likely(a))); // the first of equals comes first
        for choice in group.iter_mut().take(n) {
            let mut choice = choice.take();
            choice["index"] = best.len().into();
            choice.as_object_mut().map(|choice| choice.remove(LIKELY));
            best.push(choice);
        }
    }
    *choices = best;
}

/// Timings by the names of llama.cpp's server, with the seed.
fn timings_json(timings: &Timings) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let each = |ms: f64, count: usize| if count == 0 { 0.0 } else { ms / count as f64 };
    let (prompt, predicted) = (ms(timings.prefill), ms(timings.decode));
    json!({
        "cache_n": timings.cached_tokens,
        "prompt_n": timings.prompt_tokens,
        "prompt_ms": prompt,
        "prompt_per_token_ms": each(prompt, timings.prompt_tokens),
        "prompt_per_second": timings.prompt_tokens_per_second(),
        "predicted_n": timings.generated,
        "predicted_ms": predicted,
        "predicted_per_token_ms": each(predicted, timings.decode_steps),
        "predicted_per_second": timings.tokens_per_second(),
        "seed": timings.seed,
    })
}

/// The texts of prompts; those of ids as they are decoded.
fn texts(input: &CompletionInput, tokenizer: &Tokenizer) -> Vec<String> {
    match input {
        CompletionInput::Texts(texts) => texts.clone(),
        CompletionInput::Ids(prompts) => prompts.iter().map(|ids| tokenizer.decode(ids)).collect(),
        CompletionInput::Messages(_) | CompletionInput::Infill { .. } | CompletionInput::Mixed(_) => Vec::new(),
    }
}

/// Appends to texts and lists, and to objects by name; everything else is replaced.
fn extend(whole: &mut Value, more: Value) {
    match (whole, more) {
        (Value::String(whole), Value::String(more)) => whole.push_str(&more),
        (Value::Array(whole), Value::Array(more)) => whole.extend(more),
        (Value::Object(whole), Value::Object(more)) => {
            for (name, value) in more {
                extend(whole.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (whole, value) => *whole = value,
    }
}
