//! Parts, calls and results of turns, which several APIs have in forms of their own -> messages.

use crate::error::RequestError;
use crate::fields::Place;
use model_factory::Message;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// An object with a `type`: a part of a content, or an item.
pub(super) struct Part<'v> {
    pub(super) at: &'v Place,
    pub(super) kind: &'v str,
    pub(super) fields: &'v Map<String, Value>,
    /// Fields that do not change what it says.
    unread: &'static [&'static str],
}

impl<'v> Part<'v> {
    pub(super) fn of(
        at: &'v Place,
        value: &'v Value,
        unread: &'static [&'static str],
    ) -> Result<Part<'v>, RequestError> {
        let fields = value.as_object().ok_or_else(|| at.wrong("expected an object"))?;
        Ok(Part { at, kind: at.text(fields, "type")?, fields, unread })
    }

    pub(super) fn text(&self, name: &str) -> Result<&'v str, RequestError> {
        self.at.text(self.fields, name)
    }

    /// Refuses fields other than the type, `names` and those of every part.
    pub(super) fn known(&self, names: &[&str]) -> Result<(), RequestError> {
        self.at.known(self.fields, &[&["type"], names, self.unread].concat())
    }
}

/// The content of a turn as its parts come: only texts become one text, and images stand where their parts do.
pub(super) struct Content {
    message: Message,
    text: String,
    has_image: bool,
    /// Whether there is a part.
    pub(super) is_said: bool,
}

impl Content {
    pub(super) fn new(role: &str) -> Content {
        Content { message: Message::new(role, ""), text: String::new(), has_image: false, is_said: false }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.is_said = true;
        if self.has_image {
            self.message = std::mem::replace(&mut self.message, Message::new("", "")).text(text);
        } else {
            self.text.push_str(text);
        }
    }

    pub(super) fn image(&mut self, image: Vec<u8>) {
        let mut message = std::mem::replace(&mut self.message, Message::new("", ""));
        if !self.has_image && !self.text.is_empty() {
            message = message.text(std::mem::take(&mut self.text));
        }
        self.message = message.image(image);
        (self.has_image, self.is_said) = (true, true);
    }

    /// The message; only that of the assistant may have no content.
    pub(super) fn finish(self) -> Message {
        let mut message = self.message;
        if !self.has_image {
            message.content = Some(self.text).filter(|_| self.is_said || message.role != "assistant");
        }
        message
    }
}

/// `message` of the assistant with a thought before it and the calls of functions after it.
pub(super) fn with_calls(mut message: Message, thought: String, calls: Vec<Value>) -> Message {
    if !thought.is_empty() {
        message = message.field("reasoning_content", thought);
    }
    if calls.is_empty() { message } else { message.field("tool_calls", calls) }
}

/// A call of a function. `names` are those of the functions by the ids of their calls.
pub(super) fn call(id: &str, name: &str, arguments: Value, names: &mut HashMap<String, String>) -> Value {
    names.insert(id.into(), name.into());
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// The message with the result of the call with this `id`.
pub(super) fn result(id: &str, text: String, names: &HashMap<String, String>) -> Message {
    let message = Message::tool(text).field("tool_call_id", id);
    names.get(id).into_iter().fold(message, |message, name| message.field("name", name.as_str()))
}
