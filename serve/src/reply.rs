//! Streams of pieces -> the JSON of an answer, whole or as events. A whole answer is its chunks put together.

use crate::error::{self, Refusal};
use crate::metrics::Metrics;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream, SelectAll, Stream, StreamExt};
use model_factory::generate::Timings;
use model_factory::{AnswerDelta, AnswerReader, Error, FinishReason, GenerationStream, LogProbs, Model, ToolCall};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two signs of life of a stream that has nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Which of OpenAI's answers it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Text,
}

/// What is said of a request in each chunk of its answer.
pub(crate) struct Head {
    pub(crate) form: Form,
    /// The field of the request that is its prompt.
    pub(crate) input: &'static str,
    pub(crate) model: String,
    pub(crate) arrived: Instant,
    /// Answers to each prompt.
    pub(crate) n: usize,
    pub(crate) include_usage: bool,
}

/// An answer as it comes; dropping it cancels what is generated.
pub(crate) struct Reply<P> {
    head: Head,
    id: String,
    created: u64,
    parts: SelectAll<BoxStream<'static, Result<Part, Error>>>,
    begun: bool,
    usage: Usage,
    metrics: Arc<Metrics>,
    /// Its place in the queue, until the last token.
    place: Option<P>,
    /// Events behind the last part.
    tail: Option<std::vec::IntoIter<String>>,
}

/// What came with a piece: a choice of a chunk, and with the last one what it took.
struct Part {
    choice: Value,
    /// How long it took, and its tokens of thought.
    end: Option<(Timings, usize)>,
}

/// What an answer took.
#[derive(Default)]
struct Usage {
    prompt: usize,
    cached: usize,
    generated: usize,
    /// Tokens of thought.
    reasoning: usize,
    /// Of the last choice that ended.
    timings: Timings,
}

impl<P: Send + 'static> Reply<P> {
    pub(crate) fn new(
        head: Head,
        streams: Vec<GenerationStream>,
        model: &Model,
        metrics: Arc<Metrics>,
        place: P,
    ) -> Reply<P> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let kind = if head.form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let id = format!("{kind}-{:x}-{:x}", now.as_micros(), COUNT.fetch_add(1, Ordering::Relaxed));
        let parts = streams.into_iter().enumerate().map(|(index, stream)| {
            let (form, model, reader) = (head.form, model.clone(), AnswerReader::default());
            let choice = Choice { index, form, model, reader, said: None, calls: 0, reasoning: 0 };
            choice.parts(stream).boxed()
        });
        let parts = stream::select_all(parts);
        Reply {
            head,
            id,
            created: now.as_secs(),
            parts,
            begun: false,
            usage: Usage::default(),
            metrics,
            place: Some(place),
            tail: None,
        }
    }

    /// The next choice of a chunk, with its index.
    async fn part(&mut self) -> Option<Result<(usize, Value), Error>> {
        let Part { choice, end } = match self.parts.next().await? {
            Ok(part) => part,
            Err(error) => return Some(Err(error)),
        };
        let index = choice["index"].as_u64().unwrap_or_default() as usize;
        if !std::mem::replace(&mut self.begun, true) {
            self.metrics.first_token(self.head.arrived.elapsed());
        }
        if let Some(end) = end {
            self.metrics.ended(&end.0);
            self.usage.add(end, index.is_multiple_of(self.head.n));
        }
        Some(Ok((index, choice)))
    }

    /// The whole answer.
    pub(crate) async fn whole(mut self) -> Result<Response, Refusal> {
        let empty = if self.head.form == Form::Chat { json!({ "delta": { "content": null } }) } else { json!({}) };
        let mut choices = vec![empty; self.parts.len()];
        while let Some(part) = self.part().await {
            let (index, choice) = part.map_err(|error| Refusal::of(&error, self.head.input))?;
            append(&mut choices[index], choice);
        }
        for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(mut message) = choice.remove("delta") {
                let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
                    call.remove("index");
                }
                choice.insert("message".into(), message);
            }
        }
        let mut answer = self.chunk(choices.into());
        answer["object"] = if self.head.form == Form::Chat { "chat.completion" } else { "text_completion" }.into();
        (answer["usage"], answer["timings"]) = (self.usage.json(), self.usage.timings());
        Ok(error::json(StatusCode::OK, &answer))
    }

    /// The answer as events, each as it comes.
    pub(crate) fn events(self) -> Response {
        let events = stream::unfold(self, |mut reply| async {
            let event = reply.event().await?;
            Some((Ok::<_, Infallible>(Event::default().data(event)), reply))
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
    }

    async fn event(&mut self) -> Option<String> {
        if let Some(tail) = &mut self.tail {
            return tail.next();
        }
        let (event, tail) = match self.part().await {
            Some(Ok((_, choice))) => return Some(self.chunk(json!([choice])).to_string()),
            Some(Err(error)) => (Refusal::of(&error, self.head.input).json().to_string(), vec![]),
            None if self.head.include_usage => {
                let mut usage = self.chunk(json!([]));
                (usage["usage"], usage["timings"]) = (self.usage.json(), self.usage.timings());
                (usage.to_string(), vec!["[DONE]".into()])
            }
            None => ("[DONE]".into(), vec![]),
        };
        (self.tail, self.place) = (Some(tail.into_iter()), None);
        Some(event)
    }

    fn chunk(&self, choices: Value) -> Value {
        let object = if self.head.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" };
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.head.model, "choices": choices })
    }
}

/// One answer of several.
struct Choice {
    index: usize,
    form: Form,
    model: Model,
    reader: AnswerReader,
    /// Characters of its text so far; `None` before its first part.
    said: Option<usize>,
    calls: usize,
    /// Tokens of thought.
    reasoning: usize,
}

