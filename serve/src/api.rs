//! Paths -> answers: access, the queue, and the handler of each path.

use crate::access::Access;
use crate::apis::{Api, Form, MESSAGES};
use crate::budget::{self, Body, Budget, Share};
use crate::direct;
use crate::metrics::Metrics;
use crate::ollama;
use crate::responses::{self, Earlier, Responses};
use async_stream::stream;
use axum::Router;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::ready;
use futures_util::stream::{self, StreamExt, TryStreamExt, select_all};
use model_factory::{
    Adapter, CancellationToken, Error, GenerateOptions, Generation, GenerationStream, Model, Reranker, ToolChoice,
};
use model_factory_openai::responses::previous;
use model_factory_openai::{ApiError, ChunkBuilder, Outline, keep_best};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The time between two keep-alive events of a stream that has nothing to send.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The most bytes of an error message, and of the field that it names: a request may hold more.
const ERROR_BYTES: usize = 1000;

/// The page loads nothing from elsewhere, and no other page may embed it.
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                           img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The page: one file.
const PAGE: &str = concat!(
    include_str!("page.html"),
    "<script>\n",
    include_str!("page/logic.js"),
    "</script>\n<script>\n",
    include_str!("page/chat.js"),
    "</script>\n</html>\n"
);

pub(crate) struct Server {
    pub(crate) model: Model,
    /// The model's name for clients.
    pub(crate) name: String,
    /// The names of adapters, each of which clients ask for as for a model; all differ, also from the model's.
    pub(crate) adapters: Vec<(String, Adapter)>,
    pub(crate) access: Access,
    /// Whether requests without a salt of their own share prefixes: then their senders may learn of each other's prompts.
    pub(crate) shares_prefixes: bool,
    pub(crate) queue: Queue,
    pub(crate) budget: Budget,
    pub(crate) metrics: Metrics,
    pub(crate) responses: Responses,
    /// The tokens that thought may have in answers whose requests say nothing else.
    pub(crate) thinking_budget: Option<usize>,
    /// How documents are scored.
    pub(crate) reranker: Reranker,
    pub(crate) cancel: CancellationToken,
}

/// The requests that run, and those that wait in order of arrival.
pub(crate) struct Queue {
    running: Arc<Semaphore>,
    /// Places for running and for waiting requests.
    all: Arc<Semaphore>,
    sessions: usize,
    length: usize,
}

/// The places of a request; they are freed when dropped.
pub(crate) type Places = [OwnedSemaphorePermit; 2];

/// What a request holds: places, and memory for its parsed values.
pub(crate) type Held = (Places, Share);

impl Queue {
    pub(crate) fn new(sessions: usize, length: usize) -> Queue {
        let [running, all] = [sessions, sessions + length].map(|places| Arc::new(Semaphore::new(places)));
        Queue { running, all, sessions, length }
    }

    /// Waits for `room`, and then for `places` to run: a request that waits for memory takes no place from others.
    pub(crate) async fn enter(
        &self,
        places: usize,
        room: impl Future<Output = Result<Share, Refusal>>,
    ) -> Result<Held, Refusal> {
        let few = u32::try_from(places).ok().filter(|_| places <= self.sessions);
        let many = || ApiError::new(400, format!("n: expected {} answers at most", self.sessions), Some("n"), None);
        let places = few.ok_or_else(many)?;
        let full = format!("{} requests wait already; try again later", self.length);
        let full = |_| ApiError::new(429, full, None, Some("queue_full"));
        let all = Arc::clone(&self.all).try_acquire_many_owned(places).map_err(full)?;
        let room = room.await?;
        let closed = |_| ApiError::of(&Error::Cancelled, "");
        Ok(([Arc::clone(&self.running).acquire_many_owned(places).await.map_err(closed)?, all], room))
    }

    /// How many requests run, and how many wait.
    pub(crate) fn lengths(&self) -> [usize; 2] {
        let running = self.sessions - self.running.available_permits();
        [running, (self.sessions + self.length - self.all.available_permits()).saturating_sub(running)]
    }
}

