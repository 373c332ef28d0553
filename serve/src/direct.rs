//! What is answered without generating: vectors, scores of documents, tokens and prompts.

use crate::api::{Answer, CancelOnDrop, Held, Refusal, Server, blocking, json_body};
use crate::budget;
use crate::llama_cpp;
use crate::ollama;
use axum::extract::{Request, State};
use axum::response::Response;
use model_factory::{Adapter, CancellationToken, Error};
use model_factory_openai::llama_cpp::VectorsRequest;
use model_factory_openai::ollama::{EmbedRequest, show};
use model_factory_openai::{
    ApiError, DetokenizeRequest, EmbeddingRequest, RequestError, RerankRequest, TemplateRequest, TokenizeRequest,
};
use std::sync::Arc;

/// Reads a request by `read` and answers it by `answer`, in one place of the queue.
async fn direct<T: Send + 'static>(
    server: Arc<Server>,
    request: Request,
    read: fn(&[u8]) -> Result<T, RequestError>,
    answer: impl FnOnce(T, &Server, &CancellationToken) -> Result<String, Refusal> + Send + 'static,
) -> Answer {
    let body = server.budget.body(request).await?;
    let (body, outline) = server.budget.outline(body).await?;
    let (places, room) = server.queue.enter(1, server.budget.room(&outline)).await?;
    let read = move || {
        let request = read(&body.bytes).map_err(ApiError::from)?;
        drop(body);
        Ok((request, (places, room.map(budget::kept))))
    };
    let (request, held) = server.budget.read(outline, read).await?;
    let cancel = CancelOnDrop(server.cancel.child());
    let token = cancel.0.clone();
    let answer = move || {
        let _held: Held = held;
        answer(request, &server, &token)
    };
    Ok(json_body(blocking(answer).await?))
}

/// Adapters, each with its scale, as options have them.
type Adapters = Vec<(Adapter, f64)>;

/// The name that a request asks for, and its adapter.
fn asked<'s>(server: &'s Server, model: Option<&str>) -> Result<(&'s str, Adapters), Refusal> {
    let (name, adapter) = server.asked(model)?;
    Ok((name, adapter.map(|adapter| (adapter.clone(), 1.0)).into_iter().collect()))
}

pub(crate) async fn embeddings(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, EmbeddingRequest::parse, |mut request, server, cancel| {
        let (name, adapters) = asked(server, request.model.as_deref())?;
        request.options.adapters = adapters;
        request.options = request.options.cancel(cancel);
        let answer = request.embed(&server.model, name);
        Ok(answer.map_err(|error| ApiError::of(&error, "input"))?.to_string())
    })
    .await
}

/// Vectors in the form of llama.cpp's server.
pub(crate) async fn vectors(State(server): State<Arc<Server>>, request: Request) -> Response {
    let answered = direct(server, request, VectorsRequest::parse, |mut request, server, cancel| {
        let of = &mut request.request;
        let (name, adapters) = asked(server, of.model.as_deref())?;
        (of.options.adapters, of.options.cancel) = (adapters, Some(cancel.clone()));
        let answer = request.answer(&server.model, name);
        Ok(answer.map_err(|error| ApiError::of(&error, "input"))?.to_string())
    });
    llama_cpp::answer(answered.await)
}

pub(crate) async fn rerank(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, RerankRequest::parse, |mut request, server, cancel| {
        let (name, adapters) = asked(server, request.model.as_deref())?;
        (request.options.adapters, request.options.cancel) = (adapters, Some(cancel.clone()));
        let input = if request.has_texts { "texts" } else { "documents" };
        let answer = request.rank(&server.model, name, &server.reranker);
        Ok(answer.map_err(|error| ApiError::of(&error, input))?.to_string())
    })
    .await
}

pub(crate) async fn tokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, TokenizeRequest::parse, |request, server, _| {
        server.asked(request.model.as_deref())?;
        Ok(request.tokenize(&server.model).map_err(|error: Error| ApiError::of(&error, request.input()))?)
    })
    .await
}

pub(crate) async fn detokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, DetokenizeRequest::parse, |request, server, _| {
        server.asked(request.model.as_deref())?;
        let answer = request.detokenize(&server.model);
        Ok(answer.map_err(|error| ApiError::of(&error, "tokens"))?.to_string())
    })
    .await
}

pub(crate) async fn apply_template(State(server): State<Arc<Server>>, request: Request) -> Answer {
    direct(server, request, TemplateRequest::parse, |request, server, _| {
        server.asked(request.request.model.as_deref())?;
        let answer = request.render(&server.model);
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
    let answered = direct(server, request, read, move |mut request, server, cancel| {
        let of = &mut request.request;
        of.model = of.model.take().map(|name| server.untagged(name));
        let (name, adapters) = asked(server, of.model.as_deref())?;
        let name = name.to_owned();
        (of.options.adapters, of.options.cancel) = (adapters, Some(cancel.clone()));
        let answer = request.answer(&server.model, &name);
        Ok(answer.map_err(|error| ApiError::of(&error, input))?.to_string())
    });
    ollama::answer(answered.await)
}

pub(crate) async fn ollama_show(State(server): State<Arc<Server>>, request: Request) -> Response {
    let answered = direct(server, request, show, |name, server, _| {
        server.asked(Some(&server.untagged(name)))?;
        Ok(ollama::show(server).to_string())
    });
    ollama::answer(answered.await)
}
