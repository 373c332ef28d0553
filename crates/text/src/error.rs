//! Errors of tokenizers, chat templates, grammars and tool calls.

use model_factory_dtypes::memory::OutOfMemory;
use model_factory_format::Cancelled;
use model_factory_format::error::escaped;
use model_factory_format::tokenizer::{TemplatePlace, ToolCallFormat};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of working with texts. `Debug` writes what `Display` does.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum Error {
    /// The files are missing or invalid.
    #[error(transparent)]
    Files(Arc<model_factory_format::Error>),
    /// The description of the tokenizer does not make a tokenizer.
    #[error("{}: the tokenizer is damaged: {reason}", file.display())]
    Tokenizer { file: PathBuf, reason: String },
    /// A text could not be turned into ids.
    #[error("the text cannot be turned into ids: {0}")]
    Encode(#[from] EncodeError),
    /// Messages could not be turned into a text.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// No answer can be held to the grammar, or the answer did not come to its end.
    #[error(transparent)]
    Grammar(Box<GrammarError>),
    /// The answer cannot call tools as asked.
    #[error(transparent)]
    Tool(Box<ToolError>),
    /// A text that ends a generation, by its index from 0, is empty.
    #[error("stop string {index} is empty, expected at least one character")]
    EmptyStopString { index: usize },
    /// The system refused memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The caller's `CancellationToken` was cancelled.
    #[error("cancelled by the caller")]
    Cancelled,
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<std::io::Error> },
    /// A fault of this library.
    #[error("internal error: {0}")]
    Internal(String),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<model_factory_format::Error> for Error {
    fn from(error: model_factory_format::Error) -> Self {
        Error::Files(Arc::new(error))
    }
}

impl From<GrammarError> for Error {
    fn from(error: GrammarError) -> Error {
        Error::Grammar(Box::new(error))
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        Error::Tool(Box::new(error))
    }
}

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Error {
        Error::Cancelled
    }
}

/// Why a text could not become ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum EncodeError {
    /// A step makes far more bytes of the text than that of any published tokenizer.
    #[error(
        "{step} makes more than {limit} bytes of a text of {bytes}; no known tokenizer does, so its file is damaged or hostile"
    )]
    TooLong { step: &'static str, bytes: usize, limit: usize },
    /// A pattern, shown by its beginning, takes far more steps on this text than that of any published tokenizer.
    #[error("the tokenizer's pattern {pattern:?} gives up on it: {reason}")]
    Pattern { pattern: String, reason: String },
    /// The character that `text` begins with has no token, and the vocabulary lacks the token `unknown`, or this key.
    #[error("{text:?} has no token, and the tokenizer's {unknown:?} in its place is none")]
    NoToken { text: String, unknown: String },
    /// A text is to be filled in, and the vocabulary has no tokens for that.
    #[error("the model's vocabulary has no tokens to fill in the middle, such as <|fim_prefix|>; leave the suffix out")]
    NoInfill,
}

/// Why a model's chat template made no prompt of the messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum ChatError {
    /// The model has no chat template (exit code 2).
    #[error("the model has no chat template, so it cannot be chatted with; give it a text to continue")]
    NoTemplate,
    /// The model has no chat template of the name asked for, or several and none is named `default` (exit code 2).
    #[error("{}", template_name(.asked.as_deref(), .known))]
    TemplateName { asked: Option<String>, known: Vec<String> },
    /// The chat template cannot write these messages, but can write others (exit code 2). Its lines are counted from 1.
    #[error(
        "the model's chat template cannot write these messages: {}{}; check the fields that they have",
        escaped(.reason),
        .line.map(|line| format!(", line {line} of the template")).unwrap_or_default()
    )]
    Messages { line: Option<usize>, reason: String },
    /// The chat template is not Jinja, or fails on any messages (exit code 10).
    #[error(
        "{}{}: the chat template cannot be rendered: {}; give the model a text to continue",
        escaped(&.place.to_string()),
        .line.map(|line| format!(", line {line}")).unwrap_or_default(),
        escaped(.reason)
    )]
    Template { place: TemplatePlace, line: Option<usize>, reason: String },
    /// The chat template refuses these messages, with a message of its own (exit code 2).
    #[error("the model's chat template refuses the messages: {}", escaped(.message))]
    Refused { message: String },
    /// A message, by its number from 1, has a part that is neither a text nor an image with its bytes (exit code 2).
    #[error(
        "message {message} of the chat has a part of type {kind}, expected texts, and images by their bytes (`Message::image`, in \
         JSON base64 or a data URL); leave the part out, or say in words what it shows"
    )]
    NotText { message: usize, kind: &'static str },
    /// The chat template does not write as many marks as the messages have images (exit code 2).
    #[error(
        "the chat template wrote {mark} {found} times for {images} images; take a template that writes it once for each, or leave \
         the images out"
    )]
    ImageMarks { mark: String, found: usize, images: usize },
    /// The last message cannot be continued (exit code 2).
    #[error("the last message cannot be continued: {reason}; leave continue_final_message out")]
    Continue { reason: &'static str },
    /// The chat template does not end, or writes too much (exit code 10).
    #[error(
        "{}: the chat template takes more than {limit} {what}; give the model a text to continue",
        escaped(&.place.to_string())
    )]
    Limit { place: TemplatePlace, what: &'static str, limit: u64 },
    /// A text is not a date and time (exit code 2).
    #[error("{text:?} is no date and time, expected one such as 2026-01-31T12:00:00")]
    Time { text: String },
}

