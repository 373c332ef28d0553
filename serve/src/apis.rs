//! The APIs: how each reads a request, and in which form it gives an answer and an error.

use crate::api::{Refusal, Server};
use crate::llama_cpp::PATHS;
use crate::responses::Earlier;
use axum::response::sse::Event;
use model_factory_openai::anthropic::{self, MessageBuilder};
use model_factory_openai::llama_cpp::{self, CompletionBuilder};
use model_factory_openai::ollama::{self, LineBuilder};
use model_factory_openai::responses::{self, ResponseBuilder};
use model_factory_openai::{ApiError, CompletionRequest, append};
use serde_json::Value;
use std::sync::Arc;

/// An API whose requests are completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Api {
    /// `chat/completions` of OpenAI.
    Chat,
    /// `completions` of OpenAI.
    Text,
    /// `messages` of Anthropic.
    Messages,
    /// `responses` of OpenAI.
    Responses,
    /// `chat` of Ollama.
    OllamaChat,
    /// `generate` of Ollama.
    OllamaGenerate,
    /// `completion` of llama.cpp's server.
    Completion,
    /// `infill` of llama.cpp's server.
    Infill,
}

/// The beginning of the paths of Ollama's API.
const OLLAMA: &str = "/api/";

/// The path of Anthropic's API, and the beginning of others of it.
pub(crate) const MESSAGES: &str = "/v1/messages";

impl Api {
    /// The API in whose form errors at `path` are.
    pub(crate) fn at(path: &str) -> Api {
        match path {
            _ if path.starts_with(MESSAGES) => Api::Messages,
            _ if path.starts_with(OLLAMA) => Api::OllamaChat,
            _ if PATHS.contains(&path) => Api::Completion,
            _ => Api::Chat,
        }
    }

    /// The request in `body`, and the form of its answer. `earlier` is what it goes on with.
    pub(crate) fn read(
        self,
        body: &[u8],
        server: &Arc<Server>,
        earlier: Earlier,
    ) -> Result<(CompletionRequest, Form), Refusal> {
        let read = match self {
            Api::Chat => CompletionRequest::chat(body).map(|request| (request, Form::OpenAi)),
            Api::Text => CompletionRequest::text(body).map(|request| (request, Form::OpenAi)),
            Api::Messages => {
                anthropic::request(body).map(|request| (request, Form::Messages(MessageBuilder::default())))
            }
            Api::Responses => responses::request(body, &earlier.items())
                .map(|(request, builder)| (request, Form::Responses(Box::new((builder, earlier, Arc::clone(server)))))),
            Api::OllamaChat => ollama::chat(body).map(|request| (request, Form::Ollama(LineBuilder::new(true)))),
            Api::OllamaGenerate => {
                ollama::generate(body).map(|request| (request, Form::Ollama(LineBuilder::new(false))))
            }
            Api::Completion => {
                llama_cpp::completion(body).map(|(request, builder)| (request, Form::LlamaCpp(Box::new(builder))))
            }
            Api::Infill => {
                llama_cpp::infill(body).map(|(request, builder)| (request, Form::LlamaCpp(Box::new(builder))))
            }
        };
        let (mut request, form) = read.map_err(ApiError::from)?;
        request.options.thinking_budget = request.options.thinking_budget.or(server.thinking_budget);
        Ok((request, form))
    }

    /// Whether an answer is lines in place of events.
    pub(crate) fn has_lines(self) -> bool {
        matches!(self, Api::OllamaChat | Api::OllamaGenerate)
    }

    /// Whether an answer is a stream where the request does not say it.
    pub(crate) fn streams(self) -> bool {
        self.has_lines()
    }

    /// The event by which a stream that has not begun ends.
    pub(crate) fn error_event(self, error: &ApiError) -> Event {
        match self {
            Api::Messages => named(&anthropic::error(error)),
            Api::Responses => named(&ResponseBuilder::error(error, 0)),
            _ => Event::default().data(self.error(error).to_string()),
        }
    }

