//! llama.cpp's server: its own API, its other names of paths, and what it says of itself.

use crate::api::{self, Answer, Route, Server, json_body, refuse};
use crate::apis::Api;
use crate::direct;
use crate::models::Listed;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use model_factory::Model;
use model_factory::tokenizer::Tokenizer;
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

/// What the server and a model are, the first one or the one that the query names; its template, marks and sampling where it is loaded. Its
/// path is private to the server; its name is not.
async fn props(State(server): State<Arc<Server>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let named = query.split('&').find_map(|field| field.strip_prefix("model=")).map(decoded);
    answer(
        server
            .models
            .find(named.as_deref())
            .map(|(listed, name, _)| listed.peek(|model| described(&server, listed, &name, model))),
    )
}

/// A value of a query, whose escapes are bytes in hexadecimal after `%`, and `+` for a blank.
fn decoded(value: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let [first, after @ ..] = rest {
        let digit = |index: usize| after.get(index).and_then(|digit| char::from(*digit).to_digit(16));
        let escaped = digit(0).zip(digit(1)).filter(|_| *first == b'%');
        let code = escaped.and_then(|(high, low)| u8::try_from(16 * high + low).ok());
        bytes.push(code.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = code.map_or(after, |_| &after[2..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn described(server: &Server, listed: &Listed, name: &str, model: Option<&Model>) -> Response {
    let mark = |id: fn(&Tokenizer) -> Option<u32>| {
        model.and_then(|model| model.tokenizer().token_text(id(model.tokenizer())?)).unwrap_or_default()
    };
    let params = model.map(|model| {
        let sampling = &model.spec().sampling;
        json!({
            "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p,
            "repeat_penalty": sampling.repetition_penalty, "n_predict": -1, "seed": -1,
        })
    });
    let template = model.and_then(|model| model.spec().tokenizer.chat_template());
    let sees = listed.report().model.as_ref().is_some_and(|model| model.vision.is_some());
    let props = json!({
        "default_generation_settings": { "n_ctx": listed.context(), "is_processing": false, "params": params.unwrap_or(json!({})) },
        "total_slots": server.queue.sessions(), "model_alias": name, "model_path": name,
        "modalities": { "vision": sees, "audio": false }, "chat_template": template.unwrap_or_default(),
        "bos_token": mark(Tokenizer::bos), "eos_token": mark(Tokenizer::eos),
        "build_info": concat!("model-factory ", env!("CARGO_PKG_VERSION")), "is_sleeping": model.is_none(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_query_are_read() {
        for (value, expected) in [
            ("demo", "demo"),
            ("org%2Fname%3aQ4+K", "org/name:Q4 K"),
            ("%C3%a4", "\u{e4}"),
            ("a%", "a%"),
            ("%2", "%2"),
            ("%zz%+1%25", "%zz% 1%"),
            ("%ff", "\u{fffd}"),
            ("", ""),
        ] {
            assert_eq!(decoded(value), expected, "{value}");
        }
    }
}
