//! What can be wrong with a path, a file or a description: typed to the leaf, located, with the next move.

use crate::dtype::DType;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no [`ModelSpec`](crate::spec::ModelSpec) came out. Each variant belongs to one [`Verdict`](crate::Verdict).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused (exit code 1).
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what a reader of its format accepts (exit code 10).
    #[error("{}{}: {kind}", file.display(), at(*offset))]
    Format {
        /// The file.
        file: PathBuf,
        /// Bytes from the start of the file, where one place is to blame.
        offset: Option<u64>,
        /// What is wrong there.
        kind: FormatErrorKind,
    },
    /// The model is well formed but of a kind that nothing here runs (exit code 11).
    #[error("{}: {kind}", file.display())]
    Architecture {
        /// The file that says so.
        file: PathBuf,
        /// What was found and what would run.
        kind: ArchitectureErrorKind,
    },
    /// The weights are quantised in a way that would need a cast here (exit code 12).
    #[error("{}: {scheme} is not supported: {why}", file.display())]
    Quantization {
        /// The file that says so.
        file: PathBuf,
        /// The scheme's name in words.
        scheme: String,
        /// What running it would need.
        why: String,
    },
    /// Parts are missing or contradict each other (exit code 15).
    #[error("{}: {kind}", file.display())]
    Incomplete {
        /// The file that shows it.
        file: PathBuf,
        /// What is missing or contradicts what.
        kind: IncompleteKind,
    },
    /// The path holds several models (exit code 16).
    #[error("{} holds {} models; name one of them: {}", path.display(), candidates.len(), list(candidates))]
    Ambiguous {
        /// The path asked for.
        path: PathBuf,
        /// The models in it.
        candidates: Vec<PathBuf>,
    },
}

/// What makes a file malformed or a stranger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// A known key has a value of another type.
    #[error("key {key} is {found}, expected {expected}")]
    KeyType {
        /// The metadata or JSON key.
        key: String,
        /// The type or value found.
        found: String,
        /// The type expected.
        expected: &'static str,
    },
    /// A known key has a value that no rule covers.
    #[error("key {key} is {found}, expected {expected}")]
    KeyValue {
        /// The metadata or JSON key.
        key: String,
        /// The value found.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A key that no rule can derive is absent.
    #[error("key {key} is missing; {needed_for}")]
    KeyMissing {
        /// The metadata or JSON key.
        key: String,
        /// What cannot be known without it.
        needed_for: &'static str,
    },
}

/// Why an architecture does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureErrorKind {
    /// The architecture has no table here.
    #[error("architecture {found:?} is not supported; supported: {supported}{}", hint.map(|h| format!(" ({h})")).unwrap_or_default())]
    Unknown {
        /// The architecture named by the file.
        found: String,
        /// The architectures that run.
        supported: String,
        /// What kind of model it is and what comes nearest, when it is a known stranger.
        hint: Option<&'static str>,
    },
    /// A known architecture asks for something its block does not have here.
    #[error("{feature} (from {key}) is not supported; {expected}")]
    Feature {
        /// The feature in words.
        feature: String,
        /// The key that asks for it.
        key: String,
        /// What would run.
        expected: String,
    },
    /// Not a language model at all: an adapter, a projector, a vocabulary.
    #[error("this is {what}, not a language model; {remedy}")]
    NotAModel {
        /// What it is.
        what: String,
        /// What to give instead.
        remedy: String,
    },
}

/// What is missing or contradictory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IncompleteKind {
    /// A tensor the model needs is absent.
    #[error("tensor {name} is missing{}", nearest_list(nearest))]
    TensorMissing {
        /// The name looked for.
        name: String,
        /// The most similar names present.
        nearest: Vec<String>,
    },
    /// A tensor's shape contradicts the model's sizes.
    #[error("tensor {name} has shape {found:?}, expected {expected:?} ({because})")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The stored shape, outermost first.
        found: Vec<u64>,
        /// The shape that follows from the metadata, outermost first.
        expected: Vec<u64>,
        /// The quantities the expectation is made of.
        because: String,
    },
    /// A tensor has a dtype that its role never has.
    #[error("tensor {name} is {found}, expected {expected}")]
    TensorDType {
        /// The tensor.
        name: String,
        /// The stored dtype.
        found: DType,
        /// The dtypes its role may have.
        expected: &'static str,
    },
    /// Two statements about the model exclude each other.
    #[error("{one}, but {other}")]
    Contradiction {
        /// The first statement, with its source.
        one: String,
        /// The second statement, with its source.
        other: String,
    },
    /// A file that belongs to the model is not there.
    #[error("{name} is missing: {why}")]
    FileMissing {
        /// The file's name.
        name: String,
        /// What names it or needs it.
        why: String,
    },
}

impl Error {
    /// An [`Error::Io`] at `path`.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// An [`Error::Format`] without an offset.
    pub fn format(file: &Path, kind: FormatErrorKind) -> Self {
        Error::Format { file: file.into(), offset: None, kind }
    }

    /// An [`Error::Incomplete`] shown by `file`.
    pub fn incomplete(file: &Path, kind: IncompleteKind) -> Self {
        Error::Incomplete { file: file.into(), kind }
    }
}

fn at(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn nearest_list(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; the nearest names here: {}", names.join(", ")) }
}
