//! The responses that are kept: within a bound of bytes and a number, those that were used longest ago go first.

use crate::api::{Refusal, Server, json_body, refuse};
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use model_factory_openai::ApiError;
use model_factory_openai::responses::{KeptResponse, missing};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most responses that are kept.
const MOST: usize = 4096;

/// Bytes of an entry besides its texts, rather too many.
const ENTRY: usize = 512;

/// Bytes of a place in a list of earlier responses.
const PLACE: usize = size_of::<Arc<Kept>>();

pub(crate) struct Responses {
    most_bytes: usize,
    /// The bytes of all responses that are in memory: those that are kept, and those before them.
    bytes: Arc<AtomicUsize>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    by_id: HashMap<String, Entry>,
    /// The number of uses so far.
    uses: u64,
}

struct Entry {
    /// The responses before it, and itself as the last one. They stay as long as one that goes on with them is kept.
    all: Vec<Arc<Kept>>,
    last_use: u64,
}

/// A response in memory, which counts its bytes.
pub(crate) struct Kept {
    response: KeptResponse,
    own: usize,
    bytes: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// The responses that a request goes on with, the first one first.
#[derive(Clone, Default)]
pub(crate) struct Earlier(Vec<Arc<Kept>>);

impl Earlier {
    pub(crate) fn items(&self) -> Vec<&str> {
        self.0.iter().map(|kept| &*kept.response.items).collect()
    }

    /// Bytes of memory that their items take while they are read.
    pub(crate) fn values(&self) -> usize {
        self.0.iter().map(|kept| kept.response.values).fold(0, usize::saturating_add)
    }

    /// Bytes of the texts of their items.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|kept| kept.response.items.len()).sum()
    }
}

impl Responses {
    pub(crate) fn new(most_bytes: usize) -> Responses {
        Responses { most_bytes, bytes: Arc::default(), held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response of this id after those before it.
    pub(crate) fn until(&self, id: &str) -> Option<Earlier> {
        let mut held = self.held();
        held.uses += 1;
        let now = held.uses;
        let entry = held.by_id.get_mut(id)?;
        entry.last_use = now;
        Some(Earlier(entry.all.clone()))
    }

    /// Keeps a response that goes on with `earlier`, until there is no room for it.
    pub(crate) fn keep(&self, response: KeptResponse, earlier: &Earlier) {
        let KeptResponse { id, response: text, items, .. } = &response;
        let own = ENTRY + 2 * id.len() + text.len() + items.len() + (earlier.0.len() + 1) * PLACE;
        self.bytes.fetch_add(own, Ordering::Relaxed);
        let (id, mut all) = (id.clone(), earlier.0.clone());
        all.push(Arc::new(Kept { response, own, bytes: Arc::clone(&self.bytes) }));
        let mut held = self.held();
        held.uses += 1;
        let last_use = held.uses;
        held.by_id.insert(id, Entry { all, last_use });
        while held.by_id.len() > MOST || self.bytes.load(Ordering::Relaxed) > self.most_bytes {
            let oldest = held.by_id.iter().min_by_key(|(_, entry)| entry.last_use).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { return };
            held.by_id.remove(&oldest);
        }
    }

    fn forget(&self, id: &str) -> Option<()> {
        self.held().by_id.remove(id).map(drop)
    }

    /// What `of` makes of the response of this id.
    fn read<T>(&self, id: &str, of: impl FnOnce(&KeptResponse) -> T) -> Result<T, Refusal> {
        let Earlier(all) = self.until(id).ok_or_else(|| missing(id, false))?;
        let last = all.last().ok_or_else(|| missing(id, false))?;
        Ok(of(&last.response))
    }
}

type Answer = Result<Response, Refusal>;

pub(crate) async fn one(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    for (name, value) in pairs(query.as_deref()) {
        match (name, value) {
            // What they ask for is there anyway.
            ("include" | "include[]" | "include%5B%5D" | "include_obfuscation", _) | ("stream", "false") => {}
            _ => return Err(unknown(name)),
        }
    }
    server.responses.read(&id, |kept| json_body(kept.response.clone()))
}

pub(crate) async fn forget(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    server.responses.forget(&id).ok_or_else(|| missing(&id, false))?;
    Ok(json_body(json!({ "id": id, "object": "response", "deleted": true }).to_string()))
}

pub(crate) async fn input_items(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let (mut is_ascending, mut limit, mut after) = (false, 20, None);
    for (name, value) in pairs(query.as_deref()) {
        let wrong = |expected: &str| ApiError::new(400, format!("{name}: {expected}"), Some(name), None);
        match name {
            "order" if matches!(value, "asc" | "desc") => is_ascending = value == "asc",
            "order" => return Err(wrong("expected asc or desc").into()),
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=100).contains(limit));
                limit = number.ok_or_else(|| wrong("expected a whole number from 1 to 100"))?;
            }
            "after" => after = Some(value),
            "include" | "include[]" | "include%5B%5D" => {}
            _ => return Err(unknown(name)),
        }
    }
    server.responses.read(&id, |kept| json_body(kept.input_items(is_ascending, limit, after).to_string()))
}

