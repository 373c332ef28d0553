//! What can go wrong while loading and generating.

use crate::memory;
use model_diagnostics::Report;
use model_diagnostics::plan::KvDtype;
use model_diagnostics::tokenizer::TemplatePlace;
use std::fmt;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that stops a load or a generation. [`code`](Error::code) is the exit code of the examples. `Debug` writes what
/// `Display` does, and all of a refusal's report: that is what a `main` that returns the error shows.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model was diagnosed and does not run here; the report says why (the report's exit code).
    #[error("{}", .0.first_line())]
    Refused(Box<Report>),
    /// The operating system refused (exit code 1).
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A fault of this library (exit code 1).
    #[error("internal error: {0}")]
    Internal(String),
    /// The files are not what they must be (the code of the diagnosis).
    #[error(transparent)]
    Files(Box<model_diagnostics::Error>),
    /// The description of the tokenizer does not make a tokenizer (exit code 10).
    #[error("{}: the tokenizer is damaged: {reason}", file.display())]
    Tokenizer {
        /// The file that describes it.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A text could not be turned into ids (exit code 1).
    #[error("the text cannot be turned into ids: {0}")]
    Encode(#[from] crate::tokenizer::EncodeError),
    /// The system refuses memory (exit code 14). A session is as it was before the call.
    #[error(
        "out of memory: the system refuses {bytes} bytes for {what}; free some, or load with a smaller context or a lower memory limit"
    )]
    OutOfMemory {
        /// What was being reserved.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// The KV caches of all sessions would take more than the model was planned to have for them (exit code 14). Nothing is
    /// computed, and the session is as it was.
    #[error(
        "the KV cache would take {asked} bytes more, and the sessions of the model leave {left} of {budget}; drop or truncate sessions, or load with a smaller context or a larger memory limit"
    )]
    CacheBudget {
        /// Bytes that the session asked for.
        asked: u64,
        /// Bytes that all sessions leave.
        left: u64,
        /// Bytes that they have together.
        budget: u64,
    },
    /// The [`CancellationToken`](crate::CancellationToken) it was given was cancelled (exit code 1).
    #[error("cancelled by the caller")]
    Cancelled,
    /// This process was forked while the model computed in the other one (exit code 1).
    #[error(
        "this process was forked while a thread of the other one computed on the model; fork while nothing computes, or \
         load the model anew here"
    )]
    Forked,
    /// There is nothing to continue (exit code 2).
    #[error("the prompt is empty and the model puts no token in front; give at least one token")]
    EmptyPrompt,
    /// The sessions of a batch are not of one model (exit code 2).
    #[error("the sessions of a batch are of different models; make them all from one loaded model or its clones")]
    OtherModel,
    /// The text is longer than the context (exit code 2).
    #[error(
        "{asked} tokens do not fit in the {limit} that are left of the context; shorten the prompt, or load with a larger context if the model was trained for one"
    )]
    ContextOverflow {
        /// Positions that were free.
        limit: usize,
        /// Positions that were needed.
        asked: usize,
    },
    /// An id has no row in the embedding (exit code 2).
    #[error("token {id} is outside the vocabulary of {vocab}")]
    TokenOutOfVocabulary {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// No entry of the vocabulary can be chosen: its tokenizer marks all as unused (exit code 10).
    #[error("no token can be chosen: the tokenizer marks all {vocab} entries of its vocabulary as unused")]
    NothingToChoose {
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// The model computed a logit that is no number (exit code 1).
    #[error(
        "the logit of token {id} is {value}: the weights are damaged or a computation overflowed; no token can be chosen"
    )]
    NonFiniteLogits {
        /// The first token concerned.
        id: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// A key or value is infinite in the KV cache (exit code 1).
    #[error(
        "a key or value of layer {layer} at position {position} is {value}, beyond the {dtype} of the KV cache: {}",
        match .dtype {
            KvDtype::F16 if .value.is_finite() => "keep the cache in f32",
            _ => "the weights are damaged or a computation overflowed",
        }
    )]
    CacheOverflow {
        /// The layer, from 0.
        layer: usize,
        /// The position, from 0.
        position: usize,
        /// What it is.
        value: f32,
        /// The dtype of the cache.
        dtype: KvDtype,
    },
    /// An option of a load or a generation is out of its range (exit code 2).
    #[error("{option} is {value}, expected {expected}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: f64,
        /// The range.
        expected: &'static str,
    },
    /// A text that ends a generation is empty (exit code 2).
    #[error("stop string {index} is empty, expected at least one character")]
    EmptyStopString {
        /// Its place among the stop strings, from 0.
        index: usize,
    },
    /// The model has no chat template (exit code 2).
    #[error(
        "the model has no chat template, so it cannot be chatted with; continue a text: use --prompt, or Model::generate"
    )]
    NoChatTemplate,
    /// The model has no chat template of the name asked for, or several and none is named `default` (exit code 2).
    #[error("{}", template_name(.asked.as_deref(), .known))]
    ChatTemplateName {
        /// The name asked for.
        asked: Option<String>,
        /// The names there are.
        known: Vec<String>,
    },
    /// The chat template is no Jinja, or fails on these messages (exit code 10).
    #[error(
        "{}{}: the chat template cannot be rendered: {}; continue a text: use --prompt, or Model::generate",
        plain(&.place.to_string()),
        .line.map(|line| format!(", line {line}")).unwrap_or_default(),
        plain(.reason)
    )]
    ChatTemplate {
        /// Where the template was found.
        place: TemplatePlace,
        /// The line of the template, from 1.
        line: Option<usize>,
        /// What the template engine says.
        reason: String,
    },
    /// The chat template refuses these messages (exit code 2).
    #[error("the model's chat template refuses the messages: {}", plain(.message))]
    ChatRefused {
        /// What the template says.
        message: String,
    },
    /// The chat template does not end, or writes without measure (exit code 10).
    #[error(
        "{}: the chat template takes more than {limit} {what}; continue a text: use --prompt, or Model::generate",
        plain(&.place.to_string())
    )]
    ChatTemplateLimit {
        /// Where the template was found.
        place: TemplatePlace,
        /// What it takes too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The Hub did not give the model (exit code 1; 15 when it lacks one of the files).
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] crate::hub::HubError),
    /// A card cannot be used, or failed (the error's own exit code).
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] crate::cuda::CudaError),
    /// A tensor operation failed (exit code 1).
    #[error(transparent)]
    Candle(candle_core::Error),
}

