//! What ends the encoding of a text.

use crate::error::{EncodeError, Error};
use model_factory_dtypes::memory::OutOfMemory;

/// What ends the encoding of a text: its error, or the system's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Text(#[from] EncodeError),
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// A result of encoding.
pub(super) type Encoded<T> = std::result::Result<T, Failure>;

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Text(error) => Error::Encode(error),
            Failure::Memory(refused) => refused.into(),
        }
    }
}
