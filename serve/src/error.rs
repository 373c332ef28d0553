//! What went wrong -> a status and OpenAI's form of an error.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model_factory::{Error, ErrorKind};
use serde_json::{Value, json};
use std::fmt::Display;

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    message: String,
    /// The field of the request that is at fault.
    param: Option<String>,
    code: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Display) -> Refusal {
        Refusal { status, message: message.to_string(), param: None, code: None }
    }

    /// A field that cannot be meant, or is not supported.
    pub(crate) fn field(param: impl Into<String>, message: impl Display) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message).param(param)
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Refusal {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn code(mut self, code: &'static str) -> Refusal {
        self.code = Some(code);
        self
    }

    /// What the library says of a request whose prompt is the field `input`.
    pub(crate) fn of(error: &Error, input: &'static str) -> Refusal {
        let status = match error.kind() {
            ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
            ErrorKind::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Cancelled | ErrorKind::OutOfMemory | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let param = match error {
            Error::Option { option: "logprobs", .. } if input == "messages" => "top_logprobs",
            Error::Option { option, .. } => option,
            Error::EmptyStopString { .. } => "stop",
            Error::Grammar(_) => "response_format",
            Error::Tool(_) => "tools",
            _ => input,
        };
        let param = status.is_client_error().then(|| param.to_owned());
        let code = matches!(error.kind(), ErrorKind::TooLong).then_some("context_length_exceeded");
        let message = match error.kind() {
            ErrorKind::Cancelled => "the server is shutting down".to_owned(),
            _ => error.to_string(),
        };
        Refusal { status, message, param, code }
    }

    pub(crate) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &self.json());
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
