//! Chunks of an answer in OpenAI's form -> the events of a stream of `/completion`, or its answers.

use crate::error::ApiError;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Chunks of a [`ChunkBuilder`](crate::ChunkBuilder) of a request of this API -> events, or the whole answer.
#[derive(Debug)]
pub struct CompletionBuilder {
    /// What the answer says of the options.
    pub(super) settings: Value,
    /// Whether the whole answer has the ids of its tokens.
    pub(super) return_tokens: bool,
    /// The fields that an answer has; all where there are none. `a/b` is the field `b` of the object `a`.
    pub(super) fields: Vec<String>,
    /// The number of tokens of each answer that has begun, and whether it has a line end.
    pub(super) said: HashMap<usize, (usize, bool)>,
}

impl CompletionBuilder {
    /// The events of a chunk; the last one of each answer has `stop`.
    pub fn push(&mut self, chunk: &Value) -> Vec<Value> {
        let Some(choice) = chunk.pointer("/choices/0") else { return Vec::new() };
        let index = choice["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default();
        let (tokens, has_line) = self.said.entry(index).or_default();
        let (text, ids) = (choice["text"].as_str().unwrap_or_default(), &choice["token_ids"]);
        *tokens += ids.as_array().map_or(0, Vec::len);
        *has_line |= text.contains('\n');
        let (tokens, has_line) = (*tokens, *has_line);
        let mut events = Vec::new();
        if ids.is_array() || !text.is_empty() {
            let ids = if ids.is_array() { ids.clone() } else { json!([]) };
            let mut event = json!({ "index": index, "content": text, "tokens": ids, "stop": false, "id_slot": -1, "tokens_predicted": tokens });
            if let Some(of) = choice.pointer("/logprobs/content") {
                event["completion_probabilities"] = of.clone();
            }
            events.push(event);
        }
        if !choice["finish_reason"].is_null() {
            events.push(self.last(chunk, choice, has_line));
        }
        events
    }

    /// The whole answer, which [`append`](crate::append) put together: an object, or a list of them for several prompts.
    pub fn whole(&self, answer: &Value) -> Value {
        let choices = answer["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let one = |choice: &Value| {
            let text = choice["text"].as_str().unwrap_or_default();
            let mut last = self.last(answer, choice, text.contains('\n'));
            let mut put = |name: &str, value: &Value| {
                if self.has(name) {
                    last[name] = value.clone();
                }
            };
            put("content", &text.into());
            if self.return_tokens && choice["token_ids"].is_array() {
                put("tokens", &choice["token_ids"]);
            }
            if let Some(of) = choice.pointer("/logprobs/content") {
                put("completion_probabilities", of);
            }
            last
        };
        match choices {
            [choice] => one(choice),
            choices => choices.iter().map(one).collect(),
        }
    }

    /// Whether an answer has this field.
    fn has(&self, name: &str) -> bool {
        self.fields.is_empty() || self.fields.iter().any(|field| field == name)
    }

    /// What is known at the end of an answer.
    fn last(&self, chunk: &Value, choice: &Value, has_line: bool) -> Value {
        let (of, stop) = (&choice["details"], &choice["stop_reason"]);
        let (timings, mut settings) = (&of["timings"], self.settings.clone());
        settings["seed"] = timings["seed"].clone();
        let count = |name: &str| timings[name].as_u64().unwrap_or_default();
        let kind = match choice["finish_reason"].as_str() {
            Some("length") => "limit",
            _ if stop.is_string() => "word",
            _ => "eos",
        };
        let event = json!({
            "index": choice["index"], "content": "", "tokens": [], "id_slot": -1, "stop": true, "model": chunk["model"],
            "tokens_predicted": count("predicted_n"), "tokens_evaluated": count("prompt_n") + count("cache_n"),
            "generation_settings": settings, "prompt": of["prompt"], "has_new_line": has_line, "truncated": of["truncated"],
            "stop_type": kind, "stopping_word": stop.as_str().unwrap_or_default(), "tokens_cached": count("cache_n"),
            "timings": timings,
        });
        if self.fields.is_empty() {
            return event;
        }
        let field = |name: &String| {
            let mut steps = name.split('/');
            let first = event.get(steps.next()?);
            Some((name.clone(), steps.try_fold(first?, |value, step| value.get(step))?.clone()))
        };
        Value::Object(self.fields.iter().filter_map(field).collect::<Map<_, _>>())
    }
}

/// The body of an answer that is an error.
pub fn error(error: &ApiError) -> Value {
    let kind = match error.status {
        _ if error.context.is_some() => "exceed_context_size_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        400..=499 => "invalid_request_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        _ => "server_error",
    };
    let mut of = json!({ "code": error.status, "message": error.message, "type": kind });
    if let Some([tokens, limit]) = error.context {
        // The words by which its clients know it.
        let message = format!("the request ({tokens} tokens) exceeds the available context size ({limit} tokens)");
        (of["message"], of["n_prompt_tokens"], of["n_ctx"]) = (message.into(), tokens.into(), limit.into());
    }
    json!({ "error": of })
}
