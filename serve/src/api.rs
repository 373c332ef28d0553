//! Paths -> answers: access, the queue, and the handler of each path.

use crate::access::Access;
use crate::apis::{Api, MESSAGES};
use crate::budget::{Body, Budget, Share};
use crate::direct;
use crate::llama_cpp;
use crate::metrics::Metrics;
use crate::models::{Lease, Listed, Models};
use crate::observe::{self, Exporter};
use crate::ollama;
use crate::openapi;
use crate::responses::{self, Responses};
use axum::Router;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use model_factory::{CancellationToken, Error, Reranker};
use model_factory_openai::{ApiError, Outline};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tracing::Instrument;

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
    pub(crate) models: Arc<Models>,
    pub(crate) access: Access,
    /// Whether requests without a salt of their own share prefixes: then their senders may learn of each other's prompts.
    pub(crate) shares_prefixes: bool,
    pub(crate) queue: Queue,
    pub(crate) budget: Budget,
    pub(crate) metrics: Metrics,
    pub(crate) exporter: Exporter,
    pub(crate) responses: Responses,
    /// The tokens that thought may have in answers whose requests say nothing else.
    pub(crate) thinking_budget: Option<usize>,
    /// How models without a classification head score documents.
    pub(crate) reranker: Reranker,
    /// The time after which a stream that has nothing to send says that it is there.
    pub(crate) keep_alive: Duration,
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

    /// Waits for what the request needs, and then for `places` to run, or for all there are where it has more answers than these: one
    /// that waits for memory or for a model takes no place from others.
    pub(crate) async fn enter<T>(
        &self,
        places: usize,
        needs: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<(Places, T), Refusal> {
        let most = self.sessions + self.length;
        let few = u32::try_from(places).ok().filter(|_| places <= most);
        let many =
            || ApiError::new(400, format!("expected {most} answers at most, to all prompts together"), Some("n"), None);
        let places = few.ok_or_else(many)?;
        let full = format!("{} requests wait already; try again later", self.length);
        let full = |_| ApiError::new(429, full, None, Some("queue_full"));
        let all = Arc::clone(&self.all).try_acquire_many_owned(places).map_err(full)?;
        let needs = needs.await?;
        let closed = |_| ApiError::of(&Error::Cancelled, "");
        let at_once = places.min(u32::try_from(self.sessions).unwrap_or(u32::MAX));
        Ok(([Arc::clone(&self.running).acquire_many_owned(at_once).await.map_err(closed)?, all], needs))
    }

    /// The most answers that are computed at once.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions
    }

    /// How many requests run, and how many wait.
    pub(crate) fn lengths(&self) -> [usize; 2] {
        let running = self.sessions - self.running.available_permits();
        [running, (self.sessions + self.length - self.all.available_permits()).saturating_sub(running)]
    }
}