impl Choice {
    /// Its parts: one for each piece that says something, and the end.
    fn parts(self, stream: GenerationStream) -> impl Stream<Item = Result<Part, Error>> + Send + 'static {
        stream::try_unfold(Some((self, stream)), |state| async {
            let Some((mut choice, mut stream)) = state else { return Ok(None) };
            while let Some(piece) = stream.next().await {
                let mut piece = piece?;
                choice.reasoning += usize::from(piece.thinking && piece.token.is_some());
                // A text that is continued has no thought apart.
                piece.thinking &= choice.form == Form::Chat;
                let token = piece.token.zip(piece.logprobs.take()).filter(|_| !piece.thinking);
                let delta = choice.reader.push(piece);
                if token.is_some() || delta != AnswerDelta::default() {
                    let part = Part { choice: choice.json(delta, token, None), end: None };
                    return Ok(Some((part, Some((choice, stream)))));
                }
            }
            let (Some(reason), timings) = stream.finish() else { return Ok(None) };
            let delta = choice.reader.finish();
            let reason = match reason {
                FinishReason::Cancelled => return Err(Error::Cancelled),
                _ if choice.calls > 0 => "tool_calls",
                FinishReason::Length | FinishReason::Context => "length",
                _ => "stop",
            };
            Ok(Some((
                Part { choice: choice.json(delta, None, Some(reason)), end: Some((timings, choice.reasoning)) },
                None,
            )))
        })
    }

    fn json(&mut self, delta: AnswerDelta, token: Option<(u32, LogProbs)>, finish_reason: Option<&str>) -> Value {
        let mut choice = json!({ "index": self.index, "logprobs": null, "finish_reason": finish_reason });
        let logprobs = token.map(|(id, of)| match self.form {
            Form::Chat => {
                let top: Vec<Value> = of.top.iter().map(|(id, logprob)| self.token(*id, *logprob)).collect();
                let mut token = self.token(id, of.chosen);
                token["top_logprobs"] = top.into();
                json!({ "content": [token] })
            }
            Form::Text => {
                let top: Map<String, Value> = of.top.iter().map(|(id, logprob)| (self.token_text(*id), (*logprob).into())).collect();
                let offset = self.said.unwrap_or(0);
                json!({ "tokens": [self.token_text(id)], "token_logprobs": [of.chosen], "top_logprobs": [top], "text_offset": [offset] })
            }
        });
        choice["logprobs"] = logprobs.into();
        let first = self.said.is_none();
        *self.said.get_or_insert(0) += delta.text.chars().count();
        if self.form == Form::Text {
            choice["text"] = delta.text.into();
            return choice;
        }
        let texts = [("content", delta.text), ("reasoning_content", delta.thinking)];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.into()));
        let calls = delta.tool_call.map(|call| ("tool_calls", json!([self.call(&call)])));
        let role = first.then(|| ("role", "assistant".into()));
        let said = role.into_iter().chain(texts).chain(calls).map(|(name, value)| (name.to_owned(), value));
        choice["delta"] = Value::Object(said.collect());
        choice
    }

    /// A token of a chat's log-probabilities; `id` as llama.cpp's server has it.
    fn token(&self, id: u32, logprob: f64) -> Value {
        let bytes = self.model.tokenizer().token_bytes(id);
        json!({ "id": id, "token": self.token_text(id), "bytes": bytes, "logprob": logprob })
    }

    /// What a token adds to a text, or the name of one that adds nothing.
    fn token_text(&self, id: u32) -> String {
        let tokenizer = self.model.tokenizer();
        match tokenizer.token_bytes(id).unwrap_or_default() {
            [] => tokenizer.token_text(id).unwrap_or_default(),
            bytes => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let arguments = Value::Object(call.arguments.clone()).to_string();
        let function = json!({ "name": call.name, "arguments": arguments });
        self.calls += 1;
        json!({ "index": self.calls - 1, "id": call.id, "type": "function", "function": function })
    }
}

impl Usage {
    /// Adds a choice; the prompt of those that share one counts once.
    fn add(&mut self, (timings, reasoning): (Timings, usize), counts_prompt: bool) {
        if counts_prompt {
            self.prompt += timings.prompt_tokens + timings.cached_tokens;
            self.cached += timings.cached_tokens;
        }
        self.generated += timings.generated;
        self.reasoning += reasoning;
        self.timings = timings;
    }

    fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": { "cached_tokens": self.cached },
            "completion_tokens_details": { "reasoning_tokens": self.reasoning },
        })
    }

    /// What only this server tells, by the names of llama.cpp's.
    fn timings(&self) -> Value {
        let Timings { prompt_tokens, cached_tokens, prefill, generated, decode, seed, .. } = self.timings;
        json!({
            "cache_n": cached_tokens,
            "prompt_n": prompt_tokens,
            "prompt_ms": prefill.as_secs_f64() * 1e3,
            "predicted_n": generated,
            "predicted_ms": decode.as_secs_f64() * 1e3,
            "predicted_per_second": self.timings.tokens_per_second(),
            "seed": seed,
        })
    }
}

/// Appends to `whole` what a chunk adds to it: to texts and lists what follows, in objects by name; all else is replaced.
fn append(whole: &mut Value, chunk: Value) {
    match (whole, chunk) {
        (Value::String(whole), Value::String(more)) => whole.push_str(&more),
        (Value::Array(whole), Value::Array(more)) => whole.extend(more),
        (Value::Object(whole), Value::Object(more)) => {
            for (name, value) in more {
                append(whole.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (whole, value) => *whole = value,
    }
}
