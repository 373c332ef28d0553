//! Prompts of texts and ids in any order.

use crate::error::RequestError;
use crate::fields::{Fields, Place};
use crate::parts::Part;
use crate::request::{CompletionInput, PromptPart};
use serde_json::Value;

/// The name of a text in an object, and that of what it shows.
const TEXT: &str = "prompt_string";
const MEDIA: &str = "multimodal_data";

/// Takes one prompt or a list of them. A prompt is a text, ids with texts between them, or an object with a text or its parts.
pub(crate) fn take(fields: &mut Fields, name: &str) -> Result<CompletionInput, RequestError> {
    let (at, given) = (fields.at(name), fields.require::<Value>(name)?);
    let Value::Array(list) = given else { return Ok(CompletionInput::Mixed(vec![one(&at, given)?])) };
    at.ensure(!list.is_empty(), "expected one prompt at least")?;
    // A number is part of the only prompt.
    if list.iter().any(Value::is_number) {
        return Ok(CompletionInput::Mixed(vec![sequence(&at, list)?]));
    }
    let prompt = |(index, value)| one(&at.within(format_args!("[{index}]")), value);
    list.into_iter().enumerate().map(prompt).collect::<Result<_, _>>().map(CompletionInput::Mixed)
}

fn one(at: &Place, prompt: Value) -> Result<Vec<PromptPart>, RequestError> {
    match prompt {
        Value::String(text) => Ok(vec![PromptPart::Text(text)]),
        Value::Array(list) => sequence(at, list),
        Value::Object(object) if object.contains_key("content") => {
            at.known(&object, &["content"])?;
            let at = at.within(".content");
            let parts = object["content"].as_array().ok_or_else(|| at.wrong("expected a list of parts"))?;
            let mut text = String::new();
            for (index, part) in parts.iter().enumerate() {
                let at = at.within(format_args!("[{index}]"));
                let part = Part::of(&at, part, &[])?;
                at.within(".type").ensure(part.kind == "text", "expected text")?;
                part.known(&["text"])?;
                text.push_str(part.text("text")?);
            }
            Ok(vec![PromptPart::Text(text)])
        }
        Value::Object(object) => {
            at.known(&object, &[TEXT, MEDIA])?;
            let media = object.get(MEDIA).filter(|media| !media.is_null());
            let is_none = media.is_none_or(|media| media.as_array().is_some_and(Vec::is_empty));
            at.within(format_args!(".{MEDIA}")).ensure(is_none, "images stand in messages, expected none")?;
            at.text(&object, TEXT).map(|text| vec![PromptPart::Text(text.into())])
        }
        _ => Err(at.wrong("expected a text, a list of ids and texts, or an object with prompt_string")),
    }
}

fn sequence(at: &Place, list: Vec<Value>) -> Result<Vec<PromptPart>, RequestError> {
    let mut parts = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        match (id, value, parts.last_mut()) {
            (Some(id), _, Some(PromptPart::Ids(ids))) => ids.push(id),
            (Some(id), _, _) => parts.push(PromptPart::Ids(vec![id])),
            (None, Value::String(text), _) => parts.push(PromptPart::Text(text)),
            _ => return Err(at.within(format_args!("[{index}]")).wrong("expected an id or a text")),
        }
    }
    at.ensure(!parts.is_empty(), "expected one id at least")?;
    Ok(parts)
}
