//! Errors of reading a request of the OpenAI API.

/// A request that is invalid, or that asks for something that is not supported. A field is named with the objects that it
/// is in: `stream_options.include_usage`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum RequestError {
    /// The body is not a JSON object.
    #[error("the body is no JSON object: {reason}")]
    NotObject { reason: String },
    /// The values of the body would take more bytes of memory than the limit; no normal client sends that many.
    #[error("the values of the body would take more than {} MiB of memory: send fewer of them", limit >> 20)]
    TooManyValues { limit: usize },
    /// A field is missing, has another type, or asks for something that is not supported.
    #[error("{field}: {reason}")]
    Wrong { field: String, reason: String },
    /// There is no such field, or it is not supported with any value.
    #[error("there is no field {field}")]
    Unknown { field: String },
}

impl RequestError {
    /// The field with the problem; `None` if it is the whole body.
    pub fn field(&self) -> Option<&str> {
        match self {
            RequestError::NotObject { .. } | RequestError::TooManyValues { .. } => None,
            RequestError::Wrong { field, .. } | RequestError::Unknown { field } => Some(field),
        }
    }
}
