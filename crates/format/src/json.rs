//! Bytes -> JSON, with repeated keys refused and errors located by byte.

use crate::error::{Error, FormatErrorKind, Result};
use crate::limits;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;

/// Characters of a number that an error message shows.
const NUMBER: usize = 64;

/// Parses `bytes` of `file` into a value in which no object has a key twice. `Infinity`, which Python writes and JSON does
/// not have, is read as `{"__float__": "Infinity"}`, as transformers 5 writes it.
pub(crate) fn value(file: &Path, bytes: &[u8]) -> Result<Value> {
    strict(file, bytes).or_else(|error| infinite(bytes).and_then(|bytes| strict(file, &bytes).ok()).ok_or(error))
}

/// `bytes` with `Infinity` in that form; `None` where the word does not occur outside of texts.
fn infinite(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 2] = [b"-Infinity", b"Infinity"];
    let (mut written, mut at, mut in_text, mut found) = (Vec::new(), 0, false, false);
    while let Some(byte) = bytes.get(at) {
        let word = WORDS.iter().find(|word| !in_text && bytes[at..].starts_with(word));
        let read = match (word, byte) {
            (Some(word), _) => {
                found = true;
                written.extend([b"{\"__float__\":\"", *word, b"\"}"].concat());
                at += word.len();
                continue;
            }
            (None, b'\\') if in_text => 2,
            _ => 1,
        };
        in_text ^= *byte == b'"';
        written.extend(&bytes[at..(at + read).min(bytes.len())]);
        at += read;
    }
    found.then_some(written)
}

fn strict(file: &Path, bytes: &[u8]) -> Result<Value> {
    let seen = Seen::default();
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let parsed = Unique { name: Name::Root, seen: &seen }.deserialize(&mut parser);
    let parsed = parsed.and_then(|value| parser.end().map(|()| value));
    parsed.map_err(|error| match seen.repeated.take() {
        Some(key) => {
            let offset = Some(offset(bytes, &error));
            Error::Format { file: file.into(), offset, kind: FormatErrorKind::DuplicateKey { key } }
        }
        None => refuse(file, 0, bytes, &error, seen.unread.take()),
    })
}

/// Parses a value within a larger document: no key twice, and no more values than [`limits::JSON_VALUES`].
pub(crate) fn nested<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Unique { name: Name::Root, seen: &Seen::default() }.deserialize(deserializer)
}

/// Parses `bytes`, which begin at byte `base` of `file`, into a type.
pub(crate) fn typed<'a, T: Deserialize<'a>>(file: &Path, base: u64, bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| refuse(file, base, bytes, &error, None))
}

/// The error for bytes that are not JSON, or for an unsupported number, in the value of `key` where that is known.
fn refuse(file: &Path, base: u64, bytes: &[u8], error: &serde_json::Error, key: Option<String>) -> Error {
    let at = offset(bytes, error);
    let word = not_a_number(bytes, at).filter(|_| error.is_syntax());
    let kind = match (key, word, too_large(bytes, at)) {
        (Some(key), Some(token), _) => {
            let expected = "a number or null: JSON has no such word".into();
            FormatErrorKind::KeyValue { key, found: token.into(), expected }
        }
        (Some(key), _, Some(number)) => {
            let expected = format!("a number from {:e} to {:e}", f64::MIN, f64::MAX);
            FormatErrorKind::KeyValue { key, found: number.into(), expected }
        }
        (None, Some(token), _) => FormatErrorKind::NotANumber { token },
        (key, ..) => {
            let text = error.to_string();
            let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
            let place = key.map(|key| format!("in the value of {key}: ")).unwrap_or_default();
            FormatErrorKind::Json { message: place + message }
        }
    };
    Error::Format { file: file.into(), offset: Some(base + at), kind }
}

/// The byte at which serde_json stopped, which counts lines from 1 and columns in bytes.
fn offset(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let lines = error.line().saturating_sub(1);
    let start = match lines {
        0 => 0,
        _ => bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(lines - 1).map_or(0, |(at, _)| at + 1),
    };
    (start + error.column().saturating_sub(1)).min(bytes.len()) as u64
}

/// Finds `NaN` or `Infinity` at or just before byte `at`; some writers put them into JSON, which does not have them.
fn not_a_number(bytes: &[u8], at: u64) -> Option<&'static str> {
    let at = usize::try_from(at).ok()?;
    let near = bytes.get(at.saturating_sub(1)..)?;
    let starts = |skip: usize, token: &str| near.get(skip..).is_some_and(|rest| rest.starts_with(token.as_bytes()));
    ["-Infinity", "Infinity", "NaN"].into_iter().find(|token| (0..2).any(|skip| starts(skip, token)))
}

/// The number around byte `at`, if it does not fit into 64 bits; shortened for an error message.
fn too_large(bytes: &[u8], at: u64) -> Option<&str> {
    let at = usize::try_from(at).ok()?;
    let of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let before = bytes.get(..at)?.iter().rev().take_while(|byte| of_number(byte)).count();
    let after = bytes[at..].iter().take_while(|byte| of_number(byte)).count();
    let number = str::from_utf8(&bytes[at - before..at + after]).ok()?;
    let shown = number.len().min(NUMBER);
    number.parse::<f64>().is_ok_and(f64::is_infinite).then(|| &number[..shown])
}

/// The pairs of a JSON object of strings in file order, repeated keys included, so that the caller can refuse them by
/// name. At most [`limits::TENSORS`] pairs.
pub(crate) struct Pairs(pub(crate) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value = map.next_value().map_err(|error| A::Error::custom(format!("{key}: {error}")))?;
                    if pairs.len() as u64 >= limits::TENSORS {
                        return Err(A::Error::custom(format!("more than {} entries", limits::TENSORS)));
                    }
                    pairs.push((key, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// What was seen so far in one document.
#[derive(Default)]
struct Seen {
    /// The dotted name of the first key that an object has twice.
    repeated: RefCell<Option<String>>,
    /// The dotted name of the innermost key whose value could not be read.
    unread: RefCell<Option<String>>,
    values: Cell<usize>,
}

/// The place of a value. Names are built only for errors: long keys of many children would take quadratic memory.
#[derive(Clone, Copy)]
enum Name<'a> {
    Root,
    Key(&'a Name<'a>, &'a str),
}

impl Name<'_> {
    fn dotted(&self) -> String {
        match self {
            Name::Root => String::new(),
            Name::Key(Name::Root, key) => (*key).to_owned(),
            Name::Key(parent, key) => format!("{}.{key}", parent.dotted()),
        }
    }
}

/// Builds a [`Value`], stopping at the first key that an object has twice.
#[derive(Clone, Copy)]
struct Unique<'a> {
    name: Name<'a>,
    seen: &'a Seen,
}

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let values = self.seen.values.get() + 1;
        self.seen.values.set(values);
        if values > limits::JSON_VALUES {
            return Err(D::Error::custom(format!("more than {} values", limits::JSON_VALUES)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let name = Name::Key(&self.name, &key);
            if object.contains_key(&key) {
                self.seen.repeated.replace(Some(name.dotted()));
                return Err(A::Error::custom("a key appears twice"));
            }
            let value = map.next_value_seed(Unique { name, seen: self.seen }).inspect_err(|_| {
                self.seen.unread.borrow_mut().get_or_insert_with(|| name.dotted());
            })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
