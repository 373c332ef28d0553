//! What is told of requests: spans by `tracing`, and with the feature `otel` metrics, both in the words of OpenTelemetry's conventions
//! for HTTP and for generative AI. No text of a request or an answer is in them.

#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
#[path = "observe/nothing.rs"]
mod export;

use crate::api::Refusal;
use crate::apis::Api;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
pub(crate) use export::Exporter;
use model_factory::generate::Timings;
use model_factory_openai::CompletionRequest;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::Empty;
use tracing::{Span, info_span};

/// What the conventions call the system that generates.
const PROVIDER: &str = "model-factory";

/// Paths that are asked all the time by what watches the server.
const UNTOLD: [&str; 2] = ["/health", "/metrics"];

/// The span of a request that came over HTTP, whose parent is the span that its headers name.
pub(crate) fn request(request: &Request, route: &str) -> Span {
    if UNTOLD.contains(&route) {
        return Span::none();
    }
    let method = match *request.method() {
        Method::GET | Method::POST | Method::DELETE | Method::PUT | Method::PATCH | Method::HEAD | Method::OPTIONS => {
            request.method().as_str()
        }
        _ => "_OTHER",
    };
    let is_known = route.starts_with('/');
    let name = if is_known { format!("{method} {route}") } else { method.to_owned() };
    let span = info_span!(
        "request",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = is_known.then_some(route),
        http.response.status_code = Empty,
        url.path = request.uri().path(),
        url.scheme = "http",
        network.protocol.version = protocol(request),
        server.address = Empty,
        server.port = Empty,
        user_agent.original = text(request.headers(), header::USER_AGENT),
        error.type = Empty,
    );
    let host = text(request.headers(), header::HOST).map(|host| host.rsplit_once(':').unwrap_or((host, "80")));
    if let Some((host, Ok(port))) = host.map(|(host, port)| (host, port.parse::<u16>())) {
        span.record("server.address", host).record("server.port", i64::from(port));
    }
    export::continue_trace(&span, request.headers());
    span
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn protocol(request: &Request) -> Option<&'static str> {
    match request.version() {
        axum::http::Version::HTTP_10 => Some("1.0"),
        axum::http::Version::HTTP_11 => Some("1.1"),
        _ => None,
    }
}

/// Tells the status of the response to the request of `span`.
pub(crate) fn responded(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("error.type", status.as_str()).record("otel.status_code", "error");
    }
}

/// What is told of one operation of a model: it ends when the last of its clones is dropped.
#[derive(Clone)]
pub(crate) struct Operation(Arc<Telling>);

struct Telling {
    span: Span,
    exporter: Exporter,
    name: &'static str,
    model: String,
    arrived: Instant,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    first_token: Option<Duration>,
    /// How the answers finished, in the words of OpenAI's API.
    finish_reasons: Vec<String>,
    /// Seconds for each token after the first, of each answer that has several.
    each_token: Vec<f64>,
    outcome: Option<Outcome>,
}

enum Outcome {
    Done,
    /// The class of the error.
    Failed(String),
}

impl Operation {
    /// The operation `name` on the model of this name, for a request that arrived then. Its span is a child of the current one.
    pub(crate) fn new(exporter: &Exporter, name: &'static str, model: &str, arrived: Instant) -> Operation {
        let span = info_span!(
            "operation",
            otel.name = format!("{name} {model}"),
            otel.status_code = Empty,
            gen_ai.operation.name = name,
            gen_ai.provider.name = PROVIDER,
            gen_ai.request.model = model,
            gen_ai.request.stream = Empty,
            gen_ai.request.choice.count = Empty,
            gen_ai.request.seed = Empty,
            gen_ai.request.max_tokens = Empty,
            gen_ai.request.temperature = Empty,
            gen_ai.request.top_p = Empty,
            gen_ai.request.top_k = Empty,
            gen_ai.request.presence_penalty = Empty,
            gen_ai.request.frequency_penalty = Empty,
            gen_ai.output.type = Empty,
            gen_ai.response.id = Empty,
            gen_ai.response.model = Empty,
            gen_ai.response.time_to_first_chunk = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            error.type = Empty,
        );
        let (exporter, model, so_far) = (exporter.clone(), model.to_owned(), Mutex::default());
        Operation(Arc::new(Telling { span, exporter, name, model, arrived, so_far }))
    }

    pub(crate) fn span(&self) -> &Span {
        &self.0.span
    }

