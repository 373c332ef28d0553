//! Responses that requests go on with.

use super::items::Turns;
use crate::error::{ApiError, RequestError};
use crate::fields::Place;
use crate::outline::Outline;
use serde::Deserialize;
use serde_json::{Value, json};

/// A response that ended, as texts: a server keeps them for requests that go on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptResponse {
    /// Its id, which nobody can guess.
    pub id: String,
    /// The one that it goes on with.
    pub previous: Option<String>,
    /// The response.
    pub response: String,
    /// Its items: `{"input": [..], "output": [..]}`.
    pub items: String,
    /// Bytes of memory that the items take while they are read, as in [`Outline::bytes`].
    pub values: usize,
}

impl KeptResponse {
    pub(super) fn new(response: &Value, input: Vec<Value>) -> KeptResponse {
        let text = |name: &str| response[name].as_str().map(str::to_owned);
        let items = json!({ "input": input, "output": response["output"] }).to_string();
        let values = Outline::of(items.as_bytes()).map_or(usize::MAX, |outline| outline.bytes);
        let (id, previous) = (text("id").unwrap_or_default(), text("previous_response_id"));
        KeptResponse { id, previous, response: response.to_string(), items, values }
    }

    /// The list of its input items that `GET /v1/responses/{id}/input_items` gives: at most `limit` after the item of this id.
    pub fn input_items(&self, is_ascending: bool, limit: usize, after: Option<&str>) -> Value {
        let mut input = items(&self.items).input;
        if !is_ascending {
            input.reverse();
        }
        let begin = after.and_then(|after| input.iter().position(|item| item["id"] == after));
        let mut rest: Vec<Value> = input.into_iter().skip(begin.map_or(0, |begin| begin + 1)).collect();
        let has_more = rest.len() > limit;
        rest.truncate(limit);
        let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
        let (first, last) = (id(rest.first()), id(rest.last()));
        json!({ "object": "list", "data": rest, "first_id": first, "last_id": last, "has_more": has_more })
    }
}

#[derive(Default, Deserialize)]
struct Items {
    input: Vec<Value>,
    output: Vec<Value>,
}

fn items(text: &str) -> Items {
    serde_json::from_str(text).unwrap_or_default()
}

/// Appends the items of earlier responses.
pub(super) fn go_on(turns: &mut Turns, earlier: &[&str]) -> Result<(), RequestError> {
    for text in earlier {
        let Items { input, output } = items(text);
        for item in input.iter().chain(&output) {
            turns.item(&Place("previous_response_id".into()), item)?;
        }
    }
    Ok(())
}

/// The `previous_response_id` of a request, before anything else of it is stored.
pub fn previous(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Previous {
        previous_response_id: Option<String>,
    }
    // What is no text is refused when the request is read.
    serde_json::from_slice(body).ok().and_then(|Previous { previous_response_id }| previous_response_id)
}

/// The error for a response that is not kept, or not any more: 400 where a request goes on with it, otherwise 404.
pub fn missing(id: &str, is_previous: bool) -> ApiError {
    if is_previous {
        let message = format!("Previous response with id '{id}' not found.");
        return ApiError::new(400, message, Some("previous_response_id"), Some("previous_response_not_found"));
    }
    ApiError::new(404, format!("Response with id '{id}' not found."), Some("response_id"), None)
}
