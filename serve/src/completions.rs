//! Bodies of requests -> answers: what is read, begun, and given back whole or as it comes.

use crate::api::{Answer, CancelOnDrop, Held, Refusal, Server, blocking, json_body};
use crate::apis::{Api, Form};
use crate::budget::{self, Body};
use crate::observe::{self, Operation};
use crate::ollama;
use crate::responses::{self, Earlier};
use async_stream::stream;
use axum::extract::Request;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::{TryFutureExt, ready};
use futures_util::stream::{BoxStream, SelectAll, Stream, StreamExt, TryStreamExt};
use model_factory::generate::Timings;
use model_factory::{Error, FinishReason, GenerateOptions, Generation, Piece, Session, ToolChoice};
use model_factory_openai::responses::previous;
use model_factory_openai::{ApiError, ChunkBuilder, Outline, keep_best};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::Instrument;

/// An answer that has begun.
struct Begun {
    /// The chunks as they come, and `None` after the last one; dropping them cancels the generations.
    chunks: BoxStream<'static, Result<Option<Value>, ApiError>>,
    form: Form,
    /// The whole answer, empty yet.
    whole: Value,
    /// How many answers are given, and of how many.
    best: (usize, usize),
}

impl Server {
    /// The options of a request with the salt of its prompt cache: the caller's own, or one for only this request if
    /// callers may not learn of each other.
    fn salted(&self, mut options: GenerateOptions) -> GenerateOptions {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        options.cache_salt = match options.cache_salt {
            Some(salt) => Some(format!("caller {salt}")),
            None if self.shares_prefixes => None,
            // What begins with NUL is not kept on disk either.
            None => Some(format!("\0request {}", COUNT.fetch_add(1, Ordering::Relaxed))),
        };
        options
    }

    /// The body of a request of `api`, the memory that reading it takes, and what it goes on with.
    pub(crate) async fn receive(&self, request: Request, api: Api) -> Result<(Body, Outline, Earlier), Refusal> {
        let body = self.budget.body(request).await?;
        let (body, mut outline) = self.budget.outline(body).await?;
        if api != Api::Responses {
            return Ok((body, outline, Earlier::default()));
        }
        let find = move || {
            let previous = previous(&body.bytes);
            Ok((body, previous))
        };
        let (body, previous) = blocking(find).await?;
        let earlier = responses::earlier(self, previous.as_deref(), body.bytes.len())?;
        // What the response repeats of the request is there twice.
        outline.bytes = outline.bytes.saturating_mul(2).saturating_add(earlier.values());
        Ok((body, outline, earlier))
    }

    /// Answers a request of `api`. A stream that has not begun after a while says so by its headers, so that proxies do not give it up;
    /// what is refused later is an event.
    pub(crate) async fn complete(self: Arc<Self>, request: Request, api: Api) -> Answer {
        let arrived = Instant::now();
        let cancel = CancelOnDrop(self.cancel.child());
        let (body, outline, earlier) = self.receive(request, api).await?;
        let is_stream = outline.stream.unwrap_or(api.streams());
        let keep_alive = self.keep_alive;
        let (_, model, _) = self.models.find(body.model.as_deref())?;
        let operation = Operation::new(&self.exporter, api.operation(), &model, arrived);
        let begun = self.begin(api, (body, outline, earlier), operation.clone(), cancel);
        let begun = begun.instrument(operation.span().clone());
        let mut begun = Box::pin(begun.map_err(move |refusal| operation.refused(refusal)));
        if !is_stream {
            return begun.await?.whole().await;
        }
        match tokio::time::timeout(keep_alive, &mut begun).await {
            Ok(begun) => Ok(streamed(api, keep_alive, ready(Ok(begun?)))),
            Err(_) => Ok(streamed(api, keep_alive, begun)),
        }
    }

    /// Begins the answer to a body of `api`.
    async fn begin(
        self: Arc<Self>,
        api: Api,
        (body, outline, earlier): (Body, Outline, Earlier),
        operation: Operation,
        cancel: CancelOnDrop,
    ) -> Result<Begun, Refusal> {
        // They are held as long as the request is worked on, even if its client is gone.
        let (places, (lease, room)) = self.queue.enter(outline.answers, self.needs(&body, &outline)).await?;
        let input = api.input();
        let failed = move |error| Refusal::from(ApiError::of(&error, input));
        let (server, token, asked) = (Arc::clone(&self), cancel.0.clone(), operation.clone());
        let read = move || {
            if token.is_cancelled() {
                return Err(failed(Error::Cancelled));
            }
            let (mut request, form) = api.read(&body.bytes, &server, earlier)?;
            drop(body);
            if request.answers() > outline.answers {
                return Err(failed(Error::Internal("a request of more answers than its outline".into())));
            }
            request.options.adapters = match &request.lora {
                None => lease.named.clone(),
                Some(lora) => lease.by_number(lora)?,
            };
            request.options = server.salted(request.options);
            request.options.cancel = Some(token);
            let mut builder = ChunkBuilder::new(&request, &lease.model, &lease.name);
            request.tokenize(&lease.model).map_err(failed)?;
            builder.with_prompts(&request);
            asked.asked(&request);
            Ok((request, (builder, form), (places, room), lease))
        };
        let (request, (builder, form), (places, room), lease) = self.budget.read(outline, read).await?;
        let GenerateOptions { grammar, tool_choice, .. } = &request.options;
        let is_slow =
            request.has_images() || grammar.is_some() || !matches!(tool_choice, ToolChoice::Auto | ToolChoice::None);
        let best = (request.n, request.best_of);
        let with_usage = request.include_usage || !request.stream;
        // Each answer keeps tools and grammar, and a response what it repeats; nothing else of the request is kept.
        let is_kept = request.options.chat.tools.is_some() || grammar.is_some() || matches!(form, Form::Responses(_));
        let span = operation.span().clone();
        let begin = move || {
            let generations = span.in_scope(|| request.generations(&lease.model)).map_err(failed)?;
            drop(request);
            let held: Held = (places, room.filter(|_| is_kept).map(budget::kept));
            Ok((generations, (held, lease)))
        };
        // Grammars are compiled, and images computed, one at a time: a request that waits for its turn must not stop others.
        let (generations, held) = if is_slow { blocking(begin).await } else { self.budget.read(outline, begin).await }?;
        let whole = builder.whole();
        if matches!(form, Form::OpenAi) {
            operation.span().record("gen_ai.response.id", whole["id"].as_str());
        }
        let chunks = self
            .chunks(generations, builder, held, with_usage, operation)
            .map_err(move |error| failed(error).error().clone());
        // Dropping the stream cancels what it computes.
        let chunks = chunks.inspect(move |_| _ = &cancel);
        Ok(Begun { chunks: chunks.boxed(), form, whole, best })
    }

