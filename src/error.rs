//! What can go wrong while loading and generating.
//!
//! All errors are here, so that every other module may use them and they use none.

mod adapter;
mod draft;
mod embed;
mod image;
mod session_file;

use model_factory_diagnostics::Report;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use adapter::AdapterError;
pub use draft::DraftError;
pub use embed::EmbedError;
pub use image::ImageError;
#[cfg(feature = "cuda")]
pub use model_factory_cuda::{CudaError, NVRTC_VARIABLE};
pub use model_factory_engine::{Error as EngineError, SoftTokensError};
#[cfg(feature = "hub")]
pub use model_factory_hub::HubError;
pub use model_factory_kernels::memory::OutOfMemory;
pub use model_factory_text::Error as TextError;
pub use model_factory_text::error::{ChatError, EncodeError, GrammarError, ToolError};
pub use session_file::{SessionFileError, SessionFileProblem};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that stops a load or a generation. [`kind`](Error::kind) says what a caller can do about it, and
/// [`code`](Error::code) is the exit code of the examples. `Debug` writes what `Display` does, and all of a refusal's report:
/// that is what a `main` that returns the error shows.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum Error {
    // While a model is loaded.
    /// The model was diagnosed and does not run here; the report says why (the report's exit code).
    #[error("{}", .0.first_line())]
    Refused(Box<Report>),
    /// The files are not what they must be (the code of the diagnosis).
    #[error(transparent)]
    Files(Arc<model_factory_diagnostics::Error>),
    /// The description of the tokenizer does not make a tokenizer (exit code 10).
    #[error("{}: the tokenizer is damaged: {reason}", file.display())]
    Tokenizer { file: PathBuf, reason: String },
    /// The Hub did not give the model (exit code 1; 15 when it lacks one of the files).
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] HubError),
    /// There is no draft model, or it cannot guess for the model (exit code 2).
    #[error(transparent)]
    Draft(Box<DraftError>),
    /// An adapter is of another model, or its model computes none (exit code 2; 13 on a GPU).
    #[error(transparent)]
    Adapter(Box<AdapterError>),
    /// A GPU cannot be used, or failed (the error's own exit code).
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] CudaError),

    // While a prompt and its options are checked: the caller gave invalid values.
    /// There is nothing to continue (exit code 2).
    #[error("the prompt is empty and the model puts no token in front; give at least one token")]
    EmptyPrompt,
    /// The text is longer than the context (exit code 2).
    #[error(
        "{asked} tokens are more than the {limit} that the context has room for; shorten the prompt, or load with a larger context if the model was trained for one"
    )]
    ContextOverflow { limit: usize, asked: usize },
    /// An id has no row in the embedding (exit code 2).
    #[error("token {id} is outside the vocabulary of {vocab}")]
    TokenOutOfVocabulary { id: u32, vocab: usize },
    /// The soft tokens of an image are not what the model takes (exit code 2; 13 on a GPU).
    #[error(transparent)]
    SoftTokens(Box<SoftTokensError>),
    /// An image of the messages is not read, or not seen (exit code 2).
    #[error(transparent)]
    Image(Box<ImageError>),
    /// A text could not be turned into ids (exit code 1).
    #[error("the text cannot be turned into ids: {0}")]
    Encode(#[from] EncodeError),
    /// Messages could not be turned into a text (exit code 2; 10 where the template is at fault).
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// No answer can be held to the grammar, or the answer did not come to its end (exit code 2).
    #[error(transparent)]
    Grammar(Box<GrammarError>),
    /// The answer cannot call tools as asked (exit code 2).
    #[error(transparent)]
    Tool(Box<ToolError>),
    /// The model makes no vectors of texts, or it makes only those (the error's own exit code).
    #[error(transparent)]
    Embed(Box<EmbedError>),
    /// An option of a load or a generation is out of its range (exit code 2).
    #[error("{option} is {value}, expected {expected}")]
    Option { option: &'static str, value: f64, expected: &'static str },
    /// A text that ends a generation, by its index from 0, is empty (exit code 2).
    #[error("stop string {index} is empty, expected at least one character")]
    EmptyStopString { index: usize },
    /// The sessions of a batch are not of one model (exit code 2).
    #[error("the sessions of a batch are of different models; make them all from one loaded model or its clones")]
    OtherModel,

    // While memory is reserved: the session is as it was, and the same call may succeed later.
    /// The system refused memory (exit code 14). A session is as it was before the call.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),

    // While a session is saved or restored.
    /// A file is not a session of this model or is damaged, or the model's sessions cannot be saved (the error's own exit
    /// code).
    #[error(transparent)]
    SessionFile(Box<SessionFileError>),

    // While tokens are computed.
    /// The [`CancellationToken`](crate::CancellationToken) that was given was cancelled (exit code 1).
    #[error("cancelled by the caller")]
    Cancelled,
    /// No entry of the vocabulary can be chosen: its tokenizer marks all as unused (exit code 10).
    #[error("no token can be chosen: the tokenizer marks all {vocab} entries of its vocabulary as unused")]
    NothingToChoose { vocab: usize },
    /// The model computed a logit that is NaN or infinite; the first token concerned is named (exit code 1).
    #[error(
        "the logit of token {id} is {value}: the weights are damaged or a computation overflowed; no token can be chosen"
    )]
    NonFiniteLogits { id: usize, value: f32 },

    // At any time.
    /// The engine refused, or failed: the KV caches' budget, a key or value that a cache cannot hold, a fork while the model
    /// computed (the error's own exit code). Errors that the whole library has too, such as `Cancelled`, are not here.
    #[error(transparent)]
    Engine(EngineError),
    /// The operating system refused (exit code 1).
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<std::io::Error> },
    /// A tensor operation failed (exit code 1).
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Candle(Arc<candle_core::Error>),
    /// A fault of this library (exit code 1).
    #[error("internal error: {0}")]
    Internal(String),
}

