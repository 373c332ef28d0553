//! Errors of tokenizers, chat templates, grammars and tool calls.

mod chat;
mod grammar;
mod tool;

use model_factory_dtypes::memory::OutOfMemory;
use model_factory_format::Cancelled;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use chat::ChatError;
pub use grammar::GrammarError;
pub use tool::ToolError;

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
}