impl ChatError {
    /// The exit code that the examples document: 10 if the template is at fault, else 2.
    pub fn code(&self) -> u8 {
        match self {
            ChatError::Template { .. } | ChatError::Limit { .. } => 10,
            _ => 2,
        }
    }
}

fn template_name(asked: Option<&str>, known: &[String]) -> String {
    const SHOWN: usize = 16;
    let names = known.iter().take(SHOWN).map(|name| escaped(name)).collect::<Vec<_>>().join(", ");
    let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
    match asked {
        Some(name) => format!("the model has no chat template named {name:?}; choose one of {names}{more}"),
        None => format!("the model has chat templates by name and none is named default; choose one of {names}{more}"),
    }
}

/// A grammar that no answer can be held to: impossible, not supported, too large or too hard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum GrammarError {
    /// The grammar has more bytes, levels or texts than are allowed. Those beyond the limit may not be counted.
    #[error("{what}: {found} {unit}, expected at most {limit}")]
    TooLarge { what: &'static str, unit: &'static str, found: usize, limit: usize },
    /// A part of a JSON schema, by its JSON pointer, cannot be kept, or contradicts another.
    #[error("JSON schema, at {}: {reason}", if .place.is_empty() { "its root" } else { .place })]
    Schema { place: String, reason: String },
    /// A regular expression or a Lark grammar is malformed, unsupported or matches nothing.
    #[error("{what}: {reason}")]
    Malformed { what: &'static str, reason: String },
    /// There are no texts to choose among, or the one of this index, from 0, is empty.
    #[error("{}", match .index {
        Some(index) => format!("choice {index} is empty, expected at least one character"),
        None => "there is nothing to choose among, expected at least one text".into(),
    })]
    EmptyChoice { index: Option<usize> },
    /// The tokens of the vocabulary cannot spell what the grammar requires after this end of the answer.
    #[error(
        "no token of the vocabulary continues {text:?} as the grammar wants; take a model whose vocabulary has every byte"
    )]
    NoToken { text: String },
    /// Finding the allowed tokens after this end of the answer takes more work than one step may.
    #[error("the grammar is too hard after {text:?}: {reason}; bound its repetitions, or make its parts differ sooner")]
    TooHard { text: String, reason: String },
    /// The grammars of other running answers leave too little of the memory for grammars.
    #[error(
        "the grammar takes {bytes} bytes, and those of other answers leave less of {limit}; try again when some have ended"
    )]
    Memory { bytes: u64, limit: u64 },
    /// A token was given that is not allowed next.
    #[error("token {token} may not come next by the grammar")]
    NotAllowed { token: u32 },
    /// The vocabulary has too many different prefixes of tokens to hold its answers to a grammar.
    #[error(
        "no answer of this vocabulary can be held to a grammar: its tokens have {nodes} beginnings, expected at most {limit}"
    )]
    Vocabulary { nodes: usize, limit: usize },
    /// The answer ended before it was complete: `max_tokens` or the context was too small, or a stop string came.
    #[error("the answer ended by {finish} before it was complete: {text:?}")]
    Incomplete { finish: String, text: String },
    /// The answer matches the schema, but is not a value of the type.
    #[error("the answer is no value of the type: {reason}: {text:?}")]
    Value { reason: String, text: String },
}

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
