//! What Ollama's API says of the model, and its streams of lines.

use crate::api::{Answer, Refusal, Server, json_body, refuse};
use crate::apis::Api;
use crate::models::Listed;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt};
use model_factory::Model;
use model_factory::diagnostics::report::ModelSummary;
use model_factory_openai::ApiError;
use model_factory_openai::ollama::{self, time};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of a model as Ollama's clients have it; they add the tag where there is none.
fn tagged(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("{name}:latest") }
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

/// What Ollama says of a model in a few words.
fn details(model: &ModelSummary) -> Value {
    let size = match model.parameters {
        count @ 1_000_000_000.. => format!("{:.1}B", count as f64 / 1e9),
        count => format!("{:.2}M", count as f64 / 1e6),
    };
    json!({ "parent_model": "", "family": model.family, "families": [model.family], "parameter_size": size })
}

/// What the model can do, in Ollama's words; whether its template opens thoughts is known of one that is loaded.
fn capabilities(summary: &ModelSummary, model: Option<&Model>) -> Value {
    let generates = !summary.embeds.only;
    let all = [
        ("completion", generates),
        ("embedding", !generates),
        ("vision", summary.vision.is_some()),
        ("tools", generates && summary.tool_calls.is_some()),
        ("thinking", generates && model.is_some_and(|model| model.tokenizer().template_thinks())),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| Value::from(name)).collect()
}

/// The names of `models`, each with what is said of it, and `more`.
fn listed<'m>(models: impl Iterator<Item = &'m Listed>, more: impl Fn(&Listed) -> Value) -> Response {
    let each = models.flat_map(|listed| {
        let details = listed.report().model.as_ref().map(details);
        let more = more(listed);
        listed.all_names().map(move |name| {
            let mut model = json!({ "name": tagged(name), "model": tagged(name), "details": details });
            for (name, value) in more.as_object().into_iter().flatten() {
                model[name] = value.clone();
            }
            model
        })
    });
    json_body(json!({ "models": each.collect::<Value>() }).to_string())
}

pub(crate) async fn tags(State(server): State<Arc<Server>>) -> Response {
    listed(server.models.iter(), |_| json!({ "modified_at": now() }))
}

pub(crate) async fn ps(State(server): State<Arc<Server>>) -> Response {
    // None is unloaded for the time that it was not used.
    let more = |model: &Listed| json!({ "context_length": model.context(), "expires_at": "9999-12-31T23:59:59Z" });
    listed(server.models.iter().filter(|model| model.is_loaded()), more)
}

pub(crate) async fn show(State(server): State<Arc<Server>>, request: Request) -> Response {
    answer(described(&server, request).await)
}

/// What is known of a model without loading it.
async fn described(server: &Server, request: Request) -> Answer {
    let body = server.budget.body(request).await?;
    let (body, outline) = server.budget.outline(body).await?;
    let read = move || Ok(ollama::show(&body.bytes).map_err(ApiError::from)?);
    let name = server.budget.read(outline, read).await?;
    let (listed, ..) = server.models.find(Some(&name))?;
    let Some(summary) = &listed.report().model else { return Err(refuse(500, "nothing is known of the model")) };
    let about = |name: &str| format!("{}.{name}", summary.family);
    let (template, capabilities) = listed.peek(|model| {
        let template = model.and_then(|model| model.spec().tokenizer.chat_template()).unwrap_or_default();
        (template.to_owned(), capabilities(summary, model))
    });
    let shown = json!({
        "modelfile": "", "parameters": "", "license": "", "modified_at": now(), "template": template,
        "details": details(summary), "capabilities": capabilities,
        "model_info": {
            "general.architecture": summary.family, "general.parameter_count": summary.parameters,
            about("context_length"): listed.context(), about("embedding_length"): summary.hidden,
        },
    });
    Ok(json_body(shown.to_string()))
}
