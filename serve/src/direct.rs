//! What is answered without generating: vectors, scores of documents, tokens and prompts.

use crate::api::{Answer, CancelOnDrop, Held, Refusal, Server, blocking, json_body};
use crate::budget::{self, Body};
use crate::llama_cpp;
use crate::models::Lease;
use crate::observe::{Operation, used};
use crate::ollama;
use axum::extract::{Request, State};
use axum::response::Response;
use model_factory::{CancellationToken, Error, Reranker};
use model_factory_openai::llama_cpp::VectorsRequest;
use model_factory_openai::ollama::EmbedRequest;
use model_factory_openai::{
    ApiError, DetokenizeRequest, EmbeddingRequest, Outline, RequestError, RerankRequest, TemplateRequest,
    TokenizeRequest,
};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, Span};

/// The operation by the conventions of OpenTelemetry.
const EMBEDDINGS: &str = "embeddings";

/// Reads a request by `read`, and answers it by `answer` with the model that it asks for, in one place of the queue. It is told as this
/// `operation` if it is one.
async fn direct<T: Send + 'static>(
    server: Arc<Server>,
    request: Request,
    operation: Option<&'static str>,
    read: fn(&[u8]) -> Result<T, RequestError>,
    answer: impl FnOnce(T, &Lease, &CancellationToken) -> Result<String, Refusal> + Send + 'static,
) -> Answer {
    let arrived = Instant::now();
    let body = server.budget.body(request).await?;
    let (body, outline) = server.budget.outline(body).await?;
    let (_, model, _) = server.models.find(body.model.as_deref())?;
    let operation = operation.map(|name| Operation::new(&server.exporter, name, &model, arrived));
    let span = operation.as_ref().map_or_else(Span::none, |operation| operation.span().clone());
    let answered = answered(server, (body, outline), read, answer).instrument(span).await;
    match (&operation, &answered) {
        (Some(operation), Ok(_)) => operation.done(),
        (Some(operation), Err(refusal)) => operation.failed(refusal.error().status),
        (None, _) => {}
    }
    answered
}

async fn answered<T: Send + 'static>(
    server: Arc<Server>,
    (body, outline): (Body, Outline),
    read: fn(&[u8]) -> Result<T, RequestError>,
    answer: impl FnOnce(T, &Lease, &CancellationToken) -> Result<String, Refusal> + Send + 'static,
) -> Answer {
    let (places, (lease, room)) = server.queue.enter(1, server.needs(&body, &outline)).await?;
    let read = move || {
        let request = read(&body.bytes).map_err(ApiError::from)?;
        drop(body);
        Ok((request, (places, room.map(budget::kept))))
    };
    let (request, held) = server.budget.read(outline, read).await?;
    let cancel = CancelOnDrop(server.cancel.child());
    let (token, span) = (cancel.0.clone(), Span::current());
    let answer = move || {
        let _held: Held = held;
        span.in_scope(|| answer(request, &lease, &token))
    };
    Ok(json_body(blocking(answer).await?))
}

pub(crate) async fn embeddings(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, Some(EMBEDDINGS), EmbeddingRequest::parse, |mut request, lease, cancel| {
        request.options.adapters.clone_from(&lease.named);
        request.options = request.options.cancel(cancel);
        let answer = request.embed(&lease.model, &lease.name).map_err(|error| ApiError::of(&error, "input"))?;
        used(&Span::current(), &answer["usage"]);
        Ok(answer.to_string())
    })
    .await
}

/// Vectors in the form of llama.cpp's server.
pub(crate) async fn vectors(State(server): State<Arc<Server>>, request: Request) -> Response {
    let answered = direct(server, request, Some(EMBEDDINGS), VectorsRequest::parse, |mut request, lease, cancel| {
        let options = &mut request.request.options;
        (options.adapters, options.cancel) = (lease.named.clone(), Some(cancel.clone()));
        let answer = request.answer(&lease.model, &lease.name);
        Ok(answer.map_err(|error| ApiError::of(&error, "input"))?.to_string())
    });
    llama_cpp::answer(answered.await)
}

pub(crate) async fn rerank(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let reranker = server.reranker.clone();
    direct(server, request, Some("rerank"), RerankRequest::parse, move |mut request, lease, cancel| {
        (request.options.adapters, request.options.cancel) = (lease.named.clone(), Some(cancel.clone()));
        let input = if request.has_texts { "texts" } else { "documents" };
        let scores = lease.model.report().model.as_ref().is_some_and(|model| !model.labels.is_empty());
        let reranker = if scores { Reranker::classifier() } else { reranker };
        let answer = request.rank(&lease.model, &lease.name, &reranker).map_err(|error| ApiError::of(&error, input))?;
        used(&Span::current(), &answer["usage"]);
        Ok(answer.to_string())
    })
    .await
}

pub(crate) async fn tokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, None, TokenizeRequest::parse, |request, lease, _| {
        Ok(request.tokenize(&lease.model).map_err(|error: Error| ApiError::of(&error, request.input()))?)
    })
    .await
}

pub(crate) async fn detokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, None, DetokenizeRequest::parse, |request, lease, _| {
        let answer = request.detokenize(&lease.model);
        Ok(answer.map_err(|error| ApiError::of(&error, "tokens"))?.to_string())
    })
    .await
}

pub(crate) async fn apply_template(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, None, TemplateRequest::parse, |request, lease, _| {
        let answer = request.request.options.check().and_then(|()| request.render(&lease.model));
        Ok(answer.map_err(|error| ApiError::of(&error, "messages"))?.to_string())
    })
    .await
}

pub(crate) async fn ollama_embed(State(server): State<Arc<Server>>, request: Request) -> Response {
    embed(server, request, EmbedRequest::embed, "input").await
}

pub(crate) async fn ollama_embeddings(State(server): State<Arc<Server>>, request: Request) -> Response {
    embed(server, request, EmbedRequest::embeddings, "prompt").await
}

async fn embed(
    server: Arc<Server>,
    request: Request,
    read: fn(&[u8]) -> Result<EmbedRequest, RequestError>,
    input: &'static str,
) -> Response {
    let answered = direct(server, request, Some(EMBEDDINGS), read, move |mut request, lease, cancel| {
        let options = &mut request.request.options;
        (options.adapters, options.cancel) = (lease.named.clone(), Some(cancel.clone()));
        let answer = request.answer(&lease.model, &lease.name);
        Ok(answer.map_err(|error| ApiError::of(&error, input))?.to_string())
    });
    ollama::answer(answered.await)
}
