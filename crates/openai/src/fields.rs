//! A JSON object -> its fields, of which none may be left over.

use super::outline::Outline;
use crate::error::RequestError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
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

/// The greatest count: whole numbers up to it are exact as F64.
const MOST_COUNT: f64 = 9_007_199_254_740_992.0;

/// Fields of an object that were not read yet.
pub(super) struct Fields {
    left: Map<String, Value>,
    /// The objects that the fields are in, as a prefix of their names.
    prefix: Place,
}

/// Fields that do not change an answer of this server, with any value.
const UNUSED: [&str; 24] = [
    "adaptive_decay",
    "backend_sampling",
    "cache_prompt",
    "dynatemp_exponent",
    "id_slot",
    "metadata",
    "mirostat_eta",
    "mirostat_tau",
    "n_cache_reuse",
    "n_discard",
    "n_keep",
    "prediction",
    "priority",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "return_progress",
    "safety_identifier",
    "service_tier",
    "sse_ping_interval",
    "store",
    "timings_per_token",
    "user",
    "verbosity",
];

/// Fields that are accepted only with the value, as JSON, that asks for nothing else than is done.
const NEUTRAL: [(&str, &str); 25] = [
    ("adaptive_target", "-1"),
    ("add_generation_prompt", "true"),
    ("add_special_tokens", "true"),
    ("best_of", "1"),
    ("dynatemp_range", "0"),
    ("early_stopping", "false"),
    ("echo", "false"),
    ("include_reasoning", "true"),
    ("length_penalty", "1"),
    ("min_keep", "0"),
    ("mirostat", "0"),
    ("modalities", "[\"text\"]"),
    ("n_indent", "0"),
    ("post_sampling_probs", "false"),
    ("reasoning_format", "\"auto\""),
    ("separate_reasoning", "true"),
    ("skip_special_tokens", "true"),
    ("spaces_between_special_tokens", "true"),
    ("suffix", "\"\""),
    ("t_max_predict_ms", "0"),
    ("tfs_z", "1"),
    ("top_n_sigma", "-1"),
    ("typical_p", "1"),
    ("use_beam_search", "false"),
    ("verbose", "false"),
];

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Fields, RequestError> {
        Outline::of(body)?;
        let object = serde_json::from_slice(body);
        let left = object.map_err(|error| RequestError::NotObject { reason: error.to_string() })?;
        Ok(Fields { left, prefix: Place(String::new()) })
    }

    /// The JSON of the fields that were not read yet.
    pub(super) fn body(self) -> Vec<u8> {
        Value::from(self.left).to_string().into_bytes()
    }

    /// Takes a field; `null` is the same as a missing field.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, RequestError> {
        let value = self.left.remove(name).filter(|value| !value.is_null());
        value.map(serde_json::from_value).transpose().map_err(|error| self.at(name).wrong(error))
    }

    /// A field that was not read yet, and is not `null`.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.left.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, RequestError> {
        self.take(name)?.ok_or_else(|| self.at(name).wrong("it is missing"))
    }

    /// Gives the field `from`, if it is there, the name that it has in the OpenAI API.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), RequestError> {
        let Some(value) = self.left.remove(from).filter(|value| !value.is_null()) else { return Ok(()) };
        self.at(from).ensure(self.get(to).is_none(), format_args!("{to} is given too, expected one of them"))?;
        self.left.insert(to.into(), value);
        Ok(())
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields>, RequestError> {
        let prefix = self.at(name).within('.');
        Ok(self.take(name)?.map(|left| Fields { left, prefix }))
    }

    /// As [`object`](Self::object); without fields where it is missing.
    pub(super) fn object_or_empty(&mut self, name: &str) -> Result<Fields, RequestError> {
        let empty = Fields { left: Map::new(), prefix: self.at(name).within('.') };
        Ok(self.object(name)?.unwrap_or(empty))
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, RequestError> {
        let value: Option<Value> = self.take(name)?;
        let read = |value| match value {
            Value::String(text) => Ok(vec![text]),
            list => serde_json::from_value(list).map_err(|_| self.at(name).wrong("expected a text or a list of texts")),
        };
        value.map(read).transpose()
    }

    /// Takes a whole number, which may be written as `5.0`; -1 is `all`, as other servers have it.
    pub(super) fn count(&mut self, name: &str, all: Option<usize>) -> Result<Option<usize>, RequestError> {
        let Some(value) = self.take::<Value>(name)? else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.fract() == 0.0);
        match number {
            Some(-1.0) if all.is_some() => Ok(all),
            Some(number) if (0.0..=MOST_COUNT).contains(&number) => Ok(Some(number as usize)),
            _ => Err(self.at(name).wrong(format_args!("{value} is not a whole number from 0 up"))),
        }
    }

    /// Takes the one whole number of `names` that is given, as [`count`](Self::count) does.
    pub(super) fn one_count(&mut self, names: &[&str], all: Option<usize>) -> Result<Option<usize>, RequestError> {
        let mut given = names.iter().filter(|name| self.get(name).is_some());
        let Some(name) = given.next() else { return Ok(None) };
        match given.next() {
            Some(other) => Err(self.at(other).wrong(format_args!("{name} is given too, expected one of them"))),
            None => self.count(name, all),
        }
    }

    /// Takes the one field of `names` that is given.
    pub(super) fn one_of<T: DeserializeOwned>(&mut self, names: &[&str]) -> Result<Option<T>, RequestError> {
        let mut found: Option<(&str, T)> = None;
        for name in names {
            match (self.take(name)?, &found) {
                (Some(_), Some((first, _))) => {
                    return Err(self.at(name).wrong(format_args!("{first} is given too, expected one of them")));
                }
                (Some(value), None) => found = Some((name, value)),
                (None, _) => {}
            }
        }
        Ok(found.map(|(_, value)| value))
    }

    /// Refuses fields other than `names`.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), RequestError> {
        let other = self.left.iter().find(|(name, value)| !value.is_null() && !names.contains(&name.as_str()));
        other.map_or(Ok(()), |(name, _)| Err(self.at(name).unknown()))
    }

    /// Refuses the fields that are left, except if their value asks for the default behavior.
    pub(super) fn end(mut self) -> Result<(), RequestError> {
        let is_outer = self.prefix.0.is_empty();
        let neutral =
            |name: &str| NEUTRAL.iter().find(|(known, _)| is_outer && *known == name).map(|(_, value)| *value);
        self.left.retain(|name, value| {
            let is_done = is_outer && UNUSED.contains(&name.as_str()) || neutral(name).is_some_and(|of| is(of, value));
            !(value.is_null() || is_done)
        });
        let Some((name, value)) = self.left.iter().next() else { return Ok(()) };
        Err(match neutral(name) {
            Some(expected) => self.at(name).wrong(format_args!("{value} is not supported, expected {expected}")),
            None => self.at(name).unknown(),
        })
    }

    pub(super) fn at(&self, name: &str) -> Place {
        self.prefix.within(name)
    }
}

/// Whether `value` is the one that the JSON of `expected` is; 1 and 1.0 are the same number.
fn is(expected: &str, value: &Value) -> bool {
    let expected: Option<Value> = serde_json::from_str(expected).ok();
    expected.is_some_and(|expected| expected == *value || (value.is_number() && expected.as_f64() == value.as_f64()))
}