/// The paths of the server. Pages of `origin` may send requests (`*` is any).
pub(crate) fn router(server: Arc<Server>, origin: Option<&HeaderValue>) -> Router {
    let not_found = |request: Request| async move {
        let path = request.uri().path();
        refuse(404, format!("there is nothing at {path}")).response(Api::at(path))
    };
    let not_allowed = |request: Request| async move {
        let path = request.uri().path();
        refuse(405, format!("{} is no method of {path}", request.method())).response(Api::at(path))
    };
    let page = ([(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(PAGE));
    let reranks = ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"];
    let router = reranks
        .into_iter()
        .fold(Router::new(), |router, path| router.route(path, post(direct::rerank)))
        .route("/", get(|| async { page }))
        .route("/health", get(|| async { json_body(json!({ "status": "ok" }).to_string()) }))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(one_model))
        .route("/lora-adapters", get(lora_adapters))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/chat/completions/input_tokens", post(input_tokens))
        .route("/v1/completions", post(completion))
        .route("/v1/embeddings", post(direct::embeddings))
        .route("/tokenize", post(direct::tokenize))
        .route("/detokenize", post(direct::detokenize))
        .route("/apply-template", post(direct::apply_template))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(direct::ollama_embed))
        .route("/api/embeddings", post(direct::ollama_embeddings))
        .route("/api/show", post(direct::ollama_show))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::ps))
        .route("/api/version", get(ollama::version))
        .route(MESSAGES, post(messages))
        .route("/v1/messages/count_tokens", post(message_tokens))
        .route("/v1/responses", post(respond))
        .route("/v1/responses/input_tokens", post(response_tokens))
        .route("/v1/responses/{id}", get(responses::one).delete(responses::forget))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .with_state(server);
    let Some(origin) = origin else { return router };
    let cors = CorsLayer::new().allow_origin(AllowOrigin::exact(origin.clone()));
    router.layer(
        cors.allow_methods([Method::GET, Method::POST, Method::DELETE]).allow_headers(AllowHeaders::mirror_request()),
    )
}

/// The header by which a request is told from others, given back as it came, or made.
const REQUEST_ID: &str = "x-request-id";

