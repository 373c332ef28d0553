//! Chunks of an answer in OpenAI's form -> the events of a stream of `/v1/messages`, or its whole message.

use crate::error::ApiError;
use serde_json::{Map, Value, json};

/// Chunks of a [`ChunkBuilder`](crate::ChunkBuilder) -> events, each with its name as its `type`.
#[derive(Debug, Default)]
pub struct MessageBuilder {
    is_begun: bool,
    /// The number of parts that were begun, and the kind of the one that is open.
    parts: usize,
    open: Option<&'static str>,
    reason: Value,
    stop: Value,
}

impl MessageBuilder {
    /// The events of a chunk. The last one, with the usage and no choice, ends the stream.
    pub fn push(&mut self, chunk: &Value) -> Vec<Value> {
        let mut events = Vec::new();
        if !self.is_begun {
            self.is_begun = true;
            let mut message = empty(chunk);
            message["usage"] = usage(&chunk["usage"]);
            events.push(json!({ "type": "message_start", "message": message }));
        }
        let Some(choice) = chunk.pointer("/choices/0") else {
            self.close(&mut events);
            let delta = json!({ "stop_reason": self.reason, "stop_sequence": self.stop });
            events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage(&chunk["usage"]) }));
            events.push(json!({ "type": "message_stop" }));
            return events;
        };
        let delta = &choice["delta"];
        self.say("thinking", "thinking_delta", delta["reasoning_content"].as_str(), &mut events);
        self.say("text", "text_delta", delta["content"].as_str(), &mut events);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let (id, name, arguments) = (&call["id"], &call["function"]["name"], &call["function"]["arguments"]);
            self.begin("tool_use", json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), &mut events);
            let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
            events.push(json!({ "type": "content_block_delta", "index": self.parts - 1, "delta": delta }));
            self.close(&mut events);
        }
        if !choice["finish_reason"].is_null() {
            (self.reason, self.stop) = reason(choice);
        }
        events
    }

    /// Says `text` in a part of this `kind`, which is begun if another one is open.
    fn say(&mut self, kind: &'static str, delta: &str, text: Option<&str>, events: &mut Vec<Value>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        if self.open != Some(kind) {
            let mut part = json!({ "type": kind, kind: "" });
            if kind == "thinking" {
                part["signature"] = "".into();
            }
            self.begin(kind, part, events);
        }
        let delta = json!({ "type": delta, kind: text });
        events.push(json!({ "type": "content_block_delta", "index": self.parts - 1, "delta": delta }));
    }

    fn begin(&mut self, kind: &'static str, part: Value, events: &mut Vec<Value>) {
        self.close(events);
        events.push(json!({ "type": "content_block_start", "index": self.parts, "content_block": part }));
        (self.open, self.parts) = (Some(kind), self.parts + 1);
    }

    fn close(&mut self, events: &mut Vec<Value>) {
        if self.open.take().is_some() {
            events.push(json!({ "type": "content_block_stop", "index": self.parts - 1 }));
        }
    }

    /// The message of a whole answer, which [`append`](crate::append) put together.
    pub fn whole(answer: &Value) -> Value {
        let choice = &answer["choices"][0];
        let said = &choice["message"];
        let mut parts = Vec::new();
        if let Some(thought) = said["reasoning_content"].as_str() {
            parts.push(json!({ "type": "thinking", "thinking": thought, "signature": "" }));
        }
        if let Some(text) = said["content"].as_str().filter(|text| !text.is_empty()) {
            parts.push(json!({ "type": "text", "text": text }));
        }
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            // Arguments of a model that are no object stay text.
            let input = serde_json::from_str::<Map<String, Value>>(arguments).map_or(arguments.into(), Value::from);
            parts.push(
                json!({ "type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input }),
            );
        }
        let mut message = empty(answer);
        message["content"] = parts.into();
        (message["stop_reason"], message["stop_sequence"]) = reason(choice);
        message["usage"] = usage(&answer["usage"]);
        message
    }
}

/// A message without content, by the id and the model of an answer.
fn empty(answer: &Value) -> Value {
    let id = answer["id"].as_str().unwrap_or_default().replacen("chatcmpl-", "msg_", 1);
    json!({
        "id": id, "type": "message", "role": "assistant", "model": answer["model"], "content": [],
        "stop_reason": null, "stop_sequence": null,
    })
}

/// Why the answer ended, and the stop string that ended it.
fn reason(choice: &Value) -> (Value, Value) {
    let stop = &choice["stop_reason"];
    let reason = match choice["finish_reason"].as_str() {
        Some("length") => "max_tokens",
        Some("tool_calls") => "tool_use",
        _ if stop.is_string() => return ("stop_sequence".into(), stop.clone()),
        _ => "end_turn",
    };
    (reason.into(), Value::Null)
}

/// The tokens of the prompt that were computed, those that were cached, and those of the answer.
fn usage(usage: &Value) -> Value {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    json!({
        "input_tokens": count(&usage["prompt_tokens"]) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": count(&usage["completion_tokens"]),
    })
}

/// The body of an answer that is an error.
pub fn error(error: &ApiError) -> Value {
    let kind = match error.status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": error.message } })
}
