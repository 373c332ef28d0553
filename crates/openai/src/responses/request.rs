//! The JSON of a request of `/v1/responses` -> a request of completions.

use super::events::ResponseBuilder;
use super::items::{Turns, with_id};
use super::kept::go_on;
use crate::error::RequestError;
use crate::fields::{Fields, Place};
use crate::outline::{MOST_BYTES, Outline};
use crate::request::{CompletionInput, CompletionRequest, THINKING_BUDGET};
use crate::tools::tool_choice;
use model_factory::Message;
use model_factory::generate::Grammar;
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fields of a request.
const KNOWN: [&str; 21] = [
    "background",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

/// Fields that change nothing here, which [`Fields::end`] takes, and one that it does not know.
const UNUSED: [&str; 8] = [
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "return_progress",
    "safety_identifier",
    "service_tier",
    "timings_per_token",
    "user",
];

/// Fields of `chat/completions` that vLLM and llama.cpp's server take here too.
const OF_CHAT: [&str; 16] = [
    "cache_salt",
    "chat_template_kwargs",
    "enable_thinking",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "lora",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "top_k",
];

/// A field, and its value where the request does not give it.
type Echoed = (&'static str, fn() -> Value);

/// Fields that the response has as the request gave them.
const ECHOED: [Echoed; 17] = [
    ("instructions", || Value::Null),
    ("max_output_tokens", || Value::Null),
    ("max_tool_calls", || Value::Null),
    ("metadata", || json!({})),
    ("parallel_tool_calls", || true.into()),
    ("previous_response_id", || Value::Null),
    ("prompt_cache_key", || Value::Null),
    ("reasoning", || json!({ "effort": null, "summary": null })),
    ("safety_identifier", || Value::Null),
    ("store", || true.into()),
    ("temperature", || Value::Null),
    ("text", || json!({ "format": { "type": "text" } })),
    ("tool_choice", || "auto".into()),
    ("tools", || json!([])),
    ("top_logprobs", || 0.into()),
    ("top_p", || Value::Null),
    ("user", || Value::Null),
];

/// Fields of a tool; those after `strict` change nothing here, where all tools are in the prompt.
const TOOL: [&str; 9] = [
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "allowed_callers",
    "async",
    "defer_loading",
    "output_schema",
];

/// Reads the body of a request of `/v1/responses`, which goes on with the `items` of the `earlier` responses
/// ([`KeptResponse`](super::KeptResponse)), the first one first. The builder makes the response of the chunks.
///
/// # Errors
/// An error that names the field, if the body is invalid, and `TooManyValues` where all items together are too many.
pub fn request(body: &[u8], earlier: &[&str]) -> Result<(CompletionRequest, ResponseBuilder), RequestError> {
    let outlines = earlier.iter().map(|text| text.as_bytes()).chain([body]).map(Outline::of);
    let bytes: usize = outlines.map(|outline| outline.map(|outline| outline.bytes)).sum::<Result<_, _>>()?;
    if bytes > MOST_BYTES {
        return Err(RequestError::TooManyValues { limit: MOST_BYTES });
    }
    let mut fields = Fields::parse(body)?;
    fields.only(&[&KNOWN[..], &UNUSED, &OF_CHAT, &THINKING_BUDGET].concat())?;
    let mut response = head();
    for (name, otherwise) in ECHOED {
        response[name] = fields.get(name).cloned().unwrap_or_else(otherwise);
    }
    let id = response["id"].as_str().map(|id| id.replacen("resp_", "", 1)).unwrap_or_default();

    let mut turns = Turns::default();
    let instructions: Option<String> = fields.take("instructions")?;
    instructions.into_iter().for_each(|text| turns.push(Message::system(text)));
    // The server has found its items.
    let is_found = fields.take::<String>("previous_response_id")?.is_none() || !earlier.is_empty();
    fields.at("previous_response_id").ensure(is_found, "its items are missing; expected the field once")?;
    go_on(&mut turns, earlier)?;
    let at = fields.at("input");
    let mut input = match fields.require::<Value>("input")? {
        Value::String(text) => vec![json!({ "role": "user", "content": text })],
        Value::Array(items) => items,
        _ => return Err(at.wrong("expected a text or a list of items")),
    };
    at.ensure(!input.is_empty() || !earlier.is_empty(), "expected one item at least")?;
    for (index, item) in input.iter().enumerate() {
        turns.item(&at.within(format_args!("[{index}]")), item)?;
    }
    let is_kept = fields.take("store")?.unwrap_or(true);
    if is_kept {
        let given = std::mem::take(&mut input).into_iter().enumerate();
        input = given.map(|(index, item)| with_id(item, &format!("{id}-i{index}"))).collect();
    }

    let mut request = CompletionRequest::read(&mut fields, CompletionInput::Messages(turns.finish()))?;
    request.include_usage = request.stream; // the chunk that ends the response
    let options = &mut request.options;
    options.max_tokens = fields.count("max_output_tokens", None)?.unwrap_or(usize::MAX);
    let mut tools = tools(&mut fields)?;
    options.tool_choice = tool_choice(&mut fields, "tool_choice", &mut tools)?;
    options.parallel_tool_calls = fields.take("parallel_tool_calls")?.unwrap_or(true);
    options.chat.tools = tools;
    options.chat.variables = fields.take("chat_template_kwargs")?.unwrap_or_default();
    if let Some(name) = ["messages", "tools"].into_iter().find(|name| options.chat.variables.contains_key(*name)) {
        return Err(fields.at("chat_template_kwargs").wrong(format_args!("{name} is a field of the request")));
    }
    let mut thinks = fields.take::<bool>("enable_thinking")?;
    if let Some(mut reasoning) = fields.object("reasoning")? {
        if let Some(effort) = reasoning.take::<String>("effort")? {
            thinks = thinks.or((effort == "none").then_some(false));
            options.chat.variables.insert("reasoning_effort".into(), effort.into());
        }
        // The thought itself is in the answer; nobody makes a summary of it.
        for name in ["summary", "generate_summary"] {
            let at = reasoning.at(name);
            let how = reasoning.take::<String>(name)?;
            let is_known = how.is_none_or(|how| matches!(&*how, "auto" | "concise" | "detailed"));
            at.ensure(is_known, "expected auto, concise or detailed")?;
        }
        let context: Option<String> = reasoning.take("context")?;
        reasoning.at("context").ensure(context.is_none_or(|context| context == "auto"), "expected auto")?;
        reasoning.end()?;
    }
    if let Some(thinks) = thinks {
        options.chat.variables.insert("enable_thinking".into(), thinks.into());
    }
    if let Some(mut text) = fields.object("text")? {
        text.take::<String>("verbosity")?;
        if let Some(mut format) = text.object("format")? {
            options.grammar = schema(&mut format)?.map(Grammar::json_schema);
            format.end()?;
        }
        text.end()?;
    }
    let top = fields.count("top_logprobs", None)?;
    for (index, what) in fields.take::<Vec<String>>("include")?.into_iter().flatten().enumerate() {
        match &*what {
            "message.output_text.logprobs" => options.logprobs = Some(top.unwrap_or(0)),
            // Nothing is encrypted: the thought is there to read.
            "reasoning.encrypted_content" => {}
            _ => {
                let expected = "expected message.output_text.logprobs or reasoning.encrypted_content";
                return Err(fields.at(&format!("include[{index}]")).wrong(expected));
            }
        }
    }
    let background: Option<bool> = fields.take("background")?;
    fields.at("background").ensure(background != Some(true), "it is not supported, expected false")?;
    let truncation: Option<String> = fields.take("truncation")?;
    let is_disabled = truncation.is_none_or(|truncation| truncation == "disabled");
    fields.at("truncation").ensure(is_disabled, "no items are left out, expected disabled")?;
    fields.count("max_tool_calls", None)?; // those of tools that run on the server
    let metadata: Option<Map<String, Value>> = fields.take("metadata")?;
    let is_text = metadata.iter().flatten().all(|(_, value)| value.is_string());
    fields.at("metadata").ensure(is_text, "expected an object of texts")?;
    fields.take::<Value>("prompt_cache_options")?;
    fields.end()?;
    Ok((request, ResponseBuilder::new(response, is_kept.then_some(input))))
}

/// The fields of a response that no request gives.
fn head() -> Value {
    json!({
        "id": format!("resp_{}", unguessable()), "object": "response", "created_at": 0, "completed_at": null,
        "status": "in_progress", "background": false, "error": null, "incomplete_details": null, "model": null,
        "output": [], "service_tier": "default", "truncation": "disabled", "usage": null,
    })
}

/// 32 hexadecimal digits that clients cannot guess, so that they cannot read what others have kept: a keyed hash of a count, by keys
/// of the system's randomness.
fn unguessable() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = [0, 1].map(|which| KEYS[which].hash_one((which, count)));
    format!("{high:016x}{low:016x}")
}

/// The tools as schemas of functions.
fn tools(fields: &mut Fields) -> Result<Option<Vec<Value>>, RequestError> {
    let Some(tools) = fields.take::<Vec<Value>>("tools")? else { return Ok(None) };
    let tool = |(index, tool): (usize, Value)| {
        let at = Place(format!("tools[{index}]"));
        let object = tool.as_object().ok_or_else(|| at.wrong("expected an object"))?;
        let is_function = at.text(object, "type")? == "function";
        at.within(".type").ensure(is_function, "expected function: tools that run on OpenAI's servers are not here")?;
        at.known(object, &TOOL)?;
        let mut function = json!({ "name": at.text(object, "name")? });
        for name in ["description", "parameters", "strict"] {
            if let Some(value) = object.get(name).filter(|value| !value.is_null()) {
                function[name] = value.clone();
            }
        }
        Ok(json!({ "type": "function", "function": function }))
    };
    tools.into_iter().enumerate().map(tool).collect::<Result<_, _>>().map(Some)
}

/// The schema of `text.format`.
fn schema(format: &mut Fields) -> Result<Option<Value>, RequestError> {
    match &*format.require::<String>("type")? {
        "text" => Ok(None),
        "json_object" => Ok(Some(json!({ "type": "object" }))),
        "json_schema" => {
            for unused in ["name", "description", "strict"] {
                format.take::<Value>(unused)?;
            }
            format.require("schema").map(Some)
        }
        _ => Err(format.at("type").wrong("expected text, json_object or json_schema")),
    }
}