    /// The chunks of `generations`, as many of which are computed at once as there are sessions; `None` is the end. Until they are
    /// computed it has what is `held`.
    fn chunks(
        self: Arc<Self>,
        generations: Vec<Generation<Session>>,
        mut builder: ChunkBuilder,
        held: impl Send + 'static,
        with_usage: bool,
        operation: Operation,
    ) -> impl Stream<Item = Result<Option<Value>, Error>> {
        let mut is_first = true;
        stream! {
            let steps = |generation| operation.span().in_scope(|| steps(generation));
            let mut waiting = generations.into_iter().enumerate();
            let mut running: SelectAll<_> = waiting.by_ref().take(self.queue.sessions()).map(steps).collect();
            while let Some((index, step)) = running.next().await {
                let chunk = match step {
                    Ok(piece) => piece.map(|piece| builder.push(index, piece)),
                    Err(finish) => {
                        let timings = finish.1;
                        self.metrics.ended(&timings);
                        waiting.next().map(steps).into_iter().for_each(|next| running.push(next));
                        let last = builder.last_chunk(index, finish);
                        last.inspect(|last| operation.ended(last, &timings)).map(Some)
                    }
                };
                if let Some(chunk) = chunk.transpose() {
                    let is_error = chunk.is_err();
                    if let Err(error) = &chunk {
                        operation.failed(ApiError::of(error, "").status);
                    } else if std::mem::take(&mut is_first) {
                        self.metrics.first_token.observe(operation.first_token().as_secs_f64());
                    }
                    yield chunk.map(Some);
                    if is_error {
                        return;
                    }
                }
            }
            drop(held);
            let usage = builder.usage();
            observe::used(operation.span(), &usage["usage"]);
            operation.done();
            if with_usage {
                yield Ok(Some(usage));
            }
            yield Ok(None);
        }
    }
}

/// What comes of the answer of this index: its pieces, and how it finished.
type Step = (usize, Result<model_factory::Result<Piece>, (Option<FinishReason>, Timings)>);

fn steps((index, generation): (usize, Generation<Session>)) -> BoxStream<'static, Step> {
    let mut stream = generation.into_stream();
    let steps = stream! {
        while let Some(piece) = stream.next().await {
            yield (index, Ok(piece));
        }
        yield (index, Err(stream.finish()));
    };
    steps.boxed()
}

impl Begun {
    /// The answer as a whole.
    async fn whole(self) -> Answer {
        let append = |(mut form, mut whole): (Form, Value), chunk: Option<Value>| async move {
            chunk.into_iter().for_each(|chunk| form.append(&mut whole, chunk));
            Ok((form, whole))
        };
        let (form, mut whole) = self.chunks.try_fold((self.form, self.whole), append).await?;
        keep_best(&mut whole, self.best.0, self.best.1);
        Ok(json_body(form.whole(whole).to_string()))
    }
}

/// The answer as a stream of `api`, with a comment after each `keep_alive` without an event.
fn streamed(
    api: Api,
    keep_alive: Duration,
    begun: impl Future<Output = Result<Begun, Refusal>> + Send + 'static,
) -> Response {
    if api.has_lines() {
        let lines = stream! {
            match begun.await {
                Ok(Begun { mut chunks, mut form, .. }) => while let Some(chunk) = chunks.next().await {
                    if let Some(line) = form.line(chunk) {
                        yield line;
                    }
                },
                Err(refusal) => yield api.error(refusal.error()),
            }
        };
        return ollama::lines(lines);
    }
    let events = stream! {
        match begun.await {
            Ok(Begun { mut chunks, mut form, .. }) => while let Some(chunk) = chunks.next().await {
                for event in form.events(chunk) {
                    yield Ok::<_, Infallible>(event);
                }
            },
            Err(refusal) => yield Ok(api.error_event(refusal.error())),
        }
    };
    Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive)).into_response()
}
