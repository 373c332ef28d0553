//! The entries of a `tokenizer.json` or a `vocab.json`: counted, not stored.

use crate::error::{Error, FormatErrorKind, Result};
use crate::json;
use crate::source::content;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

/// One entry of `added_tokens`.
#[derive(serde::Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
}

impl From<super::added::AddedToken> for AddedToken {
    fn from(token: super::added::AddedToken) -> Self {
        AddedToken { id: token.id, content: token.content }
    }
}

/// What is kept of one: the vocabulary is counted, not stored.
#[derive(Default)]
pub(super) struct Content {
    pub(super) added: Vec<AddedToken>,
    pub(super) post_processor: Value,
    pub(super) model: Option<String>,
    /// One more than the largest id of the model's vocabulary.
    pub(super) vocabulary_end: usize,
    /// A bit for each id of the model's vocabulary that has a text.
    ids: Vec<u64>,
    /// Bytes of the file: every entry takes some, so a larger id is a hole that would only make us allocate.
    bytes: usize,
    /// Ids of the wanted texts that the model's vocabulary has.
    pub(super) wanted: HashMap<String, u32>,
}

impl Content {
    /// Reads `bytes` as the `tokenizer.json` at `path`.
    pub(super) fn parse(path: &Path, bytes: &[u8], wanted: &HashSet<&str>) -> Result<Content> {
        let mut found = Content { bytes: bytes.len(), ..Content::default() };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        Root { content: &mut found, wanted }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| no_json(path, bytes, &error))?;
        match found.model.as_deref() {
            Some("BPE" | "Unigram" | "WordPiece") if found.ids_end() == 0 => {
                Err(Error::key_value(path, "model.vocab", "empty", "at least one token"))
            }
            Some("BPE" | "Unigram" | "WordPiece") => Ok(found),
            Some(other) => Err(Error::key_value(path, "model.type", format!("{other:?}"), "BPE, Unigram or WordPiece")),
            None => Err(Error::key_missing(path, "model.type", "text cannot become ids")),
        }
    }

    /// Reads `bytes` as the `vocab.json` at `path`: texts and ids of a BPE vocabulary.
    pub(super) fn vocabulary(path: &Path, bytes: &[u8], wanted: &HashSet<&str>) -> Result<Content> {
        let mut found = Content { bytes: bytes.len(), model: Some("BPE".into()), ..Content::default() };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        Vocabulary(Root { content: &mut found, wanted })
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| no_json(path, bytes, &error))?;
        // A list, as Unigram models have it, names no ids.
        let found_instead = match (found.vocabulary_end, found.ids.is_empty()) {
            (0, _) => "empty",
            (_, true) => "a list",
            _ => return Ok(found),
        };
        Err(Error::key_value(path, "(the whole file)", found_instead, "an object of texts and ids"))
    }

    /// A vocabulary of `tokens` entries whose wanted texts are all among `added`.
    pub(super) fn listed(tokens: usize, added: Vec<AddedToken>) -> Content {
        Content { added, model: Some("BPE".into()), vocabulary_end: tokens, ..Content::default() }
    }

    /// Notes an id of the vocabulary.
    fn add_id(&mut self, id: u32) -> Result<(), String> {
        let index = id as usize;
        if index >= self.bytes {
            return Err(format!("the vocabulary has the id {id}, more than {} bytes can list", self.bytes));
        }
        if self.ids.len() <= index / 64 {
            self.ids.resize(index / 64 + 1, 0);
        }
        let word = &mut self.ids[index / 64];
        if *word & (1 << (index % 64)) != 0 {
            return Err(format!("the vocabulary has the id {id} twice"));
        }
        *word |= 1 << (index % 64);
        self.vocabulary_end = self.vocabulary_end.max(index + 1);
        Ok(())
    }

    pub(super) fn ids_end(&self) -> usize {
        self.added.iter().map(|token| token.id as usize + 1).fold(self.vocabulary_end, usize::max)
    }

    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        let added = self.added.iter().find(|token| token.content == text).map(|token| token.id);
        added.or_else(|| self.wanted.get(text).copied())
    }

    pub(super) fn text(&self, id: u32) -> Option<String> {
        let added = self.added.iter().find(|token| token.id == id).map(|token| token.content.clone());
        added.or_else(|| self.wanted.iter().find(|(_, known)| **known == id).map(|(text, _)| text.clone()))
    }

    pub(super) fn text_of(&self, id: Option<u32>) -> String {
        id.and_then(|id| self.text(id)).unwrap_or_else(|| format!("{id:?}"))
    }
}

