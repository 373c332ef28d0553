//! Chunks of an answer in OpenAI's older form -> the events of a stream of `/v1/responses`, or its response.

use super::kept::KeptResponse;
use crate::error::ApiError;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Chunks of a [`ChunkBuilder`](crate::ChunkBuilder) -> events, each with its name as its `type`, and the response that they build.
#[derive(Debug)]
pub struct ResponseBuilder {
    /// The response, which has the items that are done.
    response: Value,
    /// The items of the request, if the response is to be kept.
    input: Option<Vec<Value>>,
    is_begun: bool,
    /// Whether the answer ended by its limit.
    is_cut: bool,
    sequence: usize,
    /// The item that is not done yet.
    open: Option<Value>,
    /// Log-probabilities of tokens whose text has not come yet.
    logprobs: Vec<Value>,
}

/// An item of one part: the name of its events, and its part.
type Kind = (&'static str, fn() -> Value);

const TEXT: Kind = ("output_text", || json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] }));
const THOUGHT: Kind = ("reasoning_text", || json!({ "type": "reasoning_text", "text": "" }));

impl ResponseBuilder {
    pub(super) fn new(response: Value, input: Option<Vec<Value>>) -> ResponseBuilder {
        ResponseBuilder {
            response,
            input,
            is_begun: false,
            is_cut: false,
            sequence: 0,
            open: None,
            logprobs: Vec::new(),
        }
    }