/// A path, and what answers its methods.
pub(crate) type Route = (&'static str, MethodRouter<Arc<Server>>);

/// All there is; the description of the API has the same paths.
pub(crate) fn routes() -> Vec<Route> {
    let page = ([(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(PAGE));
    let reranks = ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"];
    let mut routes = vec![
        ("/", get(|| async { page })),
        ("/health", get(health)),
        ("/metrics", get(metrics)),
        ("/openapi.json", get(description)),
        ("/v1/models", get(models)),
        ("/v1/models/{*id}", get(one_model)),
        ("/lora-adapters", get(lora_adapters)),
        ("/v1/chat/completions", post(chat)),
        ("/v1/chat/completions/input_tokens", post(input_tokens)),
        ("/v1/completions", post(completion)),
        ("/v1/embeddings", post(direct::embeddings)),
        ("/tokenize", post(direct::tokenize)),
        ("/detokenize", post(direct::detokenize)),
        ("/apply-template", post(direct::apply_template)),
        ("/api/chat", post(ollama::chat)),
        ("/api/generate", post(ollama::generate)),
        ("/api/embed", post(direct::ollama_embed)),
        ("/api/embeddings", post(direct::ollama_embeddings)),
        ("/api/show", post(ollama::show)),
        ("/api/tags", get(ollama::tags)),
        ("/api/ps", get(ollama::ps)),
        ("/api/version", get(ollama::version)),
        (MESSAGES, post(messages)),
        ("/v1/messages/count_tokens", post(message_tokens)),
        ("/v1/responses", post(respond)),
        ("/v1/responses/input_tokens", post(response_tokens)),
        ("/v1/responses/{id}", get(responses::one).delete(responses::forget)),
        ("/v1/responses/{id}/input_items", get(responses::input_items)),
    ];
    routes.extend(reranks.map(|path| (path, post(direct::rerank))));
    routes.extend(llama_cpp::routes());
    routes
}

impl Server {
    /// What a request needs before it has a place to run: its model, and room for its values.
    pub(crate) async fn needs(&self, body: &Body, outline: &Outline) -> Result<(Lease, Share), Refusal> {
        let lease = self.models.lease(body.model.as_deref()).await?;
        Ok((lease, self.budget.room(outline).await?))
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
    let router = routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    let router = router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .with_state(server);
    let Some(origin) = origin else { return router };
    let read = [HeaderName::from_static(REQUEST_ID), header::RETRY_AFTER];
    let cors = CorsLayer::new().allow_origin(AllowOrigin::exact(origin.clone())).expose_headers(read);
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

/// Checks the access of a request, and counts and tells its answer.
async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let (id, api) = (request_id(&request), Api::at(request.uri().path()));
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let span = observe::request(&request, &path);
    let mut response = match server.access.check(request.headers(), &path) {
        Err(error) => Refusal(error).response(api),
        Ok(()) => next.run(request).instrument(span.clone()).await,
    };
    observe::responded(&span, response.status());
    if api == Api::Messages {
        response.headers_mut().insert("request-id", id.clone());
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let labels = [("path", path), ("status", response.status().as_str().to_owned())];
    server.metrics.requests.get_or_create(&labels).inc();
    response
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
    pub(crate) fn error(&self) -> &ApiError {
        &self.0
    }

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

pub(crate) async fn health() -> Response {
    json_body(json!({ "status": "ok" }).to_string())
}

pub(crate) async fn chat(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Chat).await
}

async fn completion(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Text).await
}

async fn messages(State(server): State<Arc<Server>>, request: Request) -> Response {
    server.complete(request, Api::Messages).await.unwrap_or_else(|refusal| refusal.response(Api::Messages))
}

pub(crate) async fn respond(State(server): State<Arc<Server>>, request: Request) -> Answer {
    server.complete(request, Api::Responses).await
}

pub(crate) async fn input_tokens(State(server): State<Arc<Server>>, request: Request) -> Answer {
    count(server, request, Api::Chat).await
}

async fn message_tokens(State(server): State<Arc<Server>>, request: Request) -> Response {
    count(server, request, Api::Messages).await.unwrap_or_else(|refusal| refusal.response(Api::Messages))
}

pub(crate) async fn response_tokens(State(server): State<Arc<Server>>, request: Request) -> Answer {
    count(server, request, Api::Responses).await
}

/// The tokens of a conversation, without answering it.
async fn count(server: Arc<Server>, request: Request, api: Api) -> Answer {
    let (body, outline, earlier) = server.receive(request, api).await?;
    let (places, (lease, room)) = server.queue.enter(1, server.needs(&body, &outline)).await?;
    let of = Arc::clone(&server);
    let count = move || {
        let _held: Held = (places, room);
        let (request, _) = api.read(&body.bytes, &of, earlier)?;
        drop(body);
        // What would not be answered is not counted either.
        let tokens = request.options.check().and_then(|()| request.input_tokens(&lease.model));
        let tokens = tokens.map_err(|error| ApiError::of(&error, api.input()))?;
        let mut counted = json!({ "input_tokens": tokens });
        if api == Api::Responses {
            counted["object"] = "response.input_tokens".into();
        }
        Ok(counted.to_string())
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

pub(crate) async fn models(State(server): State<Arc<Server>>) -> impl IntoResponse {
    json_body(json!({ "object": "list", "data": server.models.json().collect::<Value>() }).to_string())
}

/// The adapters by number, as llama.cpp's server lists them. No scale is anybody's but a request's own, so nothing sets one for all.
async fn lora_adapters(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let each = server.models.iter().take(1).flat_map(Listed::adapters).enumerate();
    let listed: Value = each.map(|(id, name)| json!({ "id": id, "name": name, "scale": 0.0 })).collect();
    json_body(listed.to_string())
}

async fn description() -> impl IntoResponse {
    json_body(openapi::description().to_string())
}

async fn one_model(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    let (_, name, _) = server.models.find(Some(&id))?;
    let mut models = server.models.json().filter(|model| model["id"] == *name);
    Ok(json_body(models.next().unwrap_or_default().to_string()))
}

async fn metrics(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], server.metrics.text(&server))
}