fn no_json(path: &Path, bytes: &[u8], error: &serde_json::Error) -> Error {
    let json = || Error::format(path, FormatErrorKind::Json { message: error.to_string() });
    content::unsupported(path, bytes).unwrap_or_else(json)
}

/// Fills `content` from the root object.
struct Root<'c, 'w> {
    content: &'c mut Content,
    wanted: &'w HashSet<&'w str>,
}

/// Fills `content` from the object under `model`.
struct Model<'c, 'w>(Root<'c, 'w>);

/// Counts the vocabulary: an object of texts and ids, or a list.
struct Vocabulary<'c, 'w>(Root<'c, 'w>);

macro_rules! seed {
    ($seed:ty, $expecting:literal, { $($visit:item)* }) => {
        impl<'de> DeserializeSeed<'de> for $seed {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        impl<'de> Visitor<'de> for $seed {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str($expecting)
            }
            $($visit)*
        }
    };
}

seed!(Root<'_, '_>, "an object", {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        while let Some(key) = map.next_key::<Cow<str>>()? {
            once(&mut seen, &key, &["added_tokens", "post_processor", "model"]).map_err(A::Error::custom)?;
            match key.as_ref() {
                "added_tokens" => self.content.added = map.next_value()?,
                "post_processor" => self.content.post_processor = map.next_value::<Kept>()?.0,
                "model" => map.next_value_seed(Model(Root { content: self.content, wanted: self.wanted }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
});

seed!(Model<'_, '_>, "a model", {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Root { content, wanted } = self.0;
        let mut seen = Vec::new();
        while let Some(key) = map.next_key::<Cow<str>>()? {
            once(&mut seen, &key, &["type", "vocab", "merges"]).map_err(A::Error::custom)?;
            match key.as_ref() {
                "type" => content.model = Some(map.next_value()?),
                "vocab" => map.next_value_seed(Vocabulary(Root { content, wanted }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
});

seed!(Vocabulary<'_, '_>, "an object of texts and ids, or a list of texts and scores", {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Root { content, wanted } = self.0;
        while let Some(text) = map.next_key::<Text>()? {
            let id: u32 = map.next_value()?;
            content.add_id(id).map_err(A::Error::custom)?;
            if wanted.contains(text.0.as_ref()) {
                content.wanted.insert(text.0.into_owned(), id);
            }
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Root { content, wanted } = self.0;
        while let Some((text, _score)) = list.next_element::<(Text, f64)>()? {
            let id = u32::try_from(content.vocabulary_end).map_err(|_| A::Error::custom("too many tokens"))?;
            content.vocabulary_end += 1;
            if wanted.contains(text.0.as_ref()) {
                content.wanted.insert(text.0.into_owned(), id);
            }
        }
        Ok(())
    }
});

/// Refuses one of `keys` that was seen before.
fn once(seen: &mut Vec<&'static str>, key: &str, keys: &[&'static str]) -> Result<(), String> {
    match keys.iter().find(|known| **known == key) {
        Some(known) if seen.contains(known) => Err(format!("key {key} appears twice")),
        Some(known) => {
            seen.push(known);
            Ok(())
        }
        None => Ok(()),
    }
}

/// A value that is kept as it is.
#[derive(serde::Deserialize)]
struct Kept(#[serde(deserialize_with = "json::nested")] Value);

/// A string that borrows from the input where it has no escapes (a plain `Cow` never borrows).
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
