//! How models write tool calls: each format is a file of this folder and a line in `formats!`. A chat template shows
//! the format of its model; the text of a call is parsed into a name and arguments.

mod arguments;
mod json;
mod literal;
mod python;

pub use arguments::{Arguments, members};
pub use literal::SPECIAL;

use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fmt;

macro_rules! formats {
    ($($format:ident = $file:ident, $models:literal;)*) => {
        $(mod $file;)*

        /// How a model writes a tool call, by the name of vLLM's tool parser for it. Complete.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ToolCallFormat {
            $(#[doc = $models] $format,)*
        }

        impl ToolCallFormat {
            /// All formats, in the order in which a template is searched for them.
            pub const ALL: &[ToolCallFormat] = &[$(ToolCallFormat::$format,)*];

            /// The description of the format.
            pub fn description(self) -> &'static Description {
                match self {
                    $(ToolCallFormat::$format => &$file::FORMAT,)*
                }
            }
        }
    };
}

// Where templates of two formats have the same marks, the one with more of them comes first.
formats! {
    Harmony = harmony, "gpt-oss.";
    Gemma4 = gemma4, "Gemma 4.";
    DeepseekV3 = deepseek_v3, "DeepSeek V3 and R1.";
    DeepseekV31 = deepseek_v31, "DeepSeek V3.1.";
    MistralArgs = mistral_args, "Mistral Small 3.2, Ministral 3.";
    Mistral = mistral, "Mistral until Nemo.";
    Qwen3Xml = qwen3_xml, "Qwen3-Coder, Qwen3.5.";
    Lfm2 = lfm2, "LFM2.";
    Olmo3 = olmo3, "OLMo 3.";
    Phi4MiniJson = phi4_mini_json, "Phi-4-mini, Granite 3.";
    Pythonic = pythonic, "Templates for Llama 4 and Gemma 3 that ask for lists of calls.";
    Hermes = hermes, "Hermes, Qwen2.5, Qwen3, Granite 4.";
    Llama3Json = llama3_json, "Llama 3.";
}

/// Marks of unsupported formats, each with a mark that shows a supported format after all.
const UNREAD: [(&str, Option<&str>); 5] = [
    ("<seed:tool_call>", None),
    ("<arg_key>", None),
    ("<invoke name=", None),
    ("<tool_calls>", None),
    ("<function=", Some("<parameter=")),
];

impl ToolCallFormat {
    /// The format that the marks in a template show, with these marks; `None` if there is none.
    pub fn of(template: &str) -> Option<(ToolCallFormat, &'static [&'static str])> {
        let has = |mark: &str| template.contains(mark);
        let is_unread = UNREAD.iter().any(|(mark, unless)| has(mark) && !unless.is_some_and(has));
        ToolCallFormat::ALL.iter().find_map(|format| {
            let Description { shown_by, shares_marks, .. } = format.description();
            let marks = shown_by.iter().find(|marks| marks.iter().all(|mark| has(mark)))?;
            (!(*shares_marks && is_unread)).then_some((*format, *marks))
        })
    }
}

impl fmt::Display for ToolCallFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description().name)
    }
}

impl Serialize for ToolCallFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.description().name)
    }
}

/// A format: how a template shows it, how its calls are found and read, and how they are written.
///
/// A mark that is an added token of the vocabulary only matches that token, not its letters; any other mark is matched as text.
#[derive(Debug)]
pub struct Description {
    /// The name for display.
    pub name: &'static str,
    /// The marks in a chat template that show it: all texts of the first list that the template has.
    pub shown_by: &'static [&'static [&'static str]],
    /// Whether unsupported formats have its marks too. A template with marks of such a format does not count.
    pub shares_marks: bool,
    /// Marks that begin a call; a call is written with the first.
    pub opens: &'static [&'static str],
    /// Marks that end a call, besides the end of the answer and the next call; a call is written with the first.
    pub closes: &'static [&'static str],
    /// Marks before and after all calls, which have no meaning.
    pub frames: Option<[&'static str; 2]>,
    /// How a call of a known tool begins if its mark is missing.
    pub unmarked: Option<&'static str>,
    /// Reads what is between the marks.
    pub read: Read,
    /// The text between the marks, for the grammar of a call.
    pub call: &'static [Part],
    /// How calls follow each other.
    pub several: Several,
}