impl Error {
    /// The exit code of the contract.
    pub fn code(&self) -> u8 {
        match self {
            Error::Refused(report) => report.exit_code,
            Error::Files(error) => files_code(error),
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => error.code(),
            Error::Tokenizer { .. }
            | Error::NothingToChoose { .. }
            | Error::ChatTemplate { .. }
            | Error::ChatTemplateLimit { .. } => 10,
            Error::EmptyPrompt
            | Error::OtherModel
            | Error::ContextOverflow { .. }
            | Error::TokenOutOfVocabulary { .. }
            | Error::Option { .. }
            | Error::EmptyStopString { .. }
            | Error::NoChatTemplate
            | Error::ChatTemplateName { .. }
            | Error::ChatRefused { .. } => 2,
            Error::OutOfMemory { .. } | Error::CacheBudget { .. } => 14,
            #[cfg(feature = "hub")]
            Error::Hub(error) => error.code(),
            Error::Cancelled
            | Error::Forked
            | Error::Io { .. }
            | Error::Internal(_)
            | Error::Encode(_)
            | Error::NonFiniteLogits { .. }
            | Error::CacheOverflow { .. }
            | Error::Candle(_) => 1,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(report) => fmt::Display::fmt(report, f),
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl From<model_diagnostics::Error> for Error {
    fn from(error: model_diagnostics::Error) -> Self {
        Error::Files(Box::new(error))
    }
}

impl From<memory::OutOfMemory> for Error {
    fn from(memory::OutOfMemory { what, bytes }: memory::OutOfMemory) -> Self {
        Error::OutOfMemory { what, bytes }
    }
}

/// For operations that are run by candle: [`Error`] takes it out again.
impl From<memory::OutOfMemory> for candle_core::Error {
    fn from(refused: memory::OutOfMemory) -> Self {
        candle_core::Error::WrappedContext { wrapped: Box::new(refused), context: String::new() }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        match error {
            candle_core::Error::WrappedContext { wrapped, context } => {
                match wrapped.downcast::<memory::OutOfMemory>() {
                    Ok(refused) => (*refused).into(),
                    Err(wrapped) => Error::Candle(candle_core::Error::WrappedContext { wrapped, context }),
                }
            }
            error => Error::Candle(error),
        }
    }
}

fn template_name(asked: Option<&str>, known: &[String]) -> String {
    const SHOWN: usize = 16;
    let names = known.iter().take(SHOWN).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
    match asked {
        Some(name) => format!("the model has no chat template named {name:?}; choose one of {names}{more}"),
        None => format!("the model has chat templates by name and none is named default; choose one of {names}{more}"),
    }
}

/// What a file says, with control characters and those that turn the direction of text shown as escapes.
fn plain(text: &str) -> String {
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if acts(c) {
            line.extend(c.escape_unicode())
        } else {
            line.push(c)
        }
        line
    })
}

fn files_code(error: &model_diagnostics::Error) -> u8 {
    use model_diagnostics::Error as Files;
    match error {
        Files::Format { .. } => 10,
        Files::Architecture { .. } => 11,
        Files::Quantization { .. } => 12,
        Files::Incomplete { .. } => 15,
        Files::Ambiguous { .. } => 16,
        _ => 1,
    }
}
