//! Messages in the form of the OpenAI API -> messages for a chat template of transformers.

use super::fields::Place;
use crate::error::RequestError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::Message;
use model_factory::chat::{data_url, media};
use serde_json::{Map, Value, json};

/// Fields that a template may read.
const READ: [&str; 6] = ["name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"];

/// Fields that no template reads: clients send back what servers put into their answers, or
/// ask for caching.
const UNREAD: [&str; 6] =
    ["annotations", "cache_control", "parsed", "provider_specific_fields", "reasoning_details", "thinking_blocks"];

/// Fields that are accepted only if they are empty or false, as they cannot be used otherwise; Mistral's client sends `prefix`.
const NOTHING: [&str; 4] = ["refusal", "audio", "images", "prefix"];

/// Fields of a call, of its function, and of a part of a content.
const OF_CALL: [&str; 6] = ["id", "type", "index", "function", "cache_control", "provider_specific_fields"];
const OF_FUNCTION: [&str; 3] = ["name", "arguments", "parsed_arguments"];
const OF_IMAGE: [&str; 3] = ["type", "image_url", "cache_control"];
const OF_TEXT: [&str; 4] = ["type", "text", "cache_control", "annotations"];

impl Place {
    /// Refuses fields of `object` that are not in `names`.
    pub(super) fn known(&self, object: &Map<String, Value>, names: &[&str]) -> Result<(), RequestError> {
        let unknown = object.iter().find(|(name, value)| !value.is_null() && !names.contains(&name.as_str()));
        unknown.map_or(Ok(()), |(name, _)| Err(self.within(format_args!(".{name}")).unknown()))
    }

    /// The text that `object` must have in the field `name`.
    pub(super) fn text<'v>(&self, object: &'v Map<String, Value>, name: &str) -> Result<&'v str, RequestError> {
        let at = self.within(format_args!(".{name}"));
        let value = object.get(name).ok_or_else(|| at.wrong("it is missing"))?;
        value.as_str().ok_or_else(|| at.wrong("expected a text"))
    }
}

/// A message for a template: arguments of calls are objects, not JSON in a text, a list of texts is one text, and null fields
/// are absent. Arguments of a model that are not an object stay text, as in transformers.
pub(super) fn message(index: usize, value: Value) -> Result<Message, RequestError> {
    let at = Place(format!("messages[{index}]"));
    let Value::Object(mut given) = value else { return Err(at.wrong("expected an object")) };
    given.retain(|_, value| !value.is_null());
    // `function` is the role of a tool's result in the form before tools.
    let role = at.text(&given, "role")?;
    let mut message = Message::new(if role == "function" { "tool" } else { role }, "");
    message.content = None;
    given.remove("role");
    let content = at.within(".content");
    match given.remove("content") {
        Some(Value::String(text)) => message.content = Some(text),
        Some(Value::Array(parts)) => message = with_parts(&content, message, parts)?,
        Some(_) => return Err(content.wrong("expected a text or a list of parts")),
        // A turn that calls tools or thinks may have no content, and an answer may be empty.
        None if message.role == "assistant" => {}
        None => return Err(content.wrong("it is missing")),
    }
    let has_calls = given.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    let has_both = has_calls && given.contains_key("function_call");
    at.within(".function_call").ensure(!has_both, "tool_calls are given too, expected one of them")?;
    for (name, value) in given {
        let at = at.within(format_args!(".{name}"));
        match &*name {
            "tool_calls" => {
                let Value::Array(mut calls) = value else { return Err(at.wrong("expected a list of calls")) };
                for (index, call) in calls.iter_mut().enumerate() {
                    tool_call(&at.within(format_args!("[{index}]")), call)?;
                }
                if !calls.is_empty() {
                    message = message.field(name, calls);
                }
            }
            // The form before tools: a call without an id, and its result.
            "function_call" => {
                let mut called = value;
                function(&at, &mut called)?;
                message = message.field("tool_calls", vec![json!({ "type": "function", "function": called })]);
            }
            name if READ.contains(&name) && value.is_string() => message = message.field(name, value),
            name if READ.contains(&name) => return Err(at.wrong("expected a text")),
            name if UNREAD.contains(&name) => {}
            name if NOTHING.contains(&name) => {
                let is_empty = value == false
                    || value.as_str().is_some_and(str::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                at.ensure(is_empty, "it is not supported, expected null")?;
            }
            _ => return Err(at.unknown()),
        }
    }
    Ok(message)
}

/// `message` with the parts of its content: only texts become one text, and images are those of data URLs. Other kinds are refused
/// when the prompt is made.
fn with_parts(at: &Place, mut message: Message, parts: Vec<Value>) -> Result<Message, RequestError> {
    let (kind, mut texts) = (|part: &Value| part.get("type").and_then(Value::as_str).map(str::to_owned), String::new());
    let plain = parts.iter().all(|part| media(part).is_none());
    if !plain && !parts.iter().all(|part| matches!(kind(part).as_deref(), None | Some("text" | "image_url"))) {
        return Ok(message.field("content", parts));
    }
    for (index, part) in parts.iter().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let object = part.as_object().ok_or_else(|| at.wrong("expected an object"))?;
        if kind(part).as_deref() == Some("image_url") {
            message = message.image(image(&at, object)?);
            continue;
        }
        at.within(".type").ensure(part.get("type").is_none_or(|kind| kind == "text"), "expected text")?;
        at.known(object, &OF_TEXT)?;
        let text = at.text(object, "text")?;
        if plain { texts.push_str(text) } else { message = message.text(text) }
    }
    message.content = plain.then_some(texts);
    Ok(message)
}