/// What a caller can do about an [`Error`]: a service maps it to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid and will fail again: an empty prompt, an option out of range, an unknown id. HTTP
    /// 400.
    InvalidRequest,
    /// The prompt is longer than the context, or the request is too large: a shorter one may succeed. HTTP 413.
    TooLong,
    /// The caller's own cancellation token ended it, so nobody waits for an answer.
    Cancelled,
    /// Memory ran out, the system's or the KV caches': the same request may succeed later. HTTP 503.
    OutOfMemory,
    /// Something outside of the process failed, such as the Hub, the network or a disk: trying again may help. HTTP 503.
    Unavailable,
    /// The model, its files or its template are at fault, or this machine does not run it: another model is needed. HTTP
    /// 501.
    Unsupported,
    /// A fault of this library, or a computation that went wrong. HTTP 500.
    Internal,
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Refused(report) => code_kind(report.exit_code),
            Error::Files(error) => code_kind(error.exit_code()),
            Error::Tokenizer { .. } | Error::NothingToChoose { .. } => ErrorKind::Unsupported,
            #[cfg(feature = "hub")]
            Error::Hub(error) => hub_kind(error),
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => device_kind(error.code()),
            Error::ContextOverflow { .. } => ErrorKind::TooLong,
            Error::Chat(error) if error.code() == 2 => ErrorKind::InvalidRequest,
            Error::Chat(error) => code_kind(error.code()),
            Error::Embed(error) => error.kind(),
            Error::SessionFile(error) => error.kind(),
            Error::Grammar(error) if matches!(**error, GrammarError::Memory { .. }) => ErrorKind::OutOfMemory,
            Error::SoftTokens(error) if **error == SoftTokensError::Device => ErrorKind::Unsupported,
            Error::Adapter(error) if **error == AdapterError::Device => ErrorKind::Unsupported,
            Error::EmptyPrompt
            | Error::SoftTokens(_)
            | Error::Image(_)
            | Error::TokenOutOfVocabulary { .. }
            | Error::Encode(_)
            | Error::Option { .. }
            | Error::EmptyStopString { .. }
            | Error::Grammar(_)
            | Error::Tool(_)
            | Error::OtherModel
            | Error::Adapter(_)
            | Error::Draft(_) => ErrorKind::InvalidRequest,
            Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Error::Cancelled => ErrorKind::Cancelled,
            Error::Io { .. } => ErrorKind::Unavailable,
            Error::Engine(error) => engine_kind(error),
            #[cfg(feature = "candle")]
            Error::Candle(_) => ErrorKind::Internal,
            Error::NonFiniteLogits { .. } | Error::Internal(_) => ErrorKind::Internal,
        }
    }

    /// The exit code that the examples document.
    pub fn code(&self) -> u8 {
        match self {
            Error::Refused(report) => report.exit_code,
            Error::Files(error) => error.exit_code(),
            Error::Chat(error) => error.code(),
            Error::Embed(error) => error.code(),
            Error::SessionFile(error) => error.code(),
            Error::Engine(error) => error.code(),
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => error.code(),
            #[cfg(feature = "hub")]
            Error::Hub(error) => error.code(),
            Error::Encode(_) => 1,
            Error::SoftTokens(error) if **error == SoftTokensError::Device => 13,
            Error::Adapter(error) if **error == AdapterError::Device => 13,
            _ => match self.kind() {
                ErrorKind::InvalidRequest | ErrorKind::TooLong => 2,
                ErrorKind::Unsupported => 10,
                ErrorKind::OutOfMemory => 14,
                ErrorKind::Cancelled | ErrorKind::Unavailable | ErrorKind::Internal => 1,
            },
        }
    }

    /// An [`Error::Io`] at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Error {
        Error::Io { path: path.into(), source: Arc::new(source) }
    }
}

