//! Paths -> answers: who may ask, how many may wait, and what each path does.

use crate::error::{self, Refusal};
use crate::metrics::Metrics;
use crate::reply::{Form, Head, Reply};
use crate::request::{self, Asked, Fields};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::{CancellationToken, EmbedOptions, Error, Model};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the body of a request may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Nothing is loaded from elsewhere, and the page is shown in no other.
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                           img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// What all requests share.
pub(crate) struct Server {
    pub(crate) model: Model,
    /// The model's name for clients.
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    /// The origin whose pages may ask; `*` is any.
    pub(crate) origin: Option<HeaderValue>,
    /// Whether only this machine can ask.
    pub(crate) is_local: bool,
    /// Bytes of a request.
    pub(crate) body_limit: usize,
    pub(crate) queue: Queue,
    pub(crate) metrics: Arc<Metrics>,
    /// Ends all that is generated.
    pub(crate) cancel: CancellationToken,
}

/// Who is computed, and who waits for that in order of arrival.
pub(crate) struct Queue {
    running: Arc<Semaphore>,
    /// Those that run and those that wait.
    all: Arc<Semaphore>,
    sessions: usize,
    length: usize,
}

/// Places of a request; free when dropped.
pub(crate) type Places = [OwnedSemaphorePermit; 2];

impl Queue {
    pub(crate) fn new(sessions: usize, length: usize) -> Queue {
        let [running, all] = [sessions, sessions + length].map(|places| Arc::new(Semaphore::new(places)));
        Queue { running, all, sessions, length }
    }

    /// Waits for `places` to be computed on.
    async fn enter(&self, places: usize) -> Result<Places, Refusal> {
        let places = u32::try_from(places).ok().filter(|places| (1..=self.sessions).contains(&(*places as usize)));
        let expected = || format!("a request may have 1 to {} answers", self.sessions);
        let places = places.ok_or_else(|| Refusal::field("n", expected()))?;
        let full = |_| {
            let message = format!("{} requests wait already; try again later", self.length);
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full")
        };
        let all = Arc::clone(&self.all).try_acquire_many_owned(places).map_err(full)?;
        let closed = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        Ok([Arc::clone(&self.running).acquire_many_owned(places).await.map_err(closed)?, all])
    }

    /// How many run, and how many wait.
    fn lengths(&self) -> [usize; 2] {
        let running = self.sessions - self.running.available_permits();
        [running, (self.sessions + self.length - self.all.available_permits()).saturating_sub(running)]
    }
}

