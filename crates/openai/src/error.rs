//! What is wrong with a request of the OpenAI API.

/// A request that cannot be read, or that asks for what is not done. A field is named with the objects that it
/// is in: `stream_options.include_usage`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum RequestError {
    /// The body is something else than a JSON object.
    #[error("the body is no JSON object: {reason}")]
    NotObject { reason: String },
    /// Its values, of which there are more than a client has reason to send, would take more bytes of memory than the limit.
    #[error("the values of the body would take more than {} MiB of memory: send fewer of them", limit >> 20)]
    TooManyValues { limit: usize },
    /// A field is missing, is of another type, or asks for what is not done.
    #[error("{field}: {reason}")]
    Wrong { field: String, reason: String },
    /// There is no such field, or what it asks for is not done whatever it says.
    #[error("there is no field {field}")]
    Unknown { field: String },
}

impl RequestError {
    /// The field at fault; `None` where it is the body.
    pub fn field(&self) -> Option<&str> {
        match self {
            RequestError::NotObject { .. } | RequestError::TooManyValues { .. } => None,
            RequestError::Wrong { field, .. } | RequestError::Unknown { field } => Some(field),
        }
    }
}