/// What a caller can do about an error of the Hub.
#[cfg(feature = "hub")]
fn hub_kind(error: &HubError) -> ErrorKind {
    match error {
        HubError::Cancelled => ErrorKind::Cancelled,
        HubError::NoAccess { .. } | HubError::Token | HubError::NotFound { .. } | HubError::NoSuchModel { .. } => {
            ErrorKind::InvalidRequest
        }
        HubError::FileMissing { .. } | HubError::TooManyFiles { .. } | HubError::TooLarge { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Unavailable,
    }
}

/// The kind of an exit code of a diagnosis.
fn code_kind(code: u8) -> ErrorKind {
    match code {
        1 => ErrorKind::Unavailable,
        14 => ErrorKind::OutOfMemory,
        _ => ErrorKind::Unsupported,
    }
}

/// The kind of an error of the engine or a device with this exit code: 1 is a fault of the library.
fn device_kind(code: u8) -> ErrorKind {
    match code {
        1 => ErrorKind::Internal,
        code => code_kind(code),
    }
}

/// What a caller can do about an error of the engine.
fn engine_kind(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::Files(_) | EngineError::Io { .. } => code_kind(error.code()),
        EngineError::TokenOutOfVocabulary { .. } | EngineError::Image { .. } => ErrorKind::InvalidRequest,
        EngineError::SoftTokens(error) if *error != SoftTokensError::Device => ErrorKind::InvalidRequest,
        EngineError::Cancelled => ErrorKind::Cancelled,
        error => device_kind(error.code()),
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

impl From<model_factory_format::Cancelled> for Error {
    fn from(_: model_factory_format::Cancelled) -> Error {
        Error::Cancelled
    }
}

/// An engine error that the library has its own variant for becomes that variant, so that there is one for each cause.
impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        match error {
            EngineError::Cancelled => Error::Cancelled,
            EngineError::OutOfMemory(refused) => Error::OutOfMemory(refused),
            EngineError::TokenOutOfVocabulary { id, vocab } => Error::TokenOutOfVocabulary { id, vocab },
            EngineError::SoftTokens(error) => error.into(),
            EngineError::NoHead => EmbedError::NoHead.into(),
            EngineError::Files(error) => Error::Files(error),
            EngineError::Io { path, source } => Error::Io { path, source },
            EngineError::Internal(what) => Error::Internal(what),
            #[cfg(feature = "cuda")]
            EngineError::Device { error, code } => match error.downcast_ref::<CudaError>() {
                Some(error) => Error::Cuda(error.clone()),
                None => Error::Engine(EngineError::Device { error, code }),
            },
            error => Error::Engine(error),
        }
    }
}

impl From<model_factory_diagnostics::Error> for Error {
    fn from(error: model_factory_diagnostics::Error) -> Self {
        Error::Files(Arc::new(error))
    }
}

/// Converts errors that are boxed because they are larger than the others.
macro_rules! boxed {
    ($($variant:ident($error:ident)),+) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::$variant(Box::new(error))
            }
        })+
    };
}

