//! A JSON object -> its fields, of which none may be left over.

use super::outline::Outline;
use crate::error::RequestError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// A place in a request, for errors: `messages[0].content`.
pub(super) struct Place(pub(super) String);

impl Place {
    pub(super) fn within(&self, step: impl Display) -> Place {
        Place(format!("{}{step}", self.0))
    }

    pub(super) fn wrong(&self, reason: impl Display) -> RequestError {
        RequestError::Wrong { field: self.0.clone(), reason: reason.to_string() }
    }

    /// Checks that a condition on the value `holds`; otherwise the error says what was expected.
    pub(super) fn ensure(&self, holds: bool, expected: impl Display) -> Result<(), RequestError> {
        if holds { Ok(()) } else { Err(self.wrong(expected)) }
    }

    pub(super) fn unknown(self) -> RequestError {
        RequestError::Unknown { field: self.0 }
    }
}

/// Fields of an object that were not read yet.
pub(super) struct Fields {
    left: Map<String, Value>,
    /// The objects that the fields are in, as a prefix of their names.
    prefix: Place,
}

/// Fields that describe the request and do not change its answer.
const UNUSED: [&str; 4] = ["user", "metadata", "safety_identifier", "prompt_cache_key"];

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Fields, RequestError> {
        Outline::of(body)?;
        let object = serde_json::from_slice(body);
        let left = object.map_err(|error| RequestError::NotObject { reason: error.to_string() })?;
        Ok(Fields { left, prefix: Place(String::new()) })
    }

    /// Takes a field; `null` is the same as a missing field.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, RequestError> {
        let value = self.left.remove(name).filter(|value| !value.is_null());
        value.map(serde_json::from_value).transpose().map_err(|error| self.at(name).wrong(error))
    }

    pub(super) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, RequestError> {
        self.take(name)?.ok_or_else(|| self.at(name).wrong("it is missing"))
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields>, RequestError> {
        let prefix = self.at(name).within('.');
        Ok(self.take(name)?.map(|left| Fields { left, prefix }))
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, RequestError> {
        let value: Option<Value> = self.take(name)?;
        let read = |value| match value {
            Value::String(text) => Ok(vec![text]),
            list => serde_json::from_value(list).map_err(|_| self.at(name).wrong("expected a text or a list of texts")),
        };
        value.map(read).transpose()
    }

    /// Refuses the fields that are left, except if their value asks for the default behavior.
    pub(super) fn end(mut self) -> Result<(), RequestError> {
        let done =
            json!({ "parallel_tool_calls": true, "store": false, "echo": false, "best_of": 1, "modalities": ["text"] });
        let is_outer = self.prefix.0.is_empty();
        self.left.retain(|name, value| {
            let is_done = is_outer && (UNUSED.contains(&name.as_str()) || done.get(name) == Some(value));
            !(value.is_null() || is_done)
        });
        let Some((name, value)) = self.left.iter().next() else { return Ok(()) };
        Err(match done.get(name).filter(|_| is_outer) {
            Some(done) => self.at(name).wrong(format_args!("{value} is not supported, expected {done}")),
            None => self.at(name).unknown(),
        })?
    }

    pub(super) fn at(&self, name: &str) -> Place {
        self.prefix.within(name)
    }
}
