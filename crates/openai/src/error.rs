//! Errors of reading a request of the OpenAI API; errors -> an OpenAI error object and a status.

use model_factory::error::ChatError;
use model_factory::{Error, ErrorKind};
use serde_json::{Value, json};

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

/// The error that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiError {
    /// The HTTP status of the [`ErrorKind`].
    pub status: u16,
    /// The problem, for people to read.
    pub message: String,
    /// The field of the request with the problem.
    pub param: Option<String>,
    /// The problem, for programs, such as `context_length_exceeded`.
    pub code: Option<&'static str>,
    /// The tokens that the request has, and those that the context takes, where it has too many.
    pub context: Option<[usize; 2]>,
}

impl ApiError {
    /// An error of the server itself, with the field and a code if there are any.
    pub fn new(status: u16, message: impl Into<String>, param: Option<&str>, code: Option<&'static str>) -> ApiError {
        ApiError { status, message: message.into(), param: param.map(str::to_owned), code, context: None }
    }

    /// The error of a request whose prompt is the field `input`: `messages`, `prompt` or `input`.
    pub fn of(error: &Error, input: &str) -> ApiError {
        let (status, code) = match error.kind() {
            ErrorKind::InvalidRequest => (400, None),
            // The status and the words by which clients of the OpenAI API know it.
            ErrorKind::TooLong => (400, Some("context_length_exceeded")),
            ErrorKind::Unsupported => (501, None),
            // A client that went away gets no answer, so this is only seen at shutdown.
            ErrorKind::Cancelled => return ApiError::new(503, "the server is shutting down", None, None),
            ErrorKind::OutOfMemory | ErrorKind::Unavailable => (503, None),
            _ => (500, None),
        };
        let param = match error {
            Error::Option { option: "logprobs", .. } if input == "messages" => Some("top_logprobs"),
            Error::Option { option, .. } => Some(*option),
            Error::EmptyStopString { .. } => Some("stop"),
            Error::Grammar(_) if input == "input" => Some("text.format"),
            Error::Grammar(_) => Some("response_format"),
            Error::Tool(_) => Some("tools"),
            _ => Some(input),
        };
        let message = match error {
            // The path of the template is private to the server.
            Error::Chat(ChatError::Template { line, reason, .. }) => {
                let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
                format!("the model's chat template{line} cannot be rendered: {reason}")
            }
            Error::Chat(ChatError::Limit { what, limit, .. }) => {
                format!("the model's chat template takes more than {limit} {what} for these messages")
            }
            Error::ContextOverflow { limit, asked } => {
                format!("this model's maximum context length is {limit} tokens, and the request has {asked}")
            }
            error => error.to_string(),
        };
        let context = match error {
            Error::ContextOverflow { limit, asked } => Some([*asked, *limit]),
            _ => None,
        };
        ApiError { context, ..ApiError::new(status, message, param.filter(|_| status < 500), code) }
    }

    /// The body of an answer: `{"error": {"message": "..", "type": "invalid_request_error", "param": "n", "code": null}}`.
    pub fn json(&self) -> Value {
        let kind = match self.status {
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        let mut error = json!({ "message": self.message, "type": kind, "param": self.param, "code": self.code });
        if let Some([tokens, limit]) = self.context {
            (error["n_prompt_tokens"], error["n_ctx"]) = (tokens.into(), limit.into()); // as in llama.cpp's server
        }
        json!({ "error": error })
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> ApiError {
        let status = if matches!(error, RequestError::TooManyValues { .. }) { 413 } else { 400 };
        ApiError::new(status, error.to_string(), error.field(), None)
    }
}
