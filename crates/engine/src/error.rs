//! Errors while weights are read and tokens are computed.

use crate::input::SoftTokensError;
use model_factory_format::Cancelled;
use model_factory_kernels::memory::OutOfMemory;
use model_factory_spec::plan::KvDtype;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error while weights are read or tokens are computed. [`code`](Error::code) is the exit code of the
/// examples. `Debug` writes what `Display` does. Complete.
#[derive(Clone, thiserror::Error)]
#[allow(missing_docs)] // the variants' docs say what the fields are
pub enum Error {
    /// The files are not what they must be (the code of the diagnosis).
    #[error(transparent)]
    Files(Arc<model_factory_format::Error>),
    /// The operating system refused the file at `path` (exit code 1).
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<std::io::Error> },
    /// An `id` has no row in the embedding, which has `vocab` rows (exit code 2).
    #[error("token {id} is outside the vocabulary of {vocab}")]
    TokenOutOfVocabulary { id: u32, vocab: usize },
    /// Soft tokens are not what the model takes (exit code 2; 13 on a GPU).
    #[error(transparent)]
    SoftTokens(#[from] SoftTokensError),
    /// Logits are asked of a model that has no output head (exit code 10).
    #[error(
        "the model's files have no output head, so it generates and scores no text: models of this kind make vectors of texts, by `Model::embed`"
    )]
    NoHead,

    /// An image that a vision tower does not take (exit code 2).
    #[error("an image of {found} does not fit the vision tower, which takes {expected}")]
    Image { found: String, expected: String },

    // Memory cannot be reserved: the sequence is as it was, and the same call may succeed later.
    //
    /// The system refuses memory (exit code 14).
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The KV caches of all sequences, which have `budget` bytes together and leave `left`, would take the `asked`
    /// bytes more (exit code 14). Nothing is computed, and the sequence is as it was.
    #[error(
        "the KV cache would take {asked} bytes more, and the sessions of the model leave {left} of {budget}; drop or truncate sessions, or load with a smaller context or a larger memory limit"
    )]
    CacheBudget { asked: u64, left: u64, budget: u64 },
    /// The [`CancellationToken`](model_factory_format::CancellationToken) it was given was cancelled (exit code 1).
    #[error("cancelled by the caller")]
    Cancelled,
    /// This process was forked while the model computed in the other one (exit code 1).
    #[error(
        "this process was forked while a thread of the other one computed on the model; fork while nothing computes, or \
         load the model again here"
    )]
    Forked,
    /// A key or value of a `layer` and a `position`, both from 0, is infinite in the KV cache of this `dtype`, or NaN
    /// in a dtype that cannot store NaN (exit code 1).
    #[error(
        "a key or value of layer {layer} at position {position} is {value}, beyond the {dtype} of the KV cache: {}",
        match .dtype {
            KvDtype::F16 | KvDtype::Q8_0 if .value.is_finite() => "keep the cache in f32",
            _ => "the weights are damaged or a computation overflowed",
        }
    )]
    CacheOverflow { layer: usize, position: usize, value: f32, dtype: KvDtype },
    /// A device that another crate defines failed, with an `error` of that crate and its exit `code`.
    #[error("{error}")]
    Device { error: Arc<dyn std::error::Error + Send + Sync>, code: u8 },
    /// A fault of this library (exit code 1).
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// The exit code of the contract.
    pub fn code(&self) -> u8 {
        match self {
            Error::Files(error) => error.exit_code(),
            Error::SoftTokens(SoftTokensError::Device) => 13,
            Error::TokenOutOfVocabulary { .. } | Error::Image { .. } | Error::SoftTokens(_) => 2,
            Error::NoHead => 10,
            Error::OutOfMemory { .. } | Error::CacheBudget { .. } => 14,
            Error::Device { code, .. } => *code,
            Error::Io { .. } | Error::Cancelled | Error::Forked | Error::CacheOverflow { .. } | Error::Internal(_) => 1,
        }
    }

    /// An [`Error::Io`] at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Error {
        Error::Io { path: path.into(), source: Arc::new(source) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Error {
        Error::Cancelled
    }
}

impl From<model_factory_format::Error> for Error {
    fn from(error: model_factory_format::Error) -> Self {
        match error {
            model_factory_format::Error::Io { path, source } => Error::io(path, source),
            error => Error::Files(Arc::new(error)),
        }
    }
}
