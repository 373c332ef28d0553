//! What Ollama's API says of the model, and its streams of lines.

use crate::api::{Answer, Refusal, Server, json_body};
use crate::apis::Api;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt};
use model_factory_openai::ollama::time;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of a model as Ollama's clients have it; they add the tag where there is none.
fn tagged(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("{name}:latest") }
}

impl Server {
    /// The name of a model without the tag that Ollama's clients add, unless it is part of its name.
    pub(crate) fn untagged(&self, name: String) -> String {
        match name.strip_suffix(":latest") {
            Some(plain) if self.asked(Some(&name)).is_err() => plain.into(),
            _ => name,
        }
    }
}

/// Lines as the body of an answer.
pub(crate) fn lines(lines: impl Stream<Item = Value> + Send + 'static) -> Response {
    let lines = lines.map(|line| Ok::<_, Infallible>(format!("{line}\n")));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

pub(crate) async fn chat(State(server): State<Arc<Server>>, request: Request) -> Response {
    answer(server.complete(request, Api::OllamaChat).await)
}

pub(crate) async fn generate(State(server): State<Arc<Server>>, request: Request) -> Response {
    answer(server.complete(request, Api::OllamaGenerate).await)
}

/// An answer whose errors have Ollama's form.
pub(crate) fn answer(answer: Answer) -> Response {
    answer.unwrap_or_else(|refusal: Refusal| refusal.response(Api::OllamaChat))
}

pub(crate) async fn version() -> Response {
    json_body(json!({ "version": env!("CARGO_PKG_VERSION") }).to_string())
}

fn now() -> String {
    time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

impl Server {
    fn details(&self) -> Value {
        let spec = self.model.spec();
        let size = match spec.parameters {
            count @ 1_000_000_000.. => format!("{:.1}B", count as f64 / 1e9),
            count => format!("{:.2}M", count as f64 / 1e6),
        };
        json!({ "parent_model": "", "family": spec.family, "families": [spec.family], "parameter_size": size })
    }

    /// What the model can do, in Ollama's words.
    fn capabilities(&self) -> Value {
        let (spec, tokenizer) = (self.model.spec(), self.model.tokenizer());
        let generates = spec.weights.head.is_some();
        let all = [
            ("completion", generates),
            ("embedding", !generates),
            ("vision", spec.vision.is_some()),
            ("tools", generates && tokenizer.tool_calls(None).is_some()),
            ("thinking", generates && tokenizer.template_thinks()),
        ];
        all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| Value::from(name)).collect()
    }

    /// The model and its adapters, each with its name and `more`.
    fn listed(&self, more: &Value) -> Value {
        let names = std::iter::once(&self.name).chain(self.adapters.iter().map(|(name, _)| name));
        let model = |name: &String| {
            let mut model = json!({ "name": tagged(name), "model": tagged(name), "details": self.details() });
            for (name, value) in more.as_object().into_iter().flatten() {
                model[name] = value.clone();
            }
            model
        };
        json!({ "models": names.map(model).collect::<Value>() })
    }
}

pub(crate) async fn tags(State(server): State<Arc<Server>>) -> Response {
    json_body(server.listed(&json!({ "modified_at": now() })).to_string())
}

pub(crate) async fn ps(State(server): State<Arc<Server>>) -> Response {
    let context = server.model.context_length();
    // It is never unloaded.
    json_body(server.listed(&json!({ "context_length": context, "expires_at": "9999-12-31T23:59:59Z" })).to_string())
}

pub(crate) fn show(server: &Server) -> Value {
    let (spec, template) = (server.model.spec(), server.model.spec().tokenizer.chat_template());
    let about = |name: &str| format!("{}.{name}", spec.family);
    json!({
        "modelfile": "", "parameters": "", "license": "", "modified_at": now(), "template": template.unwrap_or_default(),
        "details": server.details(), "capabilities": server.capabilities(),
        "model_info": {
            "general.architecture": spec.family, "general.parameter_count": spec.parameters,
            about("context_length"): server.model.context_length(), about("embedding_length"): spec.hidden,
        },
    })
}
