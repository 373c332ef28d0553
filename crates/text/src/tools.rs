//! The text of a model -> its tool calls, and the rest of the text.

mod calls;
mod grammar;
mod reader;

pub use calls::Calls;
pub(crate) use grammar::grammar;
pub use model_factory_format::tool_calls::Tool;
pub use reader::CallReader;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// A tool call of a model. Its JSON is that of chat templates and the OpenAI API, with the arguments as an
/// object: `{"id": "..", "type": "function", "function": {"name": "..", "arguments": {..}}}`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCall {
    /// The id, unique among the calls of the conversation: nine digits, as Mistral's templates require, or the model's
    /// own if it gives one; otherwise made of the length of the prompt and the number of the call.
    pub id: String,
    /// The name of the tool. A model may name one that does not exist.
    pub name: String,
    /// Arguments by name, in the order in which they came. Unless the generation holds calls to the schemas of the tools
    /// (`GenerateOptions::tool_choice`), they are whatever the model wrote. Numbers are limited to those of
    /// a [`Value`], which has 64 bits.
    pub arguments: Map<String, Value>,
    /// The arguments as the model wrote them, in JSON.
    json: Option<String>,
}

impl ToolCall {
    /// A call that was made before, to repeat it in a conversation.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Value>) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments, json: None }
    }

    /// The arguments as a JSON object, as the model wrote it: with every digit of its numbers. If the format of calls is
    /// not JSON, or [`arguments`](Self::arguments) were changed, it is the shortest JSON.
    ///
    /// ```
    /// use model_factory_text::ToolCall;
    ///
    /// let call = ToolCall::new("1", "add", [("a".to_owned(), 1.into())].into_iter().collect());
    /// assert_eq!(call.arguments_json(), r#"{"a":1}"#);
    /// ```
    pub fn arguments_json(&self) -> String {
        let is_same =
            |json: &&String| serde_json::from_str::<Map<String, Value>>(json).ok().as_ref() == Some(&self.arguments);
        self.json.as_ref().filter(is_same).cloned().unwrap_or_else(|| Value::Object(self.arguments.clone()).to_string())
    }
}

/// Compares what is called, however it was written.
impl PartialEq for ToolCall {
    fn eq(&self, other: &ToolCall) -> bool {
        (&self.id, &self.name, &self.arguments) == (&other.id, &other.name, &other.arguments)
    }
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        json!({ "id": self.id, "type": "function", "function": function }).serialize(serializer)
    }
}

/// Whether an answer calls tools, from those in [`ChatOptions::tools`](crate::chat::ChatOptions::tools).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides whether to call tools. Calls are parsed, and are not checked against schemas.
    #[default]
    Auto,
    /// The model decides whether to call tools, and its calls are held to the schemas of the tools.
    Strict,
    /// Only tool calls, held to their schemas; the model's thoughts before them are free.
    Required,
    /// One call of this tool, held to its schema.
    Named(String),
    /// No tool calls: the template gets no tools.
    None,
}

/// The tools of `schemas`: `{"type": "function", "function": {"name": .., "parameters": ..}}`, or only the inner object. Schemas
/// without a name are left out: only the template can use them.
pub fn tools(schemas: &[Value]) -> Vec<Tool> {
    let tool = |schema: &Value| {
        let function = schema.get("function").unwrap_or(schema);
        let name = function.get("name")?.as_str()?.to_owned();
        let parameters = function.get("parameters").filter(|parameters| !parameters.is_null());
        let mut parameters = parameters.cloned().unwrap_or_else(|| json!({}));
        if let Some(parameters) = parameters.as_object_mut() {
            // Arguments are an object, even if a schema does not say so.
            parameters.entry("type").or_insert("object".into());
            if parameters.len() == 1 {
                parameters.insert("properties".into(), json!({}));
            }
        }
        Some(Tool { name, parameters })
    };
    schemas.iter().filter_map(tool).collect()
}
