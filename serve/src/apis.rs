//! The APIs: how each reads a request, and in which form it gives an answer and an error.

use axum::response::sse::Event;
use model_factory_openai::anthropic::{self, MessageBuilder};
use model_factory_openai::{ApiError, CompletionRequest, RequestError};
use serde_json::Value;

/// An API whose requests are completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Api {
    /// `chat/completions` of OpenAI.
    Chat,
    /// `completions` of OpenAI.
    Text,
    /// `messages` of Anthropic.
    Messages,
}

/// The path of Anthropic's API, and the beginning of others of it.
pub(crate) const MESSAGES: &str = "/v1/messages";

impl Api {
    /// The API in whose form errors at `path` are.
    pub(crate) fn at(path: &str) -> Api {
        if path.starts_with(MESSAGES) { Api::Messages } else { Api::Chat }
    }

    pub(crate) fn read(self, body: &[u8]) -> Result<CompletionRequest, RequestError> {
        match self {
            Api::Chat => CompletionRequest::chat(body),
            Api::Text => CompletionRequest::text(body),
            Api::Messages => anthropic::request(body),
        }
    }

    /// The field with the prompt, for errors.
    pub(crate) fn input(self) -> &'static str {
        if self == Api::Text { "prompt" } else { "messages" }
    }

    /// The body of an answer that is an error.
    pub(crate) fn error(self, error: &ApiError) -> Value {
        if self == Api::Messages { anthropic::error(error) } else { error.json() }
    }

    /// The body of a whole answer.
    pub(crate) fn whole(self, whole: Value) -> Value {
        if self == Api::Messages { MessageBuilder::whole(&whole) } else { whole }
    }
}

/// The events of a stream.
pub(crate) struct Events {
    api: Api,
    messages: MessageBuilder,
}

impl Events {
    pub(crate) fn new(api: Api) -> Events {
        Events { api, messages: MessageBuilder::default() }
    }

    /// The events of a chunk; `None` is the end.
    pub(crate) fn of(&mut self, chunk: Result<Option<Value>, ApiError>) -> Vec<Event> {
        let named = |event: Value| {
            let name = event["type"].as_str().unwrap_or_default().to_owned();
            Event::default().event(name).data(event.to_string())
        };
        match (self.api, chunk) {
            (Api::Messages, Err(error)) => vec![named(anthropic::error(&error))],
            (Api::Messages, Ok(chunk)) => chunk.iter().flat_map(|chunk| self.messages.push(chunk)).map(named).collect(),
            (_, Err(error)) => vec![Event::default().data(error.json().to_string())],
            (_, Ok(Some(chunk))) => vec![Event::default().data(chunk.to_string())],
            (_, Ok(None)) => vec![Event::default().data("[DONE]")],
        }
    }
}