/// The fields of a query. Ids and numbers need no escapes.
fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='))
}

fn unknown(name: &str) -> Refusal {
    ApiError::new(400, format!("there is no field {name}"), Some(name), None).into()
}

/// The responses that the request with this `body` goes on with, if there are any.
pub(crate) fn earlier(server: &Server, id: Option<&str>, body: usize) -> Result<Earlier, Refusal> {
    let Some(id) = id else { return Ok(Earlier::default()) };
    let earlier = server.responses.until(id).ok_or_else(|| missing(id, true))?;
    // A conversation is no longer than if it came as a whole.
    if earlier.bytes().saturating_add(body) > server.budget.body_limit() {
        let limit = server.budget.body_limit();
        return Err(refuse(
            413,
            format!("with what it goes on with, the request is larger than the {limit} bytes that are taken"),
        ));
    }
    Ok(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_factory_openai::responses::request;
    use serde_json::Value;

    /// A response to `text` after `earlier`, as it would be kept.
    fn kept(text: &str, earlier: &Earlier) -> KeptResponse {
        let body = json!({ "input": text });
        let (_, mut builder) = request(body.to_string().as_bytes(), &earlier.items()).expect("a request");
        builder.push(&json!({ "choices": [{ "delta": { "content": "Yes." }, "finish_reason": "stop" }] }));
        builder.push(&json!({ "choices": [], "usage": {} }));
        builder.kept().expect("it has ended")
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_what_others_need_stays() {
        let store = Responses::new(8 << 10);
        let none = Earlier::default();
        let first = kept("first", &none);
        let (id, size) = (first.id.clone(), first.items.len() + first.response.len() + ENTRY);
        store.keep(first, &none);
        let earlier = store.until(&id).expect("it is kept");
        let second = kept("second", &earlier);
        let second_id = second.id.clone();
        store.keep(second, &earlier);
        drop(earlier);
        let mut others = Vec::new();
        for index in 0..(8 << 10) / size + 2 {
            assert!(store.until(&second_id).is_some(), "{index}: it was just used");
            let other = kept(&format!("other {index}"), &none);
            others.push(other.id.clone());
            store.keep(other, &none);
            assert!(store.bytes.load(Ordering::Relaxed) <= 8 << 10);
        }
        assert!(store.until(&id).is_none(), "the first one was not used again");
        assert!(store.until(&others[0]).is_none());
        let all = store.until(&second_id).expect("it is kept");
        let inputs: Vec<Value> = all.items().iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
        let said = |index: usize| inputs[index]["input"][0]["content"][0]["text"].clone();
        assert_eq!((said(0), said(1)), (json!("first"), json!("second")), "it still knows the first one");
        drop(all);
        store.forget(&second_id).expect("it is there");
        others.iter().for_each(|id| _ = store.forget(id));
        assert_eq!(store.bytes.load(Ordering::Relaxed), 0, "nothing is left");
        // What is larger than all there is goes at once.
        store.keep(kept(&"a".repeat(9 << 10), &none), &none);
        assert!(store.held().by_id.is_empty());
    }
}