    /// The field with the prompt, for errors.
    pub(crate) fn input(self) -> &'static str {
        match self {
            Api::Text | Api::OllamaGenerate | Api::Completion => "prompt",
            Api::Infill => "input_prefix",
            Api::Responses => "input",
            Api::Chat | Api::Messages | Api::OllamaChat => "messages",
        }
    }

    /// The body of an answer that is an error.
    pub(crate) fn error(self, error: &ApiError) -> Value {
        match self {
            Api::Messages => anthropic::error(error),
            Api::OllamaChat | Api::OllamaGenerate => ollama::error(error),
            Api::Completion | Api::Infill => llama_cpp::error(error),
            Api::Chat | Api::Text | Api::Responses => error.json(),
        }
    }
}

/// The form of an answer.
pub(crate) enum Form {
    OpenAi,
    Messages(MessageBuilder),
    /// With what it goes on with, and the server that keeps it.
    Responses(Box<(ResponseBuilder, Earlier, Arc<Server>)>),
    /// Lines instead of events.
    Ollama(LineBuilder),
    LlamaCpp(Box<CompletionBuilder>),
}

impl Form {
    /// The events of a chunk; `None` is the end.
    pub(crate) fn events(&mut self, chunk: Result<Option<Value>, ApiError>) -> Vec<Event> {
        match (self, chunk) {
            (Form::Messages(_), Err(error)) => vec![named(&anthropic::error(&error))],
            (Form::Messages(builder), Ok(chunk)) => {
                chunk.iter().flat_map(|chunk| builder.push(chunk)).map(|event| named(&event)).collect()
            }
            (Form::Responses(form), Err(error)) => vec![named(&form.0.fail(&error))],
            (Form::Responses(form), Ok(Some(chunk))) => respond(form, &chunk).iter().map(named).collect(),
            (Form::Responses(_), Ok(None)) => Vec::new(),
            (Form::Ollama(_), _) => Vec::new(),
            (Form::LlamaCpp(_), Err(error)) => vec![Event::default().data(llama_cpp::error(&error).to_string())],
            (Form::LlamaCpp(builder), Ok(chunk)) => {
                let events = chunk.iter().flat_map(|chunk| builder.push(chunk));
                events.map(|event| Event::default().data(event.to_string())).collect()
            }
            (Form::OpenAi, Err(error)) => vec![Event::default().data(error.json().to_string())],
            (Form::OpenAi, Ok(Some(chunk))) => vec![Event::default().data(chunk.to_string())],
            (Form::OpenAi, Ok(None)) => vec![Event::default().data("[DONE]")],
        }
    }

    /// The line of a chunk, in the API that has lines.
    pub(crate) fn line(&mut self, chunk: Result<Option<Value>, ApiError>) -> Option<Value> {
        let Form::Ollama(builder) = self else { return None };
        match chunk {
            Ok(chunk) => builder.push(&chunk?),
            Err(error) => Some(ollama::error(&error)),
        }
    }

    /// Appends a chunk to the `whole` answer.
    pub(crate) fn append(&mut self, whole: &mut Value, chunk: Value) {
        match self {
            Form::Responses(form) => _ = respond(form, &chunk),
            Form::OpenAi | Form::Messages(_) | Form::Ollama(_) | Form::LlamaCpp(_) => append(whole, chunk),
        }
    }

    /// The body of a whole answer.
    pub(crate) fn whole(self, whole: Value) -> Value {
        match self {
            Form::OpenAi => whole,
            Form::Messages(_) => MessageBuilder::whole(&whole),
            Form::Responses(form) => form.0.response().clone(),
            Form::Ollama(mut builder) => builder.whole(&whole),
            Form::LlamaCpp(builder) => builder.whole(&whole),
        }
    }
}

/// An event that has its type for a name.
fn named(event: &Value) -> Event {
    Event::default().event(event["type"].as_str().unwrap_or_default()).data(event.to_string())
}

/// The events of a chunk. A response that has ended is kept.
fn respond((builder, earlier, server): &mut (ResponseBuilder, Earlier, Arc<Server>), chunk: &Value) -> Vec<Value> {
    let events = builder.push(chunk);
    builder.kept().into_iter().for_each(|kept| server.responses.keep(kept, earlier));
    events
}
