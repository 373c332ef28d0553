//! What is wrong with a request of the OpenAI API.

/// A request that cannot be read, or that asks for what is not done. A field is named with the objects that it
/// is in: `stream_options.include_usage`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The body is something else than a JSON object.
    #[error("the body is no JSON object: {reason}")]
    NotObject {
        /// What the parser says.
        reason: String,
    },
    /// Its values, of which there are more than a client has reason to send, would take too much memory.
    #[error("the values of the body would take more than {} MiB of memory: send fewer of them", limit >> 20)]
    TooManyValues {
        /// Bytes that they may take.
        limit: usize,
    },
    /// A field is missing, is of another type, or asks for what is not done.
    #[error("{field}: {reason}")]
    Wrong {
        /// The field.
        field: String,
        /// What was found, or is expected.
        reason: String,
    },
    /// There is no such field, or what it asks for is not done whatever it says.
    #[error("there is no field {field}")]
    Unknown {
        /// The field.
        field: String,
    },
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