impl Description {
    /// The defaults of a JSON format.
    const JSON: Description = Description {
        name: "",
        shown_by: &[],
        shares_marks: false,
        opens: &[],
        closes: &[],
        frames: None,
        unmarked: None,
        read: json::calls,
        call: &json::CALL,
        several: Several::Each { between: "" },
    };
}

/// Reads the calls in a text. `None` means no call: the text is then part of the answer.
pub type Read = fn(&str, &[Tool]) -> Option<Vec<Written>>;

/// A part of a call as it is written.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A text.
    Text(&'static str),
    /// The name of the tool, between these texts.
    Name(&'static str, &'static str),
    /// The name of the tool as a JSON string, between these texts.
    JsonName(&'static str, &'static str),
    /// A token of the vocabulary, or its letters where there is no such token.
    Mark(&'static str),
    /// An id of a call as in Mistral: nine letters and digits.
    Id,
    /// This token and an id, or neither; nothing if the vocabulary has no such token.
    OptionalId(&'static str),
    /// The arguments as a JSON object.
    Json,
    /// The arguments one after the other: each name between the first two texts, and the third after its value, with
    /// strings as they are and other values as JSON.
    Each(&'static str, &'static str, &'static str),
    /// The arguments as pairs of names and values.
    Pairs(&'static Notation),
}

/// How values are written in a notation other than JSON.
#[derive(Clone, Copy, Debug)]
pub struct Notation {
    /// The text between the name of an argument and its value.
    pub assign: &'static str,
    /// The text between a key of an object and its value.
    pub colon: &'static str,
    /// The text between two values.
    pub comma: &'static str,
    /// The words for true, false and null.
    pub words: [&'static str; 3],
    /// The mark on both sides of a string; without it strings are Python's.
    pub quote: Option<&'static str>,
    /// Whether the keys that a schema names have no quotes and are in alphabetical order.
    pub plain_keys: bool,
}

/// How calls follow each other.
#[derive(Clone, Copy, Debug)]
pub enum Several {
    /// Each call has its own marks, with a text between two calls.
    Each {
        /// The text between two calls.
        between: &'static str,
    },
    /// All are within one pair of marks, with these texts before, between and after them.
    List {
        /// The text before the first call.
        begin: &'static str,
        /// The text between two calls.
        between: &'static str,
        /// The text after the last call.
        end: &'static str,
        /// Whether the closing mark is written if the vocabulary has no token for it.
        spells_close: bool,
    },
    /// The answer is one call, which needs no mark.
    Bare,
    /// A call is a message to `functions.NAME`.
    Messages,
}

/// A tool that a model may call.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name of the tool.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
}

impl Tool {
    /// The schema of a parameter.
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.parameters.pointer("/properties")?.get(name)
    }
}

/// A call as a model wrote it.
#[derive(Debug, PartialEq)]
pub struct Written {
    /// The id of the call, if it has one.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

impl Written {
    fn new(name: &str, arguments: Arguments) -> Written {
        Written { id: None, name: name.to_owned(), arguments }
    }
}

/// Whether a schema takes values of this type, `string` or `null`, as far as its own keywords say.
pub fn takes(schema: &Value, name: &str) -> bool {
    let is = |value: &Value| if name == "null" { value.is_null() } else { value.is_string() };
    if let Some(types) = schema.get("type") {
        return types == name || types.as_array().is_some_and(|types| types.iter().any(|one| one == name));
    }
    let all = |key: &str| schema.get(key).and_then(Value::as_array);
    match (all("enum"), all("anyOf").or_else(|| all("oneOf"))) {
        (Some(values), _) => values.iter().any(is),
        (None, Some(schemas)) => schemas.iter().any(|schema| takes(schema, name)),
        _ => schema.get("const").is_some_and(is),
    }
}

#[cfg(test)]
mod tests;
