//! Chunks of an answer in OpenAI's form -> the lines of a stream of Ollama's, or its one line.

use crate::error::ApiError;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Chunks of a [`ChunkBuilder`](crate::ChunkBuilder) -> lines, each an object.
#[derive(Debug)]
pub struct LineBuilder {
    /// Whether the text is a message of `/api/chat`, and not the `response` of `/api/generate`.
    is_chat: bool,
    begun: Instant,
    reason: &'static str,
}

impl LineBuilder {
    /// Lines of `/api/chat`, or of `/api/generate`.
    pub fn new(is_chat: bool) -> LineBuilder {
        LineBuilder { is_chat, begun: Instant::now(), reason: "stop" }
    }

    /// The line of a chunk, if it says something. The last one, with the usage and no choice, ends the stream.
    pub fn push(&mut self, chunk: &Value) -> Option<Value> {
        let Some(choice) = chunk.pointer("/choices/0") else {
            let line = self.line(chunk, &json!({}));
            return Some(self.done(line, chunk));
        };
        if choice["finish_reason"] == "length" {
            self.reason = "length";
        }
        let delta = choice.get("delta").or(choice.get("message")).unwrap_or(choice);
        let says = |name: &str| delta[name].as_str().is_some_and(|text| !text.is_empty());
        let is_said = says("content") || says("text") || says("reasoning_content") || delta["tool_calls"].is_array();
        if !is_said && choice["logprobs"].is_null() {
            return None;
        }
        let mut line = self.line(chunk, delta);
        if let Some(logprobs) = logprobs(choice) {
            line["logprobs"] = logprobs;
        }
        Some(line)
    }

    /// The line of a whole answer, which [`append`](crate::append) put together.
    pub fn whole(&mut self, answer: &Value) -> Value {
        let choice = &answer["choices"][0];
        if choice["finish_reason"] == "length" {
            self.reason = "length";
        }
        let mut line = self.line(answer, choice.get("message").unwrap_or(choice));
        if let Some(logprobs) = logprobs(choice) {
            line["logprobs"] = logprobs;
        }
        self.done(line, answer)
    }

    /// A line of what a message says; of a text that is continued it is `text`.
    fn line(&self, chunk: &Value, said: &Value) -> Value {
        let text = said["content"].as_str().or(said["text"].as_str()).unwrap_or_default();
        let mut line =
            json!({ "model": chunk["model"], "created_at": time(chunk["created"].as_u64().unwrap_or_default()) });
        let place = if self.is_chat {
            line["message"] = json!({ "role": "assistant", "content": text });
            &mut line["message"]
        } else {
            line["response"] = text.into();
            &mut line
        };
        if let Some(thought) = said["reasoning_content"].as_str() {
            place["thinking"] = thought.into();
        }
        if let Some(calls) = said["tool_calls"].as_array() {
            place["tool_calls"] = calls.iter().map(call).collect();
        }
        line["done"] = false.into();
        line
    }

    fn done(&self, mut line: Value, chunk: &Value) -> Value {
        let nanoseconds = |name: &str| (chunk["timings"][name].as_f64().unwrap_or_default() * 1e6) as u64;
        line["done"] = true.into();
        line["done_reason"] = self.reason.into();
        line["total_duration"] = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).into();
        line["load_duration"] = 0.into(); // it was loaded when the server began
        line["prompt_eval_count"] = chunk["usage"]["prompt_tokens"].clone();
        line["prompt_eval_duration"] = nanoseconds("prompt_ms").into();
        line["eval_count"] = chunk["usage"]["completion_tokens"].clone();
        line["eval_duration"] = nanoseconds("predicted_ms").into();
        line
    }
}

/// A call, whose arguments are an object. Those of a model that are no object stay text.
fn call(call: &Value) -> Value {
    let (name, arguments) = (&call["function"]["name"], call["function"]["arguments"].as_str().unwrap_or_default());
    let arguments = serde_json::from_str::<Map<String, Value>>(arguments).map_or(arguments.into(), Value::from);
    json!({ "id": call["id"], "function": { "name": name, "arguments": arguments } })
}

/// Log-probabilities of a chat's tokens, or of those of a text that is continued.
fn logprobs(choice: &Value) -> Option<Value> {
    let of = &choice["logprobs"];
    if of["content"].is_array() {
        return Some(of["content"].clone());
    }
    let tokens = of["tokens"].as_array()?.iter().enumerate().map(|(index, token)| {
        let top = of["top_logprobs"][index].as_object().into_iter().flatten();
        let top: Value = top.map(|(token, logprob)| json!({ "token": token, "logprob": logprob })).collect();
        json!({ "token": token, "logprob": of["token_logprobs"][index], "top_logprobs": top })
    });
    Some(tokens.collect())
}

/// Seconds since 1970 as RFC 3339 has them: `2026-11-28T05:30:00Z`.
pub fn time(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
        if year > 9999 {
            return "9999-12-31T23:59:59Z".into();
        }
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z", days + 1, time / 3600, time / 60 % 60, time % 60)
}

/// The body of an answer that is an error.
pub fn error(error: &ApiError) -> Value {
    json!({ "error": error.message })
}
