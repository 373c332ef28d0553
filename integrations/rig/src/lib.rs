#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err)] // the error is that of the trait

use bytes::Bytes;
use futures::channel::oneshot;
use futures::stream::{self, SelectAll, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode};
use model_factory::generate::Timings;
use model_factory::{CancellationToken, Error, FinishReason, Generation, GenerationStream, Model, Piece, Session};
use model_factory_openai::{ApiError, ChunkBuilder, CompletionRequest, EmbeddingRequest, append};
use rig_core::http_client::{self, BoxedStream, HttpClientExt, LazyBody, MultipartForm, StreamingResponse};
use rig_core::providers::openai::wire::{Auth, Dialect, Quirks};
use rig_core::providers::openai::{OpenAI, OpenAIConfig};
use serde_json::{Value, json};

/// What rig sends and reads: `chat/completions` and `embeddings` as OpenAI has them, with schemas beside tools.
pub const DIALECT: Dialect = {
    let mut quirks = Quirks::openai();
    (quirks.auth, quirks.response_format_with_tools) = (Auth::OptionalBearer, true);
    Dialect::gateway("model-factory", "http://in-process.invalid/v1", "MODEL_FACTORY_KEY").with_quirks(quirks)
};

/// rig's client of `model`: `client(model).completion("name")`, `.embedding("name", None)`. The names are only repeated in answers.
pub fn client(model: &Model) -> OpenAI {
    OpenAIConfig::with_key(&DIALECT, "").connect(InProcess::new(model))
}

/// Answers the requests of rig's providers by a model in this process. Nothing is sent anywhere: what it has of HTTP are the types.
#[derive(Clone)]
pub struct InProcess {
    model: Model,
}

impl InProcess {
    /// A client of `model`, of which it has a share.
    pub fn new(model: &Model) -> InProcess {
        InProcess { model: model.clone() }
    }
}

/// A request that was read, with what makes its answer.
struct Begun {
    builder: ChunkBuilder,
    streams: Vec<GenerationStream>,
    /// Ends the generations when the answer is no longer wanted.
    cancel: CancelOnDrop,
    with_usage: bool,
}

struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A step of one of several answers.
enum Step {
    Piece(model_factory::Result<Piece>),
    End((Option<FinishReason>, Timings)),
}

/// Runs `work`, which takes long, on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let (sender, receiver) = oneshot::channel();
    let failed = |reason: String| ApiError::of(&Error::Internal(reason), "");
    let run = move || _ = sender.send(work()); // nobody may want it any more
    let thread = std::thread::Builder::new().name("model-factory-rig".into()).spawn(run);
    thread.map_err(|error| failed(format!("no thread could be started: {error}")))?;
    receiver.await.unwrap_or_else(|_| Err(failed("the thread of a request panicked".into())))
}

/// The generations of a request of `chat/completions`.
async fn begin(model: Model, body: Bytes) -> Result<Begun, ApiError> {
    blocking(move || {
        let mut request = CompletionRequest::chat(&body)?;
        let failed = |error: Error| ApiError::of(&error, "messages");
        let name = request.model.clone().unwrap_or_default();
        let cancel = CancelOnDrop(CancellationToken::new());
        request.options.cancel = Some(cancel.0.clone());
        let mut builder = ChunkBuilder::new(&request, &model, &name);
        request.tokenize(&model).map_err(failed)?;
        builder.with_prompts(&request);
        let generations = request.generations(&model).map_err(failed)?;
        let streams = generations.into_iter().map(Generation::into_stream).collect();
        Ok(Begun { builder, streams, cancel, with_usage: request.include_usage || !request.stream })
    })
    .await
}

