//! The bytes of a request -> the memory that it will take, before anything of it is stored.

use crate::error::RequestError;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::cell::Cell;
use std::fmt;
use std::mem::take;

/// The most bytes of memory for the values of a request. 1 MiB of JSON schemas without descriptions, 18,000 short turns or
/// 400,000 ids fit; 2 MiB of objects with one digit, which no normal client sends, would take five times that.
pub(super) const MOST_BYTES: usize = 32 << 20;

/// Bytes of a value: a place in a list or an object.
const VALUE: usize = 80;

/// Bytes of a text, or of the name of a field, besides those of its characters.
const TEXT: usize = 32;

/// Bytes of a list that is not empty, besides its values: room for some more.
const LIST: usize = 288;

/// Bytes of an object that is not empty, besides its fields, with the room for the first ones.
const OBJECT: usize = 448;

/// Bytes of a field besides its name and its value.
const FIELD: usize = 48;

/// The costs of a request, known before it is parsed: a server admits it by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outline {
    /// Bytes of memory for its values without their texts, rather too many. Values of a request with `tools`, which every answer
    /// keeps, count once for each answer. Parsing takes twice that for a moment.
    pub bytes: usize,
    /// The number of answers that it asks for, if that is valid; at least 1.
    pub answers: usize,
    /// Whether it asks for a stream, where it says so.
    pub stream: Option<bool>,
}

impl Outline {
    /// Scans the body of a request of `chat/completions`, `completions` or `embeddings`. Allocates nothing for its values, and
    /// takes a few milliseconds for each MiB.
    ///
    /// # Errors
    /// `Request`: `NotObject` if it is not a JSON object, `TooManyValues` if its values would take more than 32 MiB.
    pub fn of(body: &[u8]) -> Result<Outline, RequestError> {
        let bytes = Cell::new(0);
        let mut parser = serde_json::Deserializer::from_slice(body);
        let outer = Count { bytes: &bytes, is_outer: true }.deserialize(&mut parser);
        let outer = outer.and_then(|outer| parser.end().map(|()| outer));
        match outer {
            Ok(outer) => {
                let (bytes, answers) = (bytes.get(), outer.answers());
                let times = if outer.has_tools { answers } else { 1 };
                Ok(Outline { bytes: bytes.saturating_mul(times), answers, stream: outer.stream })
            }
            Err(_) if bytes.get() > MOST_BYTES => Err(RequestError::TooManyValues { limit: MOST_BYTES })?,
            Err(error) => Err(RequestError::NotObject { reason: error.to_string() })?,
        }
    }
}

/// The model that a body asks for, by `model` or Ollama's `name`, before anything else of it is stored.
pub fn model_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Asked {
        model: Option<String>,
        name: Option<String>,
    }
    // What is no text is refused when the request is read.
    let Asked { model, name } = serde_json::from_slice(body).ok()?;
    model.or(name)
}

/// The facts that are kept of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The value, if it is a whole number.
    number: Option<u64>,
    /// Whether it is a prompt within a list of prompts: a text, a list or an object.
    is_prompt: bool,
    /// The number of prompts in a list.
    prompts: usize,
    /// The number of answers to each prompt that the outermost object asks for, by each name, and of those of which it wants the best.
    n: [Option<u64>; 3],
    /// Whether the outermost object has tools.
    has_tools: bool,
    /// The value if it is true or false, and that of the field `stream` of the outermost object.
    is_true: Option<bool>,
    stream: Option<bool>,
}

impl Seen {
    fn answers(self) -> usize {
        let n = self.n.into_iter().flatten().max().and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1);
        n.saturating_mul(self.prompts.max(1))
    }
}

/// Visits a value and counts the memory that it would take.
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
    fn visit_bool<E>(self, is_true: bool) -> Result<Seen, E> {
        Ok(Seen { is_true: Some(is_true), ..Seen::default() })
    }
    fn visit_u64<E>(self, number: u64) -> Result<Seen, E> {
        Ok(Seen { number: Some(number), ..Seen::default() })
    }
    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_f64<E>(self, number: f64) -> Result<Seen, E> {
        // A count may be written as 2.0; the largest that is valid is 128.
        let is_count = number.fract() == 0.0 && (0.0..=1e6).contains(&number);
        Ok(Seen { number: is_count.then_some(number as u64), ..Seen::default() })
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<Seen, E> {
        // Its bytes need no limit, as the body has one.
        self.add(TEXT)?;
        Ok(Seen { is_prompt: true, ..Seen::default() })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seen, A::Error> {
        let (mut prompts, mut is_prompt, mut head) = (0, false, LIST);
        while let Some(seen) = list.next_element_seed(self)? {
            self.add(take(&mut head))?;
            prompts += usize::from(seen.is_prompt);
            // A list with ids is a prompt, whatever texts are between them.
            is_prompt |= seen.number.is_some();
        }
        let prompts = if is_prompt { 1 } else { prompts };
        Ok(Seen { is_prompt: true, prompts, ..Seen::default() })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Seen, A::Error> {
        // A prompt may be an object with a text.
        let (mut outer, mut head) = (Seen { is_prompt: true, ..Seen::default() }, OBJECT);
        while let Some(name) = fields.next_key()? {
            self.add(TEXT + FIELD + take(&mut head))?;
            let seen = fields.next_value_seed(Count { is_outer: false, ..self })?;
            // If a field is repeated the last one counts, as in parsing.
            match name {
                Name::N if self.is_outer => outer.n[0] = seen.number,
                Name::BestOf if self.is_outer => outer.n[1] = seen.number,
                Name::NCmpl if self.is_outer => outer.n[2] = seen.number,
                Name::Prompt if self.is_outer => outer.prompts = seen.prompts,
                Name::Tools => outer.has_tools = true,
                Name::Stream if self.is_outer => outer.stream = seen.is_true,
                _ => {}
            }
        }
        Ok(outer)
    }
}

/// The names of the fields that affect the number of answers, the memory of each, or their form.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    N,
    NCmpl,
    BestOf,
    Prompt,
    Stream,
    #[serde(alias = "functions")]
    Tools,
    #[serde(other)]
    Other,
}
