//! Items of a conversation -> messages.

use crate::error::RequestError;
use crate::fields::Place;
use crate::messages::{function, image_at};
use crate::parts::{Content, Part, call, result, with_calls};
use model_factory::Message;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Fields of an item that do not change what it says.
const OF_ITEM: [&str; 5] = ["id", "status", "phase", "caller", "created_by"];

/// Fields of a part that do not change what it says.
const OF_PART: [&str; 4] = ["annotations", "logprobs", "detail", "prompt_cache_breakpoint"];

/// Messages of the items so far.
#[derive(Default)]
pub(super) struct Turns {
    messages: Vec<Message>,
    /// The names of functions by the ids of their calls.
    names: HashMap<String, String>,
    open: Option<Turn>,
}

/// A turn of the assistant: its thought, its content and its calls are items of their own.
#[derive(Default)]
struct Turn {
    thought: String,
    content: Option<Content>,
    calls: Vec<Value>,
}

impl Turn {
    fn has_spoken(&self) -> bool {
        self.content.is_some() || !self.calls.is_empty()
    }
}

impl Turns {
    pub(super) fn push(&mut self, message: Message) {
        self.close();
        self.messages.push(message);
    }

    pub(super) fn finish(mut self) -> Vec<Message> {
        self.close();
        self.messages
    }

    fn close(&mut self) {
        let Some(Turn { thought, content, calls }) = self.open.take() else { return };
        let content = content.unwrap_or_else(|| Content::new("assistant"));
        self.messages.push(with_calls(content.finish(), thought, calls));
    }

    /// The turn of the assistant, or another one where this one `is_over`.
    fn turn(&mut self, is_over: fn(&Turn) -> bool) -> &mut Turn {
        if self.open.as_ref().is_some_and(is_over) {
            self.close();
        }
        self.open.get_or_insert_default()
    }

    /// Appends an item.
    pub(super) fn item(&mut self, at: &Place, value: &Value) -> Result<(), RequestError> {
        // Messages may do without a type.
        let typed;
        let value = match value.as_object() {
            Some(fields) if fields.contains_key("role") && fields.get("type").is_none_or(Value::is_null) => {
                let mut fields = fields.clone();
                fields.insert("type".into(), "message".into());
                typed = Value::from(fields);
                &typed
            }
            _ => value,
        };
        let item = Part::of(at, value, &OF_ITEM)?;
        match item.kind {
            "message" => self.message(&item),
            "reasoning" => {
                item.known(&["summary", "content", "encrypted_content"])?;
                let thought = match thought(&item, "content", "reasoning_text")? {
                    text if text.is_empty() => thought(&item, "summary", "summary_text")?,
                    text => text,
                };
                self.turn(Turn::has_spoken).thought.push_str(&thought);
                Ok(())
            }
            "function_call" => {
                item.known(&["call_id", "name", "arguments"])?;
                let mut called = json!({ "name": item.text("name")?, "arguments": item.text("arguments")? });
                function(at, &mut called)?;
                let call = call(item.text("call_id")?, item.text("name")?, called["arguments"].take(), &mut self.names);
                self.turn(|_| false).calls.push(call);
                Ok(())
            }
            "function_call_output" => {
                item.known(&["call_id", "name", "output"])?;
                let (id, at) = (item.text("call_id")?, at.within(".output"));
                let text = match item.fields.get("output") {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Array(parts)) => texts(&at, parts, "input_text")?,
                    _ => return Err(at.wrong("expected a text or a list of parts")),
                };
                let message = result(id, text, &self.names);
                self.push(message);
                Ok(())
            }
            kind => {
                let reason = format!(
                    "{kind:?} is not supported, expected message, reasoning, function_call or function_call_output"
                );
                Err(at.within(".type").wrong(reason))
            }
        }
    }

    fn message(&mut self, item: &Part<'_>) -> Result<(), RequestError> {
        item.known(&["role", "content"])?;
        let (role, at) = (item.text("role")?, item.at.within(".content"));
        let is_known = matches!(role, "assistant" | "user" | "system" | "developer");
        item.at.within(".role").ensure(is_known, "expected user, assistant, system or developer")?;
        let mut content = Content::new(role);
        match item.fields.get("content") {
            Some(Value::String(text)) => content.text(text),
            Some(Value::Array(parts)) => {
                for (index, part) in parts.iter().enumerate() {
                    let at = at.within(format_args!("[{index}]"));
                    let part = Part::of(&at, part, &OF_PART)?;
                    match (part.kind, role) {
                        ("input_text", _) | ("output_text", "assistant") => {
                            part.known(&["text"])?;
                            content.text(part.text("text")?);
                        }
                        ("refusal", "assistant") => {
                            part.known(&["refusal"])?;
                            content.text(part.text("refusal")?);
                        }
                        ("input_image", "user") => {
                            part.known(&["image_url"])?;
                            content.image(image_at(&at.within(".image_url"), part.text("image_url")?)?);
                        }
                        (kind, _) => {
                            let reason = format!("{kind:?} is not supported in a message of the {role}");
                            return Err(at.within(".type").wrong(reason));
                        }
                    }
                }
            }
            _ => return Err(at.wrong("expected a text or a list of parts")),
        }
        if role == "assistant" {
            self.turn(Turn::has_spoken).content = Some(content);
        } else {
            self.push(content.finish());
        }
        Ok(())
    }
}

/// The texts of a thought in the field `name`, whose parts are of this `kind`.
fn thought(item: &Part<'_>, name: &str, kind: &str) -> Result<String, RequestError> {
    let at = item.at.within(format_args!(".{name}"));
    match item.fields.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::Array(parts)) => texts(&at, parts, kind),
        Some(_) => Err(at.wrong("expected a list of parts")),
    }
}

/// The texts of `parts`, all of which are of this `kind`.
fn texts(at: &Place, parts: &[Value], kind: &str) -> Result<String, RequestError> {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let part = Part::of(&at, part, &OF_PART)?;
        at.within(".type").ensure(part.kind == kind, format_args!("expected {kind}"))?;
        part.known(&["text"])?;
        text.push_str(part.text("text")?);
    }
    Ok(text)
}

/// An item that was read, as it is given back: with its type, an `id` and a list of parts.
pub(super) fn with_id(mut item: Value, id: &str) -> Value {
    let Some(fields) = item.as_object_mut() else { return item };
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
    if !fields.get("id").is_some_and(Value::is_string) {
        let prefix = match &*kind {
            "reasoning" => "rs",
            "function_call" => "fc",
            "function_call_output" => "fco",
            _ => "msg",
        };
        fields.insert("id".into(), format!("{prefix}_{id}").into());
    }
    if let Some(Value::String(text)) = fields.get("content") {
        let kind =
            if fields.get("role").is_some_and(|role| role == "assistant") { "output_text" } else { "input_text" };
        let mut part = json!({ "type": kind, "text": text });
        if kind == "output_text" {
            part["annotations"] = json!([]);
        }
        fields.insert("content".into(), json!([part]));
    }
    fields.insert("type".into(), kind.into());
    fields.entry("status").or_insert("completed".into());
    item
}