fn request_id(request: &Request) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let given = request.headers().get(REQUEST_ID).filter(|id| (1..=128).contains(&id.len()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made = || {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        HeaderValue::from_str(&format!("req_{:x}-{count:x}", now.as_micros())).ok()
    };
    given.cloned().or_else(made).unwrap_or(HeaderValue::from_static("req"))
}

/// Checks the access of a request, and counts its answer.
async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let (id, api) = (request_id(&request), Api::at(request.uri().path()));
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let mut response = match server.access.check(request.headers(), &path) {
        Err(error) => Refusal(error).response(api),
        Ok(()) => next.run(request).await,
    };
    if api == Api::Messages {
        response.headers_mut().insert("request-id", id.clone());
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let labels = [("path", path), ("status", response.status().as_str().to_owned())];
    server.metrics.requests.get_or_create(&labels).inc();
    response
}

impl Server {
    /// Refuses a request for another model.
    fn is_meant(&self, asked: Option<&str>) -> Result<(), Refusal> {
        let Some(asked) = asked.filter(|asked| *asked != self.name) else { return Ok(()) };
        let message = format!("there is no model {asked:?}, there is {:?}", self.name);
        Err(ApiError::new(404, message, Some("model"), Some("model_not_found")).into())
    }

    /// The name that a request asks for, and its adapter where that is one's name.
    ///
    /// # Errors
    /// For another model.
    pub(crate) fn asked(&self, asked: Option<&str>) -> Result<(&str, Option<&Adapter>), Refusal> {
        match self.adapters.iter().find(|(name, _)| asked == Some(name)) {
            Some((name, adapter)) => Ok((name, Some(adapter))),
            None => self.is_meant(asked).map(|()| (&*self.name, None)),
        }
    }

    /// The adapters that a request asks for by their numbers, each with its scale; those of scale 0 are left out.
    ///
    /// # Errors
    /// For a number that no adapter has, one that is there twice, and where `model` names an adapter too.
    fn by_number(&self, asked: &[(usize, f64)], is_named: bool) -> Result<Vec<(Adapter, f64)>, Refusal> {
        let refuse = |message: String| Err(ApiError::new(400, message, Some("lora"), None).into());
        if is_named {
            return refuse("the model that is asked for is an adapter; ask for one or the other".into());
        }
        let mut adapters = Vec::new();
        for (index, (id, scale)) in asked.iter().enumerate() {
            let Some((_, adapter)) = self.adapters.get(*id) else {
                return refuse(format!("there is no adapter {id}, there are {}, numbered from 0", self.adapters.len()));
            };
            if asked[..index].iter().any(|(before, _)| before == id) {
                return refuse(format!("adapter {id} is there twice"));
            }
            if *scale != 0.0 {
                adapters.push((adapter.clone(), *scale));
            }
        }
        Ok(adapters)
    }

    /// The model, and after it its adapters.
    fn models(&self) -> impl Iterator<Item = Value> {
        let (context, spec) = (self.model.context_length(), self.model.spec());
        // In the words of llama.cpp's server.
        let says = spec.weights.head.is_some().then_some("completion");
        let capabilities: Value = says.into_iter().chain(spec.vision.is_some().then_some("multimodal")).collect();
        let model = move |id: &str| {
            json!({
                "id": id, "object": "model", "created": 0, "owned_by": "model-factory", "context_length": context,
                "capabilities": capabilities,
            })
        };
        let first = model(&self.name);
        let adapter = move |(name, _): &(String, Adapter)| {
            let mut listed = model(name);
            listed["parent"] = Value::from(&*self.name);
            listed
        };
        std::iter::once(first).chain(self.adapters.iter().map(adapter))
    }

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
    async fn receive(&self, request: Request, api: Api) -> Result<(Body, Outline, Earlier), Refusal> {
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

    /// Answers a request of `api`.
    pub(crate) async fn complete(self: Arc<Self>, request: Request, api: Api) -> Answer {
        let input = api.input();
        let arrived = Instant::now();
        let cancel = CancelOnDrop(self.cancel.child());
        let (body, outline, earlier) = self.receive(request, api).await?;
        // The places and the memory are held as long as the request is worked on, even if its client is gone.
        let held = self.queue.enter(outline.answers, self.budget.room(&outline)).await?;
        let (server, token, failed) = (Arc::clone(&self), cancel.0.clone(), move |error| ApiError::of(&error, input));
        let read = move || {
            if token.is_cancelled() {
                return Err(failed(Error::Cancelled).into());
            }
            let (mut request, form) = api.read(&body.bytes, &server, earlier)?;
            drop(body);
            let (name, adapter) = server.asked(request.model.as_deref())?;
            let name = name.to_owned();
            request.options.adapters = match &request.lora {
                None => adapter.map(|adapter| (adapter.clone(), 1.0)).into_iter().collect(),
                Some(lora) => server.by_number(lora, adapter.is_some())?,
            };
            if request.answers() > outline.answers {
                return Err(failed(Error::Internal("a request of more answers than its outline".into())).into());
            }
            request.options = server.salted(request.options);
            request.options.cancel = Some(token);
            let mut builder = ChunkBuilder::new(&request, &server.model, &name);
            request.tokenize(&server.model).map_err(failed)?;
            builder.with_prompts(&request);
            Ok((server, request, (builder, form), held))
        };
        let (server, request, builders, (places, room)) = self.budget.read(outline, read).await?;
        let GenerateOptions { grammar, tool_choice, .. } = &request.options;
        let is_slow =
            request.has_images() || grammar.is_some() || !matches!(tool_choice, ToolChoice::Auto | ToolChoice::None);
        let begin = move || {
            let generations = request.generations(&server.model).map_err(failed)?.into_iter();
            let streams: Vec<GenerationStream> = generations.map(Generation::into_stream).collect();
            // Each answer keeps tools and grammar; nothing else of the request is kept.
            let is_kept = request.options.chat.tools.is_some()
                || request.options.grammar.is_some()
                || matches!(builders.1, Form::Responses(_));
            let how = (request.stream, request.include_usage || !request.stream);
            let best = (request.n, request.best_of);
            drop(request);
            let held: Held = (places, room.filter(|_| is_kept).map(budget::kept));
            Ok((builders, streams, (how, best), held))
        };
        // Grammars are compiled, and images computed, one at a time: a request that waits for its turn must not stop others.
        let begun = if is_slow { blocking(begin).await } else { self.budget.read(outline, begin).await };
        let ((mut builder, mut form), streams, ((is_stream, with_usage), (n, best_of)), held) = begun?;
        let whole = builder.whole();
        let mut arrived = Some(arrived);
        // The chunks as they come, and `None` after the last one; dropping them cancels the generations.
        let chunks = stream! {
            let _cancel = cancel;
            let steps = |(index, mut stream): (usize, GenerationStream)| {
                let steps = stream! {
                    while let Some(piece) = stream.next().await {
                        yield (index, Ok(piece));
                    }
                    yield (index, Err(stream.finish()));
                };
                steps.boxed()
            };
            let mut steps = select_all(streams.into_iter().enumerate().map(steps));
            while let Some((index, step)) = steps.next().await {
                let chunk = match step {
                    Ok(piece) => piece.map(|piece| builder.push(index, piece)),
                    Err(finish) => {
                        self.metrics.ended(&finish.1);
                        builder.last_chunk(index, finish).map(Some)
                    }
                };
                match chunk {
                    Ok(None) => {}
                    Ok(chunk) => {
                        if let Some(arrived) = arrived.take() {
                            self.metrics.first_token.observe(arrived.elapsed().as_secs_f64());
                        }
                        yield Ok(chunk);
                    }
                    Err(error) => {
                        yield Err(ApiError::of(&error, input));
                        return;
                    }
                }
            }
            drop(held);
            if with_usage {
                yield Ok(Some(builder.usage()));
            }
            yield Ok(None);
        };
        if !is_stream {
            let append = |(mut form, mut whole): (Form, Value), chunk: Option<Value>| async move {
                chunk.into_iter().for_each(|chunk| form.append(&mut whole, chunk));
                Ok((form, whole))
            };
            let (form, mut whole) = chunks.try_fold((form, whole), append).await?;
            keep_best(&mut whole, n, best_of);
            return Ok(json_body(form.whole(whole).to_string()));
        }
        if matches!(form, Form::Ollama(_)) {
            return Ok(ollama::lines(chunks.filter_map(move |chunk| ready(form.line(chunk)))));
        }
        let events =
            chunks.flat_map(move |chunk| stream::iter(form.events(chunk).into_iter().map(Ok::<_, Infallible>)));
        Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
    }
}

/// Runs blocking work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    done(tokio::task::spawn_blocking(run)).await
}

pub(crate) async fn done<T>(task: JoinHandle<Result<T, Refusal>>) -> Result<T, Refusal> {
    task.await.unwrap_or_else(|error| Err(ApiError::of(&Error::Internal(error.to_string()), "").into()))
}

pub(crate) fn json_body(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[derive(Debug)]
pub(crate) struct Refusal(ApiError);

pub(crate) fn refuse(status: u16, message: impl Into<String>) -> Refusal {
    ApiError::new(status, message, None, None).into()
}

impl From<ApiError> for Refusal {
    fn from(mut error: ApiError) -> Refusal {
        for text in error.param.iter_mut().chain([&mut error.message]).filter(|text| text.len() > ERROR_BYTES) {
            text.truncate(text.floor_char_boundary(ERROR_BYTES));
        }
        Refusal(error)
    }
}

impl Refusal {
    /// The response in the form of `api`.
    pub(crate) fn response(&self, api: Api) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, json_body(api.error(&self.0).to_string())).into_response();
        let headers = response.headers_mut();
        match self.0.status {
            401 => headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            429 | 503 => headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1")),
            _ => None,
        };
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.response(Api::Chat)
    }
}

