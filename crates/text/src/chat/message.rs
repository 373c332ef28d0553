//! A conversation: turns, and the options that a template gets with them.

use super::time::LocalTime;
use crate::tools::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One turn of a conversation. In JSON it has the form of transformers and the OpenAI API:
/// `{"role": "user", "content": "Hi"}`, with [`fields`](Self::fields) next to these two. A content that is a list of parts,
/// `[{"type": "text", "text": "Hi"}]`, is the field `content`, and the template decides how to read it. Parts that are
/// no text, such as images, are an error when the prompt is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
#[must_use]
#[non_exhaustive]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub role: String,
    /// The text; `None` for a turn that only calls tools. A template that checks for content sees none;
    /// a template that needs content gets an empty one.
    pub content: Option<String>,
    /// Other fields that the template reads, such as `tool_calls` or `reasoning_content`. A `null` is the same as a
    /// missing field, as in transformers.
    pub fields: Map<String, Value>,
}

/// A [`Message`] as JSON.
#[derive(Serialize, Deserialize)]
struct Stored {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a content that is a text or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

impl From<Stored> for Message {
    fn from(Stored { role, content, mut fields }: Stored) -> Message {
        let content = match content {
            Some(Content::Text(text)) => Some(text),
            Some(Content::Parts(parts)) => {
                fields.insert(CONTENT.into(), Value::Array(parts));
                None
            }
            None => None,
        };
        Message { role, content, fields }
    }
}

impl From<Message> for Stored {
    fn from(Message { role, content, mut fields }: Message) -> Stored {
        let content = match (fields.remove(CONTENT), content) {
            (Some(Value::Array(parts)), _) => Some(Content::Parts(parts)),
            (_, text) => text.map(Content::Text),
        };
        Stored { role, content, fields }
    }
}

const CONTENT: &str = "content";

/// Kinds of parts that are no text, by the `type` that transformers and the OpenAI API give them, or by a key of that name.
const MEDIA: &[&str] = &[
    "image",
    "image_url",
    "input_image",
    "audio",
    "audio_url",
    "input_audio",
    "video",
    "video_url",
    "file",
    "input_file",
];

/// The kind of a content's part if it is not only text.
pub fn media(part: &Value) -> Option<&'static str> {
    let is = |kind: &str| {
        part.get("type").and_then(Value::as_str) == Some(kind) || part.get(kind).is_some_and(|value| !value.is_null())
    };
    MEDIA.iter().copied().find(|kind| is(kind))
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: Some(content.into()), fields: Map::new() }
    }

    /// A system message.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }

    /// A turn in which the model calls tools: a list of `{"type": "function", "function": {"name": .., "arguments": ..}}`.
    pub fn tool_calls(calls: impl Into<Value>) -> Message {
        let message = Message { role: "assistant".into(), content: None, fields: Map::new() };
        message.field("tool_calls", calls)
    }

    /// A turn with tool calls of a model, and no content.
    pub fn calls(calls: &[ToolCall]) -> Message {
        // Maps with names as keys can always be serialized.
        Message::tool_calls(serde_json::to_value(calls).unwrap_or_default())
    }

    /// The result of the tool call `call`.
    pub fn tool_result(call: &ToolCall, content: impl Into<String>) -> Message {
        Message::tool(content).field("name", call.name.as_str()).field("tool_call_id", call.id.as_str())
    }

    /// The result of a tool.
    pub fn tool(content: impl Into<String>) -> Message {
        Message::new("tool", content)
    }

    /// Adds the field `name`.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Message {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// The kind of the first part of the content that is not only text.
    pub(super) fn media(&self) -> Option<&'static str> {
        self.fields.get(CONTENT)?.as_array()?.iter().find_map(media)
    }

    /// Whether it is a turn of the model without content, like those that only call tools.
    pub(super) fn is_without_content(&self) -> bool {
        let is_models = matches!(&*self.role, "assistant" | "model");
        is_models && self.content.is_none() && self.fields.get(CONTENT).is_none_or(Value::is_null)
    }

    /// The members of the object that a template sees, by the rules of transformers (`apply_chat_template`): no field is null, and
    /// thoughts have every name that templates know them by (`_alias_reasoning_fields`). If the model's turn has no
    /// content, it gets `absent`.
    pub(super) fn members<'m>(&'m self, absent: Option<&'m Value>) -> Vec<(&'m str, Cow<'m, Value>)> {
        let given = |name: &str| self.fields.get(name).filter(|value| !value.is_null()).map(Cow::Borrowed);
        let thought = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(given);
        let content = self.content.as_deref().map(|content| Cow::Owned(content.into()));
        let content = content.or(absent.filter(|_| self.is_without_content()).map(Cow::Borrowed));
        let role = Some(Cow::Owned(self.role.as_str().into()));
        let mut members = vec![("thinking", thought.clone()), ("role", role), (CONTENT, content)];
        members.retain(|(_, value)| value.is_some());
        let others = self.fields.keys().filter(|name| members.iter().all(|(known, _)| known != name));
        let others: Vec<_> = others.map(|name| (name.as_str(), None)).collect();
        members.extend(others);
        if given("reasoning_content").is_none() {
            members.push(("reasoning_content", thought));
        }
        members.into_iter().filter_map(|(name, value)| Some((name, given(name).or(value)?))).collect()
    }
}

/// A message of the user.
impl From<&str> for Message {
    fn from(content: &str) -> Message {
        Message::user(content)
    }
}

/// The options that a template gets with the messages, and the choice of the template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
#[non_exhaustive]
pub struct ChatOptions {
    /// Variables by name, such as `enable_thinking`; they take precedence over the template's own.
    pub variables: BTreeMap<String, Value>,
    /// The tools that the model may call, each as its JSON schema.
    pub tools: Option<Vec<Value>>,
    /// The template's name. Without one it is `tool_use` where there are tools and the model has a template of that
    /// name, else `default`.
    pub template: Option<String>,
    /// The local date and time for `strftime_now`; the machine's when absent.
    pub now: Option<LocalTime>,
    /// Whether special tokens that are spelled in messages, tools or variables become special tokens, as in transformers.
    /// If not, they stay text, and only text of the template itself becomes special tokens.
    pub trust_special_tokens: bool,
}

impl ChatOptions {
    /// Sets the variable `name`.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Adds a tool: `{"type": "function", "function": {"name": .., "description": .., "parameters": ..}}`.
    pub fn tool(mut self, schema: impl Into<Value>) -> Self {
        self.tools.get_or_insert_default().push(schema.into());
        self
    }

    /// Chooses the template of this name.
    pub fn template(mut self, name: impl Into<String>) -> Self {
        self.template = Some(name.into());
        self
    }

    /// Sets whether special tokens that are spelled in messages, tools and variables become special tokens.
    pub fn trust_special_tokens(mut self, trust: bool) -> Self {
        self.trust_special_tokens = trust;
        self
    }

    /// Sets the date and time for `strftime_now`.
    pub fn now(mut self, now: LocalTime) -> Self {
        self.now = Some(now);
        self
    }
}
