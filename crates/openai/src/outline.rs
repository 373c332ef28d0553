//! The bytes of a request -> what it will take, before anything of it is kept.

use crate::error::RequestError;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::mem::take;

/// Bytes that the values of a request may take in memory. 1 MiB of JSON schemas without a word of description, 18,000 short turns and
/// 400,000 ids take no more; 2 MiB of objects of one digit, which no client has reason to send, would take five times that.
const MOST_BYTES: usize = 32 << 20;

/// A value: a place in a list or an object.
const VALUE: usize = 80;

/// What a text, or the name of a field, has besides its bytes.
const TEXT: usize = 32;

/// What a list has besides its values where it is not empty: room for some more.
const LIST: usize = 288;

/// What an object has besides its fields where it has some, with the room for the first ones.
const OBJECT: usize = 448;

/// What a field has besides its name and its value.
const FIELD: usize = 48;

/// What a request will take, known before it is read: a server admits it by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outline {
    /// Bytes of memory that its values take without their texts, rather more than less; where it has `tools`, which every answer keeps,
    /// as often as there are answers. While it is read it takes twice that for a moment.
    pub bytes: usize,
    /// How many answers it asks for, where it can be meant; 1 at least.
    pub answers: usize,
}

impl Outline {
    /// Looks at the body of a request of `chat/completions`, `completions` or `embeddings`. Allocates nothing for its values, and
    /// takes a few milliseconds for each MiB.
    ///
    /// # Errors
    /// `Request`: `NotObject` for what is no JSON object, `TooManyValues` for one whose values would take more than 32 MiB.
    pub fn of(body: &[u8]) -> Result<Outline, RequestError> {
        let bytes = Cell::new(0);
        let mut parser = serde_json::Deserializer::from_slice(body);
        let outer = Count { bytes: &bytes, is_outer: true }.deserialize(&mut parser);
        let outer = outer.and_then(|outer| parser.end().map(|()| outer));
        match outer {
            Ok(outer) => {
                let (bytes, answers) = (bytes.get(), outer.answers());
                let times = if outer.has_tools { answers } else { 1 };
                Ok(Outline { bytes: bytes.saturating_mul(times), answers })
            }
            Err(_) if bytes.get() > MOST_BYTES => Err(RequestError::TooManyValues { limit: MOST_BYTES })?,
            Err(error) => Err(RequestError::NotObject { reason: error.to_string() })?,
        }
    }
}

/// What is remembered of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// A whole number.
    number: Option<u64>,
    /// Whether it is a prompt within a list of prompts: a text or a list.
    is_prompt: bool,
    /// Prompts in a list.
    prompts: usize,
    /// How many answers the outermost object asks for to each prompt.
    n: Option<u64>,
    /// Whether the outermost object has tools.
    has_tools: bool,
}

impl Seen {
    fn answers(self) -> usize {
        let n = self.n.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1);
        n.saturating_mul(self.prompts.max(1))
    }
}

/// Visits a value and counts what it would take.
#[derive(Clone, Copy)]
struct Count<'a> {
    bytes: &'a Cell<usize>,
    is_outer: bool,
}

impl Count<'_> {
    fn add<E: Error>(self, bytes: usize) -> Result<(), E> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.bytes.get() > MOST_BYTES { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = Seen;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        self.add(VALUE)?;
        if self.is_outer { deserializer.deserialize_map(self) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_outer { "a map" } else { "a JSON value" })
    }
    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_u64<E>(self, number: u64) -> Result<Seen, E> {
        Ok(Seen { number: Some(number), ..Seen::default() })
    }
    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<Seen, E> {
        // Its bytes are no more than the body's, which are bounded by themselves.
        self.add(TEXT)?;
        Ok(Seen { is_prompt: true, ..Seen::default() })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seen, A::Error> {
        let (mut prompts, mut head) = (0, LIST);
        while let Some(seen) = list.next_element_seed(self)? {
            self.add(take(&mut head))?;
            prompts += usize::from(seen.is_prompt);
        }
        Ok(Seen { is_prompt: true, prompts, ..Seen::default() })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Seen, A::Error> {
        let (mut outer, mut head) = (Seen::default(), OBJECT);
        while let Some(name) = fields.next_key_seed(Name)? {
            self.add(TEXT + FIELD + take(&mut head))?;
            let seen = fields.next_value_seed(Count { is_outer: false, ..self })?;
            // As where it is read, the last of several holds.
            match name {
                "n" if self.is_outer => outer.n = seen.number,
                "prompt" if self.is_outer => outer.prompts = seen.prompts,
                "tools" => outer.has_tools = true,
                _ => {}
            }
        }
        Ok(outer)
    }
}

/// Reads the name of a field, and keeps one that says something of the number of answers or of what each of them takes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = &'static str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E>(self, name: &str) -> Result<&'static str, E> {
        Ok(["n", "prompt", "tools"].into_iter().find(|known| *known == name).unwrap_or_default())
    }
}
