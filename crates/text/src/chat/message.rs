//! A conversation: turns, and the options that a template gets with them.

use super::time::LocalTime;
use crate::tools::ToolCall;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory_format::Image;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One turn of a conversation. In JSON it has the form of transformers and the OpenAI API:
/// `{"role": "user", "content": "Hi"}`, with [`fields`](Self::fields) next to these two. A content that is a list of parts,
/// `[{"type": "text", "text": "Hi"}]`, is the field `content`, and the template decides how to read it. In JSON an image is
/// `{"type": "image", "base64": ..}` or `{"type": "image_url", "image_url": {"url": "data:image/png;base64,.."}}`; other parts that
/// are no text, also paths and addresses of images, are an error when the prompt is made.
///
/// ```
/// use model_factory_text::chat::Message;
///
/// let message = Message::user("What is in this picture?").image("cat.png");
/// assert_eq!(message.images.len(), 1);
/// ```
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
    /// The images, one for each part `{"type": "image"}` of the field `content`, in this order.
    pub images: Vec<Image>,
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
        let mut images = Vec::new();
        let content = match content {
            Some(Content::Text(text)) => Some(text),
            Some(Content::Parts(mut parts)) => {
                images.extend(parts.iter_mut().filter_map(taken));
                fields.insert(CONTENT.into(), Value::Array(parts));
                None
            }
            None => None,
        };
        Message { role, content, fields, images }
    }
}

impl From<Message> for Stored {
    fn from(Message { role, content, mut fields, images }: Message) -> Stored {
        let content = match (fields.remove(CONTENT), content) {
            (Some(Value::Array(mut parts)), _) => {
                for (part, image) in parts.iter_mut().filter(|part| is_image(part)).zip(images) {
                    *part = stored(&image);
                }
                Some(Content::Parts(parts))
            }
            (_, text) => text.map(Content::Text),
        };
        Stored { role, content, fields }
    }
}

const CONTENT: &str = "content";

/// A part that stands for an image: nothing of the image itself, which templates need not see.
fn image_part() -> Value {
    json!({ "type": "image" })
}

fn text_part(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

fn is_image(part: &Value) -> bool {
    *part == image_part()
}

/// Takes the image out of a part that has its bytes; other parts stay as they are.
fn taken(part: &mut Value) -> Option<Image> {
    let kind = part.get("type")?.as_str()?;
    let text = match kind {
        "image" => part.get("base64")?.as_str()?,
        "image_url" => data_url(part.get("image_url")?.get("url")?.as_str()?)?,
        _ => return None,
    };
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    *part = image_part();
    Some(bytes.into())
}

/// The base64 of a data URL.
pub fn data_url(url: &str) -> Option<&str> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    kind.ends_with(";base64").then_some(data)
}

/// The part of JSON that has `image`.
fn stored(image: &Image) -> Value {
    match image {
        Image::Bytes(bytes) => json!({ "type": "image", "base64": BASE64_STANDARD.encode(bytes) }),
        Image::Path(path) => json!({ "type": "image", "path": path }),
        Image::Rgb { width, height, pixels } => {
            json!({ "type": "image", "width": width, "height": height, "rgb": BASE64_STANDARD.encode(pixels) })
        }
        _ => image_part(),
    }
}

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
        Message { role: role.into(), content: Some(content.into()), fields: Map::new(), images: Vec::new() }
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
        Message { content: None, ..Message::assistant("") }.field("tool_calls", calls)
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

    /// Adds an image after the content so far: a path, the bytes of a file, or pixels. The model must have been loaded with its
    /// vision tower.
    pub fn image(mut self, image: impl Into<Image>) -> Message {
        self.images.push(image.into());
        self.part(image_part())
    }

    /// Adds a text after the content so far.
    pub fn text(self, text: impl Into<String>) -> Message {
        self.part(text_part(text.into()))
    }

    /// With `part` after the content, which becomes a list of parts.
    fn part(mut self, part: Value) -> Message {
        let text = self.content.take().filter(|text| !text.is_empty()).map(text_part);
        let mut parts: Vec<Value> = text.into_iter().collect();
        if let Some(Value::Array(others)) = self.fields.remove(CONTENT) {
            parts.extend(others);
        }
        parts.push(part);
        self.field(CONTENT, parts)
    }

    /// Appends `text` to the last text of the content, and returns what it was; `None` if there is none.
    pub(super) fn append(&mut self, text: &str) -> Option<String> {
        let parts = self.fields.get_mut(CONTENT).and_then(Value::as_array_mut);
        let of_part = |part: &'_ mut Value| matches!(part.get("text"), Some(Value::String(_)));
        let last =
            parts.and_then(|parts| parts.iter_mut().rev().find_map(|part| of_part(part).then(|| &mut part["text"])));
        let last = match (&mut self.content, last) {
            (Some(content), _) => content,
            (None, Some(Value::String(last))) => last,
            _ => return None,
        };
        let before = last.clone();
        last.push_str(text);
        Some(before)
    }

    /// Adds the field `name`.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Message {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// The kind of the first part of the content that is neither a text nor one of [`images`](Self::images).
    pub(super) fn media(&self) -> Option<&'static str> {
        let (parts, mut images) = (self.fields.get(CONTENT)?.as_array()?, self.images.iter());
        parts.iter().filter(|part| !(is_image(part) && images.next().is_some())).find_map(media)
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
    /// Whether the answer continues the last message: the prompt ends with its text, without what the template writes after it.
    pub continue_final_message: bool,
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

    /// Sets whether the answer continues the last message.
    pub fn continue_final_message(mut self, continues: bool) -> Self {
        self.continue_final_message = continues;
        self
    }

    /// Sets the date and time for `strftime_now`.
    pub fn now(mut self, now: LocalTime) -> Self {
        self.now = Some(now);
        self
    }
}