pub(crate) fn router(server: Arc<Server>) -> Router {
    let not_found = |request: Request| async move {
        Refusal::new(StatusCode::NOT_FOUND, format_args!("there is nothing at {}", request.uri().path()))
    };
    let not_allowed = |request: Request| async move {
        let message = format!("{} is no method of {}", request.method(), request.uri().path());
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
    };
    Router::new()
        .route(
            "/",
            get(|| async { ([(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(include_str!("page.html"))) }),
        )
        .route("/health", get(|| async { error::json(StatusCode::OK, &json!({ "status": "ok" })) }))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(one_model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/embeddings", post(embeddings))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .with_state(server)
}

/// Lets in who may ask, and counts what is answered.
async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let is_open = matches!(path.as_deref(), Some("/" | "/health")) || request.method() == Method::OPTIONS;
    let mut response = match server.may_ask(request.headers(), is_open) {
        Err(refusal) => refusal.into_response(),
        Ok(()) if request.method() == Method::OPTIONS && server.origin.is_some() => {
            let allowed = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization"),
            ];
            (StatusCode::NO_CONTENT, allowed).into_response()
        }
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = &server.origin {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    server.metrics.responded(path.as_deref().unwrap_or("other"), response.status().as_u16());
    response
}

impl Server {
    fn may_ask(&self, headers: &HeaderMap, is_open: bool) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // A page of elsewhere whose name was made to mean this machine asks by that name.
        if self.is_local && !is_loopback(text(header::HOST)) {
            let message = "this server answers by localhost and loopback addresses alone; --host opens it";
            return Err(Refusal::new(StatusCode::FORBIDDEN, message));
        }
        let given = text(header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
        match &self.key {
            Some(key) if !is_open && !same(key.as_bytes(), given.as_bytes()) => {
                let message = "the API key is missing or wrong: Authorization: Bearer KEY";
                Err(Refusal::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
            }
            _ => Ok(()),
        }
    }

    /// The fields of a request for this model.
    async fn fields(&self, request: Request) -> Result<Fields, Refusal> {
        let of_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
        // A page of elsewhere may not send this type unless CORS lets it.
        if !request.headers().get(header::CONTENT_TYPE).is_some_and(of_json) {
            let message = "expected the content type application/json";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let body = tokio::time::timeout(BODY_TIME, to_bytes(request.into_body(), self.body_limit)).await;
        let body = body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"))?;
        let too_large = format!("the body could not be read, or has more than {} bytes", self.body_limit);
        let body = body.map_err(|_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, too_large))?;
        let mut fields = Fields::parse(&body)?;
        match fields.take::<String>("model")? {
            Some(model) if model != self.name => Err(self.no_model(&model)),
            _ => Ok(fields),
        }
    }

    fn no_model(&self, asked: &str) -> Refusal {
        let message = format!("there is no model {asked:?}, there is {:?}", self.name);
        Refusal::new(StatusCode::NOT_FOUND, message).param("model").code("model_not_found")
    }

    fn model(&self) -> Value {
        json!({
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "model-factory",
            "context_length": self.model.context_length(),
        })
    }

    async fn generate(self: Arc<Self>, form: Form, asked: Asked, arrived: Instant) -> Result<Response, Refusal> {
        let places = self.queue.enter(asked.answers()).await?;
        let input = asked.input.field();
        let head =
            Head { form, input, model: self.name.clone(), arrived, n: asked.n, include_usage: asked.include_usage };
        let (server, stream) = (Arc::clone(&self), asked.stream);
        let begin = move || {
            let generations = asked.generations(&server.model, &server.cancel)?;
            let streams = generations.into_iter().map(|generation| generation.into_stream()).collect();
            Ok(Reply::new(head, streams, &server.model, Arc::clone(&server.metrics), places))
        };
        let reply = blocking(begin, input).await?;
        if stream { Ok(reply.events()) } else { reply.whole().await }
    }
}

/// Runs what takes a while on a thread of its own.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Error> + Send + 'static,
    input: &'static str,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())));
    done.map_err(|error| Refusal::of(&error, input))
}

/// Whether two keys are equal, in a time that does not tell where they differ.
fn same(key: &[u8], given: &[u8]) -> bool {
    let differ = |(a, b): (&u8, &u8)| std::hint::black_box(a ^ b);
    key.len() == given.len() && key.iter().zip(given).map(differ).fold(0, |all, bits| all | bits) == 0
}

/// Whether the name in a `Host` header is this machine's own.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

type Answer = Result<Response, Refusal>;

async fn chat(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let arrived = Instant::now();
    let asked = Asked::chat(server.fields(request).await?)?;
    server.generate(Form::Chat, asked, arrived).await
}

async fn completion(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let arrived = Instant::now();
    let asked = Asked::completion(server.fields(request).await?)?;
    server.generate(Form::Text, asked, arrived).await
}

async fn embeddings(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let mut fields = server.fields(request).await?;
    let missing = || Refusal::field("input", "input is missing");
    let texts = request::texts(&mut fields, "input")?.filter(|texts| !texts.is_empty()).ok_or_else(missing)?;
    let dimensions: Option<usize> = fields.take("dimensions")?;
    let options = dimensions.into_iter().fold(EmbedOptions::default(), EmbedOptions::dimensions);
    let is_base64 = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Refusal::field("encoding_format", "expected float or base64")),
    };
    fields.end()?;
    let _places = server.queue.enter(1).await?;
    let cancel = server.cancel.child();
    let _guard = CancelOnDrop(cancel.clone());
    let model = server.model.clone();
    let embed = move || {
        let vectors = model.embed_with(&texts, &options.cancel(&cancel))?.to_vec2::<f32>()?;
        let count = |text: &String| Ok(model.tokenizer().encode(text, true)?.len());
        Ok((vectors, texts.iter().map(count).sum::<Result<usize, Error>>()?))
    };
    let (vectors, tokens) = blocking(embed, "input").await?;
    let data = vectors.into_iter().enumerate().map(|(index, vector)| {
        let embedding = if is_base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            BASE64_STANDARD.encode(bytes).into()
        } else {
            Value::from(vector)
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    let data: Vec<Value> = data.collect();
    Ok(error::json(StatusCode::OK, &json!({ "object": "list", "model": server.name, "data": data, "usage": usage })))
}

/// Cancels what nobody waits for any more.
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    error::json(StatusCode::OK, &json!({ "object": "list", "data": [server.model()] }))
}

async fn one_model(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    if id == server.name { Ok(error::json(StatusCode::OK, &server.model())) } else { Err(server.no_model(&id)) }
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let cache = server.model.cache_usage();
    let [running, waiting] = server.queue.lengths().map(|length| length as u64);
    let resident = crate::common::process_bytes("VmRSS").unwrap_or_default();
    let gauges = [
        ("running", running),
        ("waiting", waiting),
        ("kv_cache_bytes", cache.bytes),
        ("kv_cache_unused_bytes", cache.unused),
        ("resident_bytes", resident),
    ];
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, Body::from(server.metrics.text(&gauges))).into_response()
}
