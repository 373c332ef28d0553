//! Messages as OpenAI's clients send them -> messages for a template of transformers.

use super::fields::Fields;
use crate::error::RequestError;
use model_factory::Message;
use model_factory::chat::media;
use serde_json::{Map, Value};

/// Fields that a template may read.
const READ: [&str; 6] = ["name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"];

/// Fields that say nothing to a template, by the names under which servers answer with them, so that clients send them back, or
/// that ask for caching.
const UNREAD: [&str; 6] =
    ["annotations", "cache_control", "parsed", "provider_specific_fields", "reasoning_details", "thinking_blocks"];

/// Fields of an answer that are taken where they say nothing, and cannot be given back otherwise.
const NOTHING: [&str; 4] = ["refusal", "audio", "function_call", "images"];

/// Fields of a call, of its function, and of a part of a content.
const OF_CALL: [&str; 6] = ["id", "type", "index", "function", "cache_control", "provider_specific_fields"];
const OF_FUNCTION: [&str; 3] = ["name", "arguments", "parsed_arguments"];
const OF_TEXT: [&str; 4] = ["type", "text", "cache_control", "annotations"];

/// A message for a template: arguments of calls are objects, not JSON in a text, a list of texts is one text, and what is null
/// is absent. Arguments that a model wrote and that are no object stay the text that they are, as in transformers.
pub(super) fn message(fields: &Fields, index: usize, value: Value) -> Result<Message, RequestError> {
    let at = format!("messages[{index}]");
    let wrong = |name: &str, reason: &str| fields.wrong(&format!("{at}.{name}"), reason);
    let Value::Object(mut given) = value else { return Err(fields.wrong(&at, "expected an object")) };
    given.retain(|_, value| !value.is_null());
    let role = match given.remove("role") {
        Some(Value::String(role)) => role,
        Some(_) => return Err(wrong("role", "expected a text")),
        None => return Err(wrong("role", "it is missing")),
    };
    let is_answer = role == "assistant";
    let content = match given.remove("content") {
        // A turn that calls tools or thinks says nothing, nor does an empty answer.
        None if is_answer => None,
        None => return Err(wrong("content", "it is missing")),
        Some(content) => Some(content),
    };
    let mut message = Message::new(role, "");
    message.content = None;
    match content {
        Some(Value::String(text)) => message.content = Some(text),
        Some(Value::Array(parts)) => match text(fields, &at, &parts)? {
            Some(text) => message.content = Some(text),
            None => message = message.field("content", parts),
        },
        Some(_) => return Err(wrong("content", "expected a text or a list of parts")),
        None => {}
    }
    for (name, value) in given {
        match &*name {
            "tool_calls" => {
                let calls = tool_calls(fields, &at, value)?;
                if !calls.is_empty() {
                    message = message.field(name, calls);
                }
            }
            name if READ.contains(&name) => match value {
                Value::String(_) => message = message.field(name, value),
                _ => return Err(wrong(name, "expected a text")),
            },
            name if UNREAD.contains(&name) => {}
            name if NOTHING.contains(&name) => {
                let is_empty = value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
                if !is_empty {
                    return Err(wrong(name, "it is not supported, expected null"));
                }
            }
            name => return Err(RequestError::Unknown { field: fields.path(&format!("{at}.{name}")) }),
        }
    }
    Ok(message)
}

/// The text of a content's parts; `None` where one is an image, sound or the like, which is refused where the prompt is made.
fn text(fields: &Fields, at: &str, parts: &[Value]) -> Result<Option<String>, RequestError> {
    let mut text = String::new();
    if parts.iter().any(|part| media(part).is_some()) {
        return Ok(None);
    }
    for (index, part) in parts.iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        let wrong = |name: &str, reason| Err(fields.wrong(&format!("{at}{name}"), reason));
        let Value::Object(part) = part else { return wrong("", "expected an object") };
        match part.get("type").map(Value::as_str) {
            None | Some(Some("text")) => {}
            Some(_) => return wrong(".type", "expected text"),
        }
        known(fields, &at, part, &OF_TEXT)?;
        match part.get("text") {
            Some(Value::String(part)) => text.push_str(part),
            Some(_) => return wrong(".text", "expected a text"),
            None => return wrong(".text", "it is missing"),
        }
    }
    Ok(Some(text))
}

/// Calls with their arguments as objects, where they are such.
fn tool_calls(fields: &Fields, at: &str, value: Value) -> Result<Vec<Value>, RequestError> {
    let Value::Array(mut calls) = value else {
        return Err(fields.wrong(&format!("{at}.tool_calls"), "expected a list of calls"));
    };
    for (index, call) in calls.iter_mut().enumerate() {
        let at = format!("{at}.tool_calls[{index}]");
        let wrong = |name: &str, reason| Err(fields.wrong(&format!("{at}{name}"), reason));
        let Value::Object(call) = call else { return wrong("", "expected an object") };
        known(fields, &at, call, &OF_CALL)?;
        call.retain(|name, value| !value.is_null() && matches!(&**name, "id" | "type" | "function"));
        if call.get("type").is_some_and(|kind| kind != "function") {
            return wrong(".type", "expected function");
        }
        if call.get("id").is_some_and(|id| !id.is_string()) {
            return wrong(".id", "expected a text");
        }
        let function = match call.get_mut("function") {
            Some(Value::Object(function)) => function,
            Some(_) => return wrong(".function", "expected an object"),
            None => return wrong(".function", "it is missing"),
        };
        known(fields, &format!("{at}.function"), function, &OF_FUNCTION)?;
        function.remove("parsed_arguments");
        match function.get("name") {
            Some(Value::String(_)) => {}
            Some(_) => return wrong(".function.name", "expected a text"),
            None => return wrong(".function.name", "it is missing"),
        }
        let arguments = function.entry("arguments").or_insert(Value::Null);
        match arguments {
            Value::Null => *arguments = Map::new().into(),
            Value::String(text) if text.trim().is_empty() => *arguments = Map::new().into(),
            Value::String(text) => {
                if let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) {
                    *arguments = object.into();
                }
            }
            Value::Object(_) => {}
            _ => return wrong(".function.arguments", "expected JSON in a text"),
        }
    }
    Ok(calls)
}

/// Refuses what `object`, which lies at `at`, has beside `names`.
fn known(fields: &Fields, at: &str, object: &Map<String, Value>, names: &[&str]) -> Result<(), RequestError> {
    let unknown = object.iter().find(|(name, value)| !value.is_null() && !names.contains(&name.as_str()));
    match unknown {
        Some((name, _)) => Err(RequestError::Unknown { field: fields.path(&format!("{at}.{name}")) }),
        None => Ok(()),
    }
}
