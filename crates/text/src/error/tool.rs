//! Why an answer cannot call tools as asked.

use model_factory_format::tokenizer::ToolCallFormat;

/// A `ToolChoice` that is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum ToolError {
    /// Calls are required, but there are no tools in the chat options.
    #[error("a tool call is required, and there are no tools; give their schemas in ChatOptions::tools")]
    NoTools,
    /// The named tool is not among those that were given.
    #[error("there is no tool {name}; there is {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    /// The chat template has no marks of a known format of calls.
    #[error("the chat template tells no known format of tool calls; ask for JSON by a schema in place of a tool")]
    NoFormat,
    /// Text and calls cannot be distinguished while the answer is written.
    #[error(
        "with {format} calls an answer that may be text cannot be held to schemas: no token begins a call; take \
         ToolChoice::Required, or ToolChoice::Auto and check the arguments"
    )]
    NotStrict { format: ToolCallFormat },
    /// The arguments of a call are an object, but the schema requires another type.
    #[error("the schema of {tool}'s arguments has the type {found}, expected object")]
    NotObject { tool: String, found: String },
    /// Calls of this format could not be parsed with such a name of the tool or of a parameter.
    #[error("{name:?} of the tool {tool} cannot be written in a {format} call; name it by letters, digits, - and _")]
    Name { tool: String, name: String, format: ToolCallFormat },
    /// A part of the schema of a tool's arguments allows no value, nests too deep, or is of a kind that the format cannot be held to.
    #[error("the schema of {tool}'s arguments: {reason}")]
    Schema { tool: String, reason: &'static str },
    /// A grammar of the answer leaves no room for calls: it is a regular expression or a Lark grammar.
    #[error(
        "the answer is held to a grammar that calls of tools cannot stand next to; take a JSON schema or a choice, or \
         ToolChoice::None"
    )]
    WithGrammar,
    /// An answer of calls or of a value of a grammar has to hold calls to their schemas, which is not possible here.
    #[error("tools with a grammar (response_format) are held to their schemas: {reason}; leave out one of the two")]
    BesideGrammar { reason: String },
}