/// The bytes of an image in a data URL. Nothing is fetched, and no file is read.
fn image(at: &Place, part: &Map<String, Value>) -> Result<Vec<u8>, RequestError> {
    at.known(part, &OF_IMAGE)?;
    let at = at.within(".image_url");
    let url = match part.get("image_url") {
        Some(Value::String(url)) => url,
        Some(Value::Object(object)) => {
            at.known(object, &["url", "detail"])?;
            at.text(object, "url")?
        }
        _ => return Err(at.wrong("expected an object with a url")),
    };
    image_at(&at, url)
}

/// The bytes of an image in the data URL that stands `at` this place.
pub(super) fn image_at(at: &Place, url: &str) -> Result<Vec<u8>, RequestError> {
    let data = data_url(url).ok_or_else(|| at.wrong("expected a data URL in base64: images are not fetched"))?;
    BASE64_STANDARD.decode(data).map_err(|error| at.wrong(format_args!("it is no base64: {error}")))
}

/// Makes a call's arguments an object, if possible, and removes fields that no template reads.
fn tool_call(at: &Place, call: &mut Value) -> Result<(), RequestError> {
    let call = call.as_object_mut().ok_or_else(|| at.wrong("expected an object"))?;
    at.known(call, &OF_CALL)?;
    call.retain(|name, value| !value.is_null() && matches!(&**name, "id" | "type" | "function"));
    at.within(".type").ensure(call.get("type").is_none_or(|kind| kind == "function"), "expected function")?;
    at.within(".id").ensure(call.get("id").is_none_or(Value::is_string), "expected a text")?;
    let at = at.within(".function");
    function(&at, call.get_mut("function").ok_or_else(|| at.wrong("it is missing"))?)
}

/// Makes the arguments of a call's function an object, if possible.
pub(super) fn function(at: &Place, function: &mut Value) -> Result<(), RequestError> {
    let function = function.as_object_mut().ok_or_else(|| at.wrong("expected an object"))?;
    at.known(function, &OF_FUNCTION)?;
    function.remove("parsed_arguments");
    at.text(function, "name")?;
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
        _ => return Err(at.within(".arguments").wrong("expected JSON in a text")),
    }
    Ok(())
}
