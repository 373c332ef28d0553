//! llama.cpp's server: its own API, its other names of paths, and what it says of itself.

use crate::api::{self, Answer, Route, Server, json_body, refuse};
use crate::apis::Api;
use crate::direct;
use crate::models::{Lease, Listed};
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;

/// The paths whose answers and errors have the form of llama.cpp's server.
pub(crate) const PATHS: [&str; 7] =
    ["/completion", "/completions", "/infill", "/embedding", "/embeddings", "/props", "/slots"];

/// The paths that only llama.cpp's server has.
pub(crate) fn routes() -> [Route; 13] {
    [
        ("/completion", post(completion)),
        ("/completions", post(completion)),
        ("/infill", post(infill)),
        ("/embedding", post(direct::vectors)),
        ("/embeddings", post(direct::vectors)),
        ("/props", get(props)),
        ("/slots", get(slots)),
        ("/v1/health", get(api::health)),
        ("/models", get(api::models)),
        ("/chat/completions", post(api::chat)),
        ("/chat/completions/input_tokens", post(api::input_tokens)),
        ("/responses", post(api::respond)),
        ("/responses/input_tokens", post(api::response_tokens)),
    ]
}

/// An answer whose errors have the form of llama.cpp's server.
pub(crate) fn answer(answer: Answer) -> Response {
    answer.unwrap_or_else(|refusal| refusal.response(Api::Completion))
}

async fn completion(State(server): State<Arc<Server>>, request: Request) -> Response {
    answer(server.complete(request, Api::Completion).await)
}

async fn infill(State(server): State<Arc<Server>>, request: Request) -> Response {
    answer(server.complete(request, Api::Infill).await)
}

/// What the server and a model are, the first one or the one that the query names. The model's path is private to the server; its name is
/// not.
async fn props(State(server): State<Arc<Server>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let named = query.split('&').find_map(|field| field.strip_prefix("model="));
    answer(server.models.lease(named).await.map(|lease| of_model(&server, &lease)))
}

fn of_model(server: &Server, lease: &Lease) -> Response {
    let (model, tokenizer) = (&lease.model, lease.model.tokenizer());
    let (spec, context) = (model.spec(), model.context_length());
    let sampling = &spec.sampling;
    let name = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
    let params = json!({
        "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty, "n_predict": -1, "seed": -1,
    });
    let props = json!({
        "default_generation_settings": { "n_ctx": context, "is_processing": false, "params": params },
        "total_slots": server.queue.sessions(), "model_alias": lease.name, "model_path": lease.name,
        "modalities": { "vision": spec.vision.is_some(), "audio": false },
        "chat_template": spec.tokenizer.chat_template().unwrap_or_default(),
        "bos_token": name(tokenizer.bos()), "eos_token": name(tokenizer.eos()),
        "build_info": concat!("model-factory ", env!("CARGO_PKG_VERSION")), "is_sleeping": false,
    });
    json_body(props.to_string())
}

/// The places of answers that are computed at once: nothing else is a slot here.
async fn slots(State(server): State<Arc<Server>>, RawQuery(query): RawQuery) -> Response {
    let ([running, _], places) = (server.queue.lengths(), server.queue.sessions());
    let must_be_free = query.unwrap_or_default().split('&').any(|field| field == "fail_on_no_slot=1");
    if must_be_free && running >= places {
        return refuse(503, "all places are taken").response(Api::Completion);
    }
    let context = server.models.iter().next().map(Listed::context);
    let slot = |id| json!({ "id": id, "n_ctx": context, "speculative": false, "is_processing": id < running });
    json_body((0..places).map(slot).collect::<Value>().to_string()).into_response()
}
