//! Why a file is not a session of a model.

use super::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

/// A session that could not be saved or restored, other than by the system's refusal ([`Error::Io`](super::Error::Io)).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", file.display())]
#[non_exhaustive]
pub struct SessionFileError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong.
    pub problem: SessionFileProblem,
}

/// What is wrong with the file of a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum SessionFileProblem {
    /// The model computes on a GPU (exit code 2).
    #[error(
        "sessions are saved and restored on the processor, and the model computes on a GPU; load it with device cpu"
    )]
    Device,
    /// The file is a folder, a pipe or a device (exit code 10).
    #[error("it is no regular file, expected one that a session was saved in")]
    NotAFile,
    /// The file does not begin like a saved session (exit code 10).
    #[error(
        "it begins with {found:02x?}, a saved session with {expected:02x?}; give a file that a session was saved in"
    )]
    NotASession { found: Vec<u8>, expected: [u8; 8] },
    /// The file has another format version (exit code 10).
    #[error(
        "it has version {found} of the format, expected {expected}; compute the session again and save it, or restore it with \
         the version of the library that wrote it"
    )]
    Version { found: u32, expected: u32 },
    /// The file is shorter or longer than it says (exit code 15).
    #[error(
        "it has {found} bytes, expected {expected}: it was cut off, or something was appended; compute the session again"
    )]
    Length { found: u64, expected: u64 },
    /// Some bytes are not those that were written. Each part ends with a checksum of all bytes up to there; `part` is the first
    /// whose checksum differs (exit code 15).
    #[error(
        "its {part}, bytes {} to {}, has the checksum {found:08x}, expected {expected:08x}: it is damaged; compute the session \
         again",
        bytes.start, bytes.end
    )]
    Checksum { part: &'static str, bytes: Range<u64>, found: u32, expected: u32 },
    /// The checksums are right, but a value of the file is impossible (exit code 10).
    #[error("its {what} is {found}, expected {expected}: no session was saved so; compute it again")]
    Malformed { what: &'static str, found: String, expected: String },
    /// The session was saved with another model or other settings, and would not give the same bits (exit code 2).
    #[error("the {what} it was saved with is {found}, expected {expected}; {remedy}")]
    Differs { what: String, found: String, expected: String, remedy: &'static str },
    /// The session has more tokens than a session of the model can hold (exit code 2).
    #[error("it has {found} tokens, and a session of this model holds {limit}; load the model with a larger context")]
    Context { found: u64, limit: usize },
}

impl SessionFileError {
    /// The exit code that the examples document.
    pub(super) fn code(&self) -> u8 {
        match (&self.problem, self.kind()) {
            (SessionFileProblem::Length { .. } | SessionFileProblem::Checksum { .. }, _) => 15,
            (_, ErrorKind::Unsupported) => 10,
            _ => 2,
        }
    }

    /// What a caller can do about it.
    pub(super) fn kind(&self) -> ErrorKind {
        match self.problem {
            SessionFileProblem::Device | SessionFileProblem::Differs { .. } => ErrorKind::InvalidRequest,
            SessionFileProblem::Context { .. } => ErrorKind::TooLong,
            _ => ErrorKind::Unsupported,
        }
    }
}
