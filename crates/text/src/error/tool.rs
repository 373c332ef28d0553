//! Why an answer cannot call tools as asked.

use model_factory_format::tokenizer::ToolCallFormat;

/// A `ToolChoice` that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// Calls are wanted, and there are no tools in the chat options.
    #[error("a tool call is required, and there are no tools; give their schemas in ChatOptions::tools")]
    NoTools,
    /// The named tool is not among those that were given.
    #[error("there is no tool {name}; there is {}", .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The chat template has no marks of a format of calls that is known.
    #[error("the chat template tells no known format of tool calls; ask for JSON by a schema in place of a tool")]
    NoFormat,
    /// Text and calls cannot be told apart while the answer is written.
    #[error(
        "with {format} calls an answer that may be text cannot be held to schemas: no token begins a call; take \
         ToolChoice::Required, or ToolChoice::Auto and check the arguments"
    )]
    NotStrict {
        /// The format.
        format: ToolCallFormat,
    },
    /// Arguments are an object, and the schema says another type.
    #[error("the schema of {tool}'s arguments has the type {found}, expected object")]
    NotObject {
        /// The tool.
        tool: String,
        /// The type, as JSON.
        found: String,
    },
    /// Calls of this format could not be read with such a name.
    #[error("{name:?} of the tool {tool} cannot be written in a {format} call; name it by letters, digits, - and _")]
    Name {
        /// The tool.
        tool: String,
        /// Its name, or that of a parameter.
        name: String,
        /// The format.
        format: ToolCallFormat,
    },
    /// A part of the schema of a tool's arguments allows no value, nests too deep, or is of a kind that the format cannot be held to.
    #[error("the schema of {tool}'s arguments: {reason}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A grammar of the answer leaves no room for calls: a regular expression, or one in Lark.
    #[error(
        "the answer is held to a grammar that calls of tools cannot stand next to; take a JSON schema or a choice, or \
         ToolChoice::None"
    )]
    WithGrammar,
    /// An answer that is calls or a value of a grammar holds calls to their schemas, and these cannot be.
    #[error("tools with a grammar (response_format) are held to their schemas: {reason}; leave out one of the two")]
    BesideGrammar {
        /// Why they cannot be.
        reason: String,
    },
}