boxed!(Draft(DraftError), Embed(EmbedError), Grammar(GrammarError), SessionFile(SessionFileError));
boxed!(Adapter(AdapterError), Image(ImageError), SoftTokens(SoftTokensError), Tool(ToolError));

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Files(error) => Error::Files(error),
            TextError::Tokenizer { file, reason } => Error::Tokenizer { file, reason },
            TextError::Encode(error) => Error::Encode(error),
            TextError::Chat(error) => Error::Chat(error),
            TextError::Grammar(error) => Error::Grammar(error),
            TextError::Tool(error) => Error::Tool(error),
            TextError::EmptyStopString { index } => Error::EmptyStopString { index },
            TextError::OutOfMemory(refused) => Error::OutOfMemory(refused),
            TextError::Cancelled => Error::Cancelled,
            TextError::Io { path, source } => Error::Io { path, source },
            TextError::Internal(fault) => Error::Internal(fault),
            other => Error::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_factory_diagnostics::tokenizer::TemplatePlace;

    #[test]
    fn kinds_say_what_a_caller_can_do_and_clones_say_the_same() {
        let not_found = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let refused = OutOfMemory { what: "a test", bytes: 1 };
        for (error, kind, code) in [
            (Error::EmptyPrompt, ErrorKind::InvalidRequest, 2),
            (Error::Chat(ChatError::Refused { message: "no".into() }), ErrorKind::InvalidRequest, 2),
            (Error::Chat(ChatError::NotText { message: 1, kind: "image" }), ErrorKind::InvalidRequest, 2),
            (Error::ContextOverflow { limit: 1, asked: 2 }, ErrorKind::TooLong, 2),
            (refused.into(), ErrorKind::OutOfMemory, 14),
            #[cfg(feature = "candle")]
            (candle_core::Error::Msg("it failed".into()).into(), ErrorKind::Internal, 1),
            (Error::Cancelled, ErrorKind::Cancelled, 1),
            (EngineError::Cancelled.into(), ErrorKind::Cancelled, 1),
            (EngineError::Forked.into(), ErrorKind::Internal, 1),
            (EngineError::NoHead.into(), ErrorKind::Unsupported, 10),
            (EngineError::TokenOutOfVocabulary { id: 1, vocab: 1 }.into(), ErrorKind::InvalidRequest, 2),
            (EngineError::Image { found: "a".into(), expected: "b".into() }.into(), ErrorKind::InvalidRequest, 2),
            (EngineError::SoftTokens(SoftTokensError::NoGrid).into(), ErrorKind::InvalidRequest, 2),
            (SoftTokensError::Device.into(), ErrorKind::Unsupported, 13),
            (AdapterError::Device.into(), ErrorKind::Unsupported, 13),
            (AdapterError::OtherModel.into(), ErrorKind::InvalidRequest, 2),
            (EngineError::CacheBudget { asked: 2, left: 1, budget: 1 }.into(), ErrorKind::OutOfMemory, 14),
            (EngineError::Internal("a test".into()).into(), ErrorKind::Internal, 1),
            (EngineError::Device { error: Arc::new(std::fmt::Error), code: 13 }.into(), ErrorKind::Unsupported, 13),
            (Error::NothingToChoose { vocab: 1 }, ErrorKind::Unsupported, 10),
            (Error::io("a file", not_found()), ErrorKind::Unavailable, 1),
            (model_factory_diagnostics::Error::io("a file".as_ref(), not_found()).into(), ErrorKind::Unavailable, 1),
        ] {
            assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
            assert_eq!(error.clone().to_string(), error.to_string());
        }
    }

    #[test]
    fn errors_of_texts_keep_their_codes_and_messages() {
        let memory = GrammarError::Memory { bytes: 2, limit: 1 };
        let unknown = EncodeError::NoToken { text: "x".into(), unknown: "unk".into() };
        let not_found = Arc::new(std::io::Error::from(std::io::ErrorKind::NotFound));
        let limit = ChatError::Limit { place: TemplatePlace { file: "a".into(), key: None }, what: "b", limit: 1 };
        for (error, code) in [
            (TextError::Tokenizer { file: "a".into(), reason: "b".into() }, 10),
            (TextError::Encode(unknown), 1),
            (TextError::Chat(ChatError::NoTemplate), 2),
            (TextError::Chat(limit), 10),
            (memory.into(), 14),
            (GrammarError::EmptyChoice { index: None }.into(), 2),
            (ToolError::NoTools.into(), 2),
            (TextError::EmptyStopString { index: 1 }, 2),
            (OutOfMemory { what: "a test", bytes: 1 }.into(), 14),
            (TextError::Cancelled, 1),
            (TextError::Io { path: "a".into(), source: not_found }, 1),
            (TextError::Internal("a".into()), 1),
            (model_factory_diagnostics::Error::io("a".as_ref(), std::io::ErrorKind::NotFound.into()).into(), 1),
        ] {
            let ours = Error::from(error.clone());
            assert_eq!((ours.code(), ours.to_string()), (code, error.to_string()));
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn the_engine_hands_the_error_of_a_gpu_back() {
        let error = Error::from(EngineError::from(CudaError::NoDriver));
        assert!(matches!(error, Error::Cuda(CudaError::NoDriver)) && error.code() == 13, "{error}");
        assert_eq!(EngineError::from(CudaError::NoDriver).to_string(), CudaError::NoDriver.to_string());
    }
}
