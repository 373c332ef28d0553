//! What a model says -> its calls of tools, and the other text.

mod calls;
mod grammar;
mod reader;

pub use calls::Calls;
pub(crate) use grammar::grammar;
pub use model_factory_format::tool_calls::Tool;
pub use reader::{CallReader, Part};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// A call of a tool, as a model made it. As JSON it is what chat templates and the OpenAI API take, with the arguments as an
/// object: `{"id": "..", "type": "function", "function": {"name": "..", "arguments": {..}}}`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCall {
    /// Tells it from the other calls of its conversation: nine digits, as Mistral's templates want them, or the model's
    /// own where it gives one; else the length of the prompt and the number of the call.
    pub id: String,
    /// The tool. A model may name one that there is not.
    pub name: String,
    /// Arguments by name, in the order in which they came. Unless the generation holds calls to the schemas of the tools
    /// (`GenerateOptions::tool_choice`), they are what the model likes. Numbers are those that
    /// a [`Value`] has: of 64 bits.
    pub arguments: Map<String, Value>,
    /// The arguments as the model wrote them, in JSON.
    json: Option<String>,
}

impl ToolCall {
    /// A call that was made before, for a conversation that is told again.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Value>) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments, json: None }
    }

    /// The arguments as an object of JSON, as the model wrote it: with every digit of its numbers. Where the format of calls is
    /// no JSON, or [`arguments`](Self::arguments) were changed, it is as short as can be.
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

/// By what is called, however it was written.
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

/// Whether an answer calls tools, of those in [`ChatOptions::tools`](crate::chat::ChatOptions::tools).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoice {
    /// As the model likes. Calls are read, and are as it writes them.
    #[default]
    Auto,
    /// As the model likes, and a call that it begins is held to the schemas of the tools.
    Strict,
    /// Calls of tools and nothing else, held to their schemas; what the model thinks before them is free.
    Required,
    /// One call of this tool, held to its schema.
    Named(String),
    /// No calls: the template is given no tools.
    None,
}

/// The tools of `schemas`: `{"type": "function", "function": {"name": .., "parameters": ..}}`, or only the inner object. What
/// has no name is left out: the template is what makes something of it.
pub fn tools(schemas: &[Value]) -> Vec<Tool> {
    let tool = |schema: &Value| {
        let function = schema.get("function").unwrap_or(schema);
        let name = function.get("name")?.as_str()?.to_owned();
        let parameters = function.get("parameters").filter(|parameters| !parameters.is_null());
        let mut parameters = parameters.cloned().unwrap_or_else(|| json!({}));
        if let Some(parameters) = parameters.as_object_mut() {
            // Arguments are an object, whether a schema says so or not.
            parameters.entry("type").or_insert("object".into());
            if parameters.len() == 1 {
                parameters.insert("properties".into(), json!({}));
            }
        }
        Some(Tool { name, parameters })
    };
    schemas.iter().filter_map(tool).collect()
}