/// The chunks of an answer as they come.
fn chunks(begun: Begun) -> impl futures::Stream<Item = Result<Value, ApiError>> + Send {
    let Begun { builder, streams, cancel, with_usage } = begun;
    let steps = |(index, stream): (usize, GenerationStream<Session>)| {
        let next = |stream: Option<GenerationStream<Session>>| async move {
            let mut stream = stream?;
            Some(match stream.next().await {
                Some(piece) => (Step::Piece(piece), Some(stream)),
                None => (Step::End(stream.finish()), None),
            })
        };
        stream::unfold(Some(stream), next).map(move |step| (index, step)).boxed()
    };
    let steps: SelectAll<_> = streams.into_iter().enumerate().map(steps).collect();
    let failed = |error: Error| ApiError::of(&error, "messages");
    stream::unfold((steps, Some((builder, cancel)), with_usage), move |(mut steps, state, with_usage)| async move {
        let (mut builder, cancel) = state?;
        loop {
            let chunk = match steps.next().await {
                Some((index, Step::Piece(piece))) => piece.map(|piece| builder.push(index, piece)),
                Some((index, Step::End(finish))) => builder.last_chunk(index, finish).map(Some),
                None if with_usage => return Some((Ok(builder.usage()), (steps, None, false))),
                None => return None,
            };
            match chunk {
                Ok(None) => {}
                Ok(Some(chunk)) => return Some((Ok(chunk), (steps, Some((builder, cancel)), with_usage))),
                Err(error) => return Some((Err(failed(error)), (steps, None, false))),
            }
        }
    })
}

/// The body of a whole answer to `body` at `path`.
async fn whole(model: Model, path: String, body: Bytes) -> Result<Value, ApiError> {
    if path.ends_with("/chat/completions") {
        let begun = begin(model, body).await?;
        let mut answer = begun.builder.whole();
        let mut chunks = std::pin::pin!(chunks(begun));
        while let Some(chunk) = chunks.next().await {
            append(&mut answer, chunk?);
        }
        Ok(answer)
    } else if path.ends_with("/embeddings") {
        blocking(move || {
            let request = EmbeddingRequest::parse(&body)?;
            let name = request.model.clone().unwrap_or_default();
            request.embed(&model, &name).map_err(|error| ApiError::of(&error, "input"))
        })
        .await
    } else if path.ends_with("/models") {
        Ok(
            json!({ "object": "list", "data": [{ "id": "model", "object": "model", "created": 0, "owned_by": "model-factory" }] }),
        )
    } else {
        Err(not_here(&path))
    }
}

fn not_here(path: &str) -> ApiError {
    let message = format!("{path} is not answered in this process, expected chat/completions, embeddings or models");
    ApiError::new(404, message, None, None)
}

/// The error as rig reads one of HTTP.
fn refused(error: &ApiError) -> http_client::Error {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    http_client::Error::non_success_with_details(status, HeaderMap::new(), error.json().to_string())
}

impl HttpClientExt for InProcess {
    fn send<T, U>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + Send + 'static
    where
        T: Into<Bytes> + Send,
        U: From<Bytes> + Send + 'static,
    {
        let (path, body, model) = (request.uri().path().to_owned(), request.into_body().into(), self.model.clone());
        async move {
            let answer = whole(model, path, body).await.map_err(|error| refused(&error))?;
            let body: LazyBody<U> = Box::pin(async move { Ok(U::from(Bytes::from(answer.to_string()))) });
            Ok(Response::new(body))
        }
    }

    fn send_multipart<U>(
        &self,
        request: Request<MultipartForm>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + Send + 'static
    where
        U: From<Bytes> + Send + 'static,
    {
        let error = refused(&not_here(request.uri().path()));
        async move { Err(error) }
    }

    fn send_streaming<T>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<StreamingResponse>> + Send
    where
        T: Into<Bytes> + Send,
    {
        let (path, body, model) = (request.uri().path().to_owned(), request.into_body().into(), self.model.clone());
        async move {
            if !path.ends_with("/chat/completions") {
                return Err(refused(&not_here(&path)));
            }
            let begun = begin(model, body).await.map_err(|error| refused(&error))?;
            let event = |value: Value| Bytes::from(format!("data: {value}\n\n"));
            // An error is the last event, and then the mark of the end is missing, as of a server.
            let ended = chunks(begun).map(Some).chain(stream::once(async { None }));
            let events = ended.scan(false, move |has_failed, chunk| {
                let bytes = match chunk {
                    _ if *has_failed => None,
                    Some(Ok(value)) => Some(event(value)),
                    Some(Err(error)) => {
                        *has_failed = true;
                        Some(event(error.json()))
                    }
                    None => Some(Bytes::from_static(b"data: [DONE]\n\n")),
                };
                std::future::ready(bytes)
            });
            let body: BoxedStream = Box::pin(events.map(Ok));
            let mut response = Response::new(body);
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
            Ok(response)
        }
    }
}