    /// The events of a chunk. The last one, with the usage and no choice, ends the response.
    pub fn push(&mut self, chunk: &Value) -> Vec<Value> {
        let mut events = Vec::new();
        if !self.is_begun {
            self.is_begun = true;
            (self.response["created_at"], self.response["model"]) = (chunk["created"].clone(), chunk["model"].clone());
            for name in ["created", "in_progress"] {
                let response = self.response.clone();
                self.event(&mut events, name, json!({ "response": response }));
            }
        }
        let Some(choice) = chunk.pointer("/choices/0") else {
            self.end(&chunk["usage"], &mut events);
            return events;
        };
        let delta = choice.get("delta").unwrap_or(&choice["message"]);
        self.say(&THOUGHT, delta["reasoning_content"].as_str(), &mut events);
        self.logprobs.extend(choice["logprobs"]["content"].as_array().into_iter().flatten().cloned());
        self.say(&TEXT, delta["content"].as_str(), &mut events);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, &mut events);
        }
        self.is_cut |= choice["finish_reason"] == "length";
        events
    }

    /// Says `text` in an item of this `kind`, which is begun if another one is open.
    fn say(&mut self, kind: &Kind, text: Option<&str>, events: &mut Vec<Value>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        let (name, part) = kind;
        if self.open.as_ref().is_none_or(|item| item["content"][0]["type"] != *name) {
            let (is_text, part) = (*name == TEXT.0, part());
            let mut item = if is_text {
                json!({ "type": "message", "role": "assistant", "content": [] })
            } else {
                json!({ "type": "reasoning", "summary": [], "content": [] })
            };
            self.begin(if is_text { "msg" } else { "rs" }, &mut item, events);
            let at = self.at(&item, true);
            self.event(events, "content_part.added", with(at, json!({ "part": part })));
            item["content"] = json!([part]);
            self.open = Some(item);
        }
        let Some(item) = &mut self.open else { return };
        let part = &mut item["content"][0];
        if let Value::String(so_far) = &mut part["text"] {
            so_far.push_str(text);
        }
        let mut delta = json!({ "delta": text });
        if let Some(so_far) = part.get_mut("logprobs").and_then(Value::as_array_mut) {
            let logprobs = std::mem::take(&mut self.logprobs);
            so_far.extend_from_slice(&logprobs);
            delta["logprobs"] = logprobs.into();
        }
        let at = self.open.as_ref().map(|item| self.at(item, true)).unwrap_or_default();
        self.event(events, &format!("{name}.delta"), with(at, delta));
    }

    /// A call of a function, which comes whole.
    fn call(&mut self, call: &Value, events: &mut Vec<Value>) {
        let (function, arguments) = (&call["function"], &call["function"]["arguments"]);
        let mut item =
            json!({ "type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": "" });
        self.begin("fc", &mut item, events);
        let at = self.at(&item, false);
        self.event(events, "function_call_arguments.delta", with(at.clone(), json!({ "delta": arguments })));
        let done = json!({ "name": function["name"], "arguments": arguments });
        self.event(events, "function_call_arguments.done", with(at, done));
        item["arguments"] = arguments.clone();
        self.open = Some(item);
        self.close("completed", events);
    }

    /// Begins an item, whose id has this prefix.
    fn begin(&mut self, prefix: &str, item: &mut Value, events: &mut Vec<Value>) {
        self.close("completed", events);
        let own = self.response["id"].as_str().unwrap_or_default().replacen("resp_", "", 1);
        item["id"] = format!("{prefix}_{own}-{}", self.done()).into();
        item["status"] = "in_progress".into();
        let fields = json!({ "output_index": self.done(), "item": item });
        self.event(events, "output_item.added", fields);
    }

    fn close(&mut self, status: &str, events: &mut Vec<Value>) {
        let Some(mut item) = self.open.take() else { return };
        if item["content"].is_array() {
            let part = &mut item["content"][0];
            // Those of tokens that only ended the text.
            let rest = std::mem::take(&mut self.logprobs);
            if let Some(so_far) = part.get_mut("logprobs").and_then(Value::as_array_mut) {
                so_far.extend(rest);
            }
            let part = part.clone();
            let (name, at) = (part["type"].as_str().unwrap_or_default().to_owned(), self.at(&item, true));
            let mut done = json!({ "text": part["text"] });
            if let Some(logprobs) = part.get("logprobs") {
                done["logprobs"] = logprobs.clone();
            }
            self.event(events, &format!("{name}.done"), with(at.clone(), done));
            self.event(events, "content_part.done", with(at, json!({ "part": part })));
        }
        item["status"] = status.into();
        let fields = json!({ "output_index": self.done(), "item": item });
        self.event(events, "output_item.done", fields);
        self.response["output"].as_array_mut().into_iter().for_each(|output| output.push(item.clone()));
    }

    fn end(&mut self, usage: &Value, events: &mut Vec<Value>) {
        let status = if self.is_cut { "incomplete" } else { "completed" };
        self.close(status, events);
        self.finish(status);
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        let response = &mut self.response;
        response["usage"] = json!({
            "input_tokens": count(&usage["prompt_tokens"]),
            "input_tokens_details": { "cached_tokens": cached, "cache_write_tokens": 0 },
            "output_tokens": count(&usage["completion_tokens"]),
            "output_tokens_details": { "reasoning_tokens": count(&usage["completion_tokens_details"]["reasoning_tokens"]) },
            "total_tokens": count(&usage["total_tokens"]),
        });
        if self.is_cut {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        let response = self.response.clone();
        self.event(events, status, json!({ "response": response }));
    }

    fn finish(&mut self, status: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (self.response["status"], self.response["completed_at"]) = (status.into(), now.as_secs().into());
    }

    /// The last event of a stream that fails: `response.failed`, or `error` where nothing was sent before it.
    pub fn fail(&mut self, error: &ApiError) -> Value {
        let mut events = Vec::new();
        if self.is_begun {
            let code = if error.status == 429 { "rate_limit_exceeded" } else { "server_error" };
            self.finish("failed");
            self.response["error"] = json!({ "code": code, "message": error.message });
            let response = self.response.clone();
            self.event(&mut events, "failed", json!({ "response": response }));
        } else {
            events.push(ResponseBuilder::error(error, self.sequence));
        }
        events.remove(0)
    }

    /// The event `error` of this number, by which a stream ends that has not begun.
    pub fn error(error: &ApiError, sequence: usize) -> Value {
        json!({
            "type": "error", "sequence_number": sequence, "code": error.code, "message": error.message, "param": error.param,
        })
    }

    /// The response so far; whole after the last chunk.
    pub fn response(&self) -> &Value {
        &self.response
    }

    /// The response to keep, if the request wants that, and it has ended.
    pub fn kept(&mut self) -> Option<KeptResponse> {
        let has_ended = matches!(self.response["status"].as_str(), Some("completed" | "incomplete"));
        self.input.take_if(|_| has_ended).map(|input| KeptResponse::new(&self.response, input))
    }

    /// The number of items that are done, and so the index of the one that is not.
    fn done(&self) -> usize {
        self.response["output"].as_array().map_or(0, Vec::len)
    }

    /// Where an event belongs: the item that is open, and its one part where `is_part`.
    fn at(&self, item: &Value, is_part: bool) -> Value {
        let mut at = json!({ "item_id": item["id"], "output_index": self.done() });
        if is_part {
            at["content_index"] = 0.into();
        }
        at
    }

    fn event(&mut self, events: &mut Vec<Value>, name: &str, fields: Value) {
        let head = json!({ "type": format!("response.{name}"), "sequence_number": self.sequence });
        events.push(with(head, fields));
        self.sequence += 1;
    }
}

/// An object with the fields of another one too.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