    fn so_far(&self, change: impl FnOnce(&mut SoFar)) {
        change(&mut self.0.so_far.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells what the request asks for; fields that it leaves to the model are left out.
    pub(crate) fn asked(&self, request: &CompletionRequest) {
        let (span, options) = (&self.0.span, &request.options);
        let sampling = &options.sampling;
        let number = |name: &str, value: Option<f64>| _ = value.map(|value| span.record(name, value));
        let count = |name: &str, value: Option<u64>| {
            let value = value.and_then(|value| i64::try_from(value).ok());
            _ = value.map(|value| span.record(name, value));
        };
        if request.stream {
            span.record("gen_ai.request.stream", true);
        }
        count("gen_ai.request.choice.count", Some(request.n as u64).filter(|n| *n != 1));
        count("gen_ai.request.seed", sampling.seed);
        count("gen_ai.request.max_tokens", Some(options.max_tokens as u64));
        number("gen_ai.request.temperature", sampling.temperature);
        number("gen_ai.request.top_p", sampling.top_p);
        number("gen_ai.request.top_k", sampling.top_k.map(|k| k as f64));
        number("gen_ai.request.presence_penalty", Some(sampling.presence_penalty).filter(|of| *of != 0.0));
        number("gen_ai.request.frequency_penalty", Some(sampling.frequency_penalty).filter(|of| *of != 0.0));
        if let Some(grammar) = &options.grammar {
            span.record("gen_ai.output.type", if grammar.schema().is_some() { "json" } else { "text" });
        }
    }

    /// The first token is there, so long after the request.
    pub(crate) fn first_token(&self) -> Duration {
        let after = self.0.arrived.elapsed();
        self.0.span.record("gen_ai.response.time_to_first_chunk", after.as_secs_f64());
        self.so_far(|so_far| so_far.first_token = Some(after));
        after
    }

    /// An answer has ended, whose last chunk this is.
    pub(crate) fn ended(&self, last: &Value, timings: &Timings) {
        self.so_far(|so_far| {
            so_far.finish_reasons.extend(last["choices"][0]["finish_reason"].as_str().map(str::to_owned));
            let after_first = timings.generated.saturating_sub(1);
            if after_first > 0 {
                so_far.each_token.push(timings.decode.as_secs_f64() / after_first as f64);
            }
        });
    }

    /// All is there.
    pub(crate) fn done(&self) {
        self.0.span.record("gen_ai.response.model", &*self.0.model);
        self.so_far(|so_far| so_far.outcome = Some(Outcome::Done));
    }

    /// It was refused.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.failed(refusal.error().status);
        refusal
    }

    /// It ended with an error of this status.
    pub(crate) fn failed(&self, status: u16) {
        self.so_far(|so_far| so_far.outcome = Some(Outcome::Failed(status.to_string())));
    }
}

/// Tells the tokens of the operation of `span`, by `usage` in OpenAI's form.
pub(crate) fn used(span: &Span, usage: &Value) {
    for (name, place) in [
        ("gen_ai.usage.input_tokens", "/prompt_tokens"),
        ("gen_ai.usage.cache_read.input_tokens", "/prompt_tokens_details/cached_tokens"),
        ("gen_ai.usage.output_tokens", "/completion_tokens"),
        ("gen_ai.usage.reasoning.output_tokens", "/completion_tokens_details/reasoning_tokens"),
    ] {
        if let Some(tokens) = usage.pointer(place).and_then(Value::as_i64) {
            span.record(name, tokens);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let so_far = std::mem::take(self.so_far.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Whoever drops it before an outcome is a client that went away.
        let error = match so_far.outcome {
            Some(Outcome::Done) => None,
            Some(Outcome::Failed(class)) => Some(class),
            None => Some("cancelled".to_owned()),
        };
        if let Some(error) = &error {
            self.span.record("error.type", &**error).record("otel.status_code", "error");
        }
        export::list(&self.span, "gen_ai.response.finish_reasons", so_far.finish_reasons);
        let seconds = self.arrived.elapsed().as_secs_f64();
        let first = so_far.first_token.filter(|_| error.is_none());
        let each = if error.is_none() { so_far.each_token } else { Vec::new() };
        self.exporter.measured([self.name, PROVIDER, &self.model], error.as_deref(), (seconds, first, &each));
    }
}

impl Api {
    /// What the conventions call the operation.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Api::Chat | Api::Messages | Api::Responses | Api::OllamaChat => "chat",
            Api::Text | Api::OllamaGenerate | Api::Completion | Api::Infill => "text_completion",
        }
    }
}