pub(crate) type Answer = Result<Response, Refusal>;

async fn chat(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Chat).await
}

async fn completion(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Text).await
}

async fn messages(State(server): State<Arc<Server>>, request: Request) -> Response {
    server.complete(request, Api::Messages).await.unwrap_or_else(|refusal| refusal.response(Api::Messages))
}

async fn respond(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Responses).await
}

async fn input_tokens(State(server): State<Arc<Server>>, request: Request) -> Answer {
    count(server, request, Api::Chat).await
}

async fn message_tokens(State(server): State<Arc<Server>>, request: Request) -> Response {
    count(server, request, Api::Messages).await.unwrap_or_else(|refusal| refusal.response(Api::Messages))
}

async fn response_tokens(State(server): State<Arc<Server>>, request: Request) -> Answer {
    count(server, request, Api::Responses).await
}

/// The tokens of a conversation, without answering it.
async fn count(server: Arc<Server>, request: Request, api: Api) -> Answer {
    let (body, outline, earlier) = server.receive(request, api).await?;
    let held = server.queue.enter(1, server.budget.room(&outline)).await?;
    let count = {
        let server = Arc::clone(&server);
        move || {
            let _held: Held = held;
            let (request, _) = api.read(&body.bytes, &server, earlier)?;
            drop(body);
            server.asked(request.model.as_deref())?;
            let tokens = request.input_tokens(&server.model).map_err(|error| ApiError::of(&error, api.input()))?;
            let mut counted = json!({ "input_tokens": tokens });
            if api == Api::Responses {
                counted["object"] = "response.input_tokens".into();
            }
            Ok(counted.to_string())
        }
    };
    Ok(json_body(server.budget.read(outline, count).await?))
}

/// Cancels the generations of a request when it is dropped.
pub(crate) struct CancelOnDrop(pub(crate) CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn models(State(server): State<Arc<Server>>) -> impl IntoResponse {
    json_body(json!({ "object": "list", "data": server.models().collect::<Value>() }).to_string())
}

/// The adapters by number, as llama.cpp's server lists them. No scale is anybody's but a request's own, so nothing sets one for all.
async fn lora_adapters(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let each = server.adapters.iter().enumerate();
    let listed: Value = each.map(|(id, (name, _))| json!({ "id": id, "name": name, "scale": 0.0 })).collect();
    json_body(listed.to_string())
}

async fn one_model(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    let mut models = server.models().filter(|model| model["id"] == *id);
    server.asked(Some(&id)).map(|_| json_body(models.next().unwrap_or_default().to_string()))
}

async fn metrics(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], server.metrics.text(&server))
}
