//! Spans and metrics -> a collector, by OTLP over HTTP. The environment variables of OpenTelemetry's SDKs hold (`OTEL_SERVICE_NAME`,
//! `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS` and others).

use crate::common::tell;
use axum::http::HeaderMap;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Array, InstrumentationScope, Key, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

/// The time that a request to the collector may take, as OTLP has it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of what a collector says.
const MOST_SAID: u64 = 64 << 10;

/// The variables that name a collector where no option does.
const COLLECTORS: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"];

/// The conventions that names are of: the last version in which those of generative AI were.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.41.0";

/// What tells a collector, if there is one.
#[derive(Clone)]
pub(crate) struct Exporter(Option<Arc<Telling>>);

struct Telling {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
    duration: Histogram<f64>,
    first_token: Histogram<f64>,
    each_token: Histogram<f64>,
}

impl Exporter {
    /// What tells `collector`, or the one that the environment names. From now on it is told the spans of the process.
    ///
    /// # Errors
    /// Where something of that is malformed.
    pub(crate) fn new(collector: Option<&str>) -> Result<Exporter, String> {
        let is_named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        if is_off || (collector.is_none() && !COLLECTORS.iter().any(|name| is_named(&name))) {
            return Ok(Exporter(None));
        }
        let failed = |error: &dyn Display| format!("no collector of OpenTelemetry can be told: {error}");
        let client = Client::new();
        let at = |path: &str| collector.map(|base| format!("{}{path}", base.trim_end_matches('/'))).unwrap_or_default();
        let spans = SpanExporter::builder().with_http().with_http_client(client.clone());
        let spans =
            in_protocol(spans, "TRACES").with_endpoint(at("/v1/traces")).build().map_err(|error| failed(&error))?;
        let metrics = MetricExporter::builder().with_http().with_http_client(client);
        let metrics = in_protocol(metrics, "METRICS").with_endpoint(at("/v1/metrics"));
        let metrics = metrics.build().map_err(|error| failed(&error))?;
        let tracers = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(spans).build();
        let meters = SdkMeterProvider::builder().with_resource(resource()).with_periodic_exporter(metrics).build();
        let scope = InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(SCHEMA)
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracers.tracer_with_scope(scope.clone()))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        // Spans of single tokens and layers are below this level: there would be thousands of them in a request.
        let subscriber = Registry::default().with(LevelFilter::INFO).with(layer);
        tracing::subscriber::set_global_default(subscriber).map_err(|error| failed(&error))?;
        let meter = meters.meter_with_scope(scope);
        let seconds = |name, about, bounds: &[f64]| histogram(&meter, name, about, bounds);
        let duration = seconds(
            "gen_ai.server.request.duration",
            "Time from a request to the end of its answer.",
            &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92],
        );
        let first_token = seconds(
            "gen_ai.server.time_to_first_token",
            "Time from a request to the first token of its answer.",
            &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0],
        );
        let each_token = seconds(
            "gen_ai.server.time_per_output_token",
            "Mean time of each token of an answer after the first.",
            &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5],
        );
        Ok(Exporter(Some(Arc::new(Telling { tracers, meters, duration, first_token, each_token }))))
    }

    /// Tells what has not been told yet, for as long as `limit` where the collector does not answer, and nothing from then on.
    pub(crate) fn shut_down(&self, limit: Duration) {
        let Some(telling) = self.0.clone() else { return };
        let (done, is_done) = std::sync::mpsc::channel();
        let shut_down = move || {
            // The client has said what the matter is.
            let _ = telling.tracers.shutdown_with_timeout(limit);
            let _ = telling.meters.shutdown_with_timeout(limit);
            let _ = done.send(());
        };
        if std::thread::Builder::new().spawn(shut_down).is_ok() {
            let _ = is_done.recv_timeout(limit);
        }
    }

    /// Measures an operation, by its name, its provider and its model: how long it took, until its first token, and each token after
    /// the first of its answers, in seconds.
    pub(super) fn measured(
        &self,
        [operation, provider, model]: [&str; 3],
        error: Option<&str>,
        (seconds, first, each): (f64, Option<Duration>, &[f64]),
    ) {
        let Some(telling) = &self.0 else { return };
        let mut of = vec![
            KeyValue::new("gen_ai.operation.name", operation.to_owned()),
            KeyValue::new("gen_ai.provider.name", provider.to_owned()),
            KeyValue::new("gen_ai.request.model", model.to_owned()),
            KeyValue::new("gen_ai.response.model", model.to_owned()),
        ];
        if let Some(first) = first {
            telling.first_token.record(first.as_secs_f64(), &of);
        }
        each.iter().for_each(|seconds| telling.each_token.record(*seconds, &of));
        of.extend(error.map(|error| KeyValue::new("error.type", error.to_owned())));
        telling.duration.record(seconds, &of);
    }
}

/// What exports `signal`, in protobuf unless the environment names a protocol.
fn in_protocol<B: WithExportConfig>(builder: B, signal: &str) -> B {
    let names = ["OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")];
    if names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return builder;
    }
    builder.with_protocol(Protocol::HttpBinary)
}

fn histogram(meter: &Meter, name: &'static str, about: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_description(about).with_unit("s").with_boundaries(bounds.to_vec()).build()
}

/// What the environment says of this server; where that has no name, its own.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let said = Resource::builder().with_attribute(version.clone()).build();
    let name = said.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return said;
    }
    Resource::builder().with_attribute(version).with_service_name(env!("CARGO_PKG_NAME")).build()
}

/// Makes `span` a child of the one that the headers of its request name (`traceparent`, by W3C's Trace Context).
pub(super) fn continue_trace(span: &Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        let _ = span.set_parent(TraceContextPropagator::new().extract(&HeaderExtractor(headers))); // an error where nobody is told
    }
}

/// A list of texts, which spans of `tracing` have no form for.
pub(super) fn list(span: &Span, name: &'static str, texts: Vec<String>) {
    if !texts.is_empty() {
        span.set_attribute(name, Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect())));
    }
}

/// Sends what is told, on the threads of the SDK, and says once when the collector does not take it.
#[derive(Clone, Debug)]
struct Client {
    agent: ureq::Agent,
    is_lost: Arc<AtomicBool>,
}

impl Client {
    fn new() -> Client {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        Client { agent: ureq::Agent::new_with_config(config), is_lost: Arc::default() }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, mut body) = self.agent.run(request.map(|body| body.to_vec()))?.into_parts();
        let said = body.with_config().limit(MOST_SAID).read_to_vec()?;
        Ok(Response::from_parts(parts, said.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let to = request.uri().clone();
        let answered = self.send(request);
        let trouble = match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(response.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        let was_lost = self.is_lost.swap(trouble.is_some(), Ordering::Relaxed);
        match trouble {
            Some(trouble) if !was_lost => tell(format_args!("spans or metrics are lost: {to}: {trouble}")),
            None if was_lost => tell(format_args!("{to} takes spans and metrics again")),
            _ => {}
        }
        Ok(answered?)
    }
}
