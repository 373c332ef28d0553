//! The tokens that the JSON files of a folder add to a vocabulary, where no `tokenizer.json` lists them.

use crate::error::{Error, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, JsonFile, wrong_type};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

/// A token that is matched in a text as a whole.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct AddedToken {
    /// The id of the token.
    pub id: u32,
    /// The text of the token.
    pub content: String,
    /// Whether the token must not be part of a word.
    pub single_word: bool,
    /// Whether the token includes the white space before it.
    pub lstrip: bool,
    /// Whether the token includes the white space after it.
    pub rstrip: bool,
    /// Whether the token is searched for in the normalized text.
    pub normalized: bool,
    /// Whether the token is left out of decoded text.
    pub special: bool,
}

/// The keys of `tokenizer_config.json` and `special_tokens_map.json` that name special tokens.
const ROLES: &str = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token additional_special_tokens \
                     extra_special_tokens";
pub(super) const DECODER: &str = "added_tokens_decoder";

/// The tokens added to a vocabulary of `tokens` entries, by ascending id, as transformers adds them:
/// `added_tokens_decoder`, or else `added_tokens.json`; then the named special tokens that `id_of` finds in the
/// vocabulary, and those of `own` that it finds: the default special tokens of the vocabulary or its class.
///
/// # Errors
/// `Format` for a token of another form, two tokens with one id, or an id beyond what the tokens can fill.
pub(super) fn added_tokens(
    files: &ConfigFiles,
    tokens: usize,
    own: Vec<AddedToken>,
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<AddedToken>> {
    let named = named(files)?;
    let decoder = files.tokenizer_config.as_ref().map(|file| file.section(DECODER)).transpose()?.flatten();
    let (mut added, place) = match (&files.tokenizer_config, decoder, &files.added_tokens) {
        (Some(file), Some(section), _) => (from_decoder(file, section.object())?, file),
        (_, None, Some(file)) => (from_map(file, &named)?, file),
        (Some(file), None, None) => (Vec::new(), file),
        _ => (Vec::new(), &files.config),
    };
    let mut known: HashSet<String> = added.iter().map(|token| token.content.clone()).collect();
    added.extend(own.into_iter().filter(|token| known.insert(token.content.clone())));
    for text in named.into_iter().filter(|text| !known.contains(text)) {
        added.extend(id_of(&text).map(|id| AddedToken::special(id, text)));
    }
    added.sort_by_key(|token| token.id);
    for pair in added.windows(2) {
        if let [one, other] = pair
            && one.id == other.id
        {
            let found = format!("{:?} and {:?} for the id {}", one.content, other.content, one.id);
            return Err(Error::key_value(place.file(), DECODER, found, "one token for an id"));
        }
    }
    let end = tokens + added.iter().filter(|token| token.id as usize >= tokens).count();
    if let Some(token) = added.last().filter(|token| token.id as usize >= end) {
        let found = format!("{:?} with the id {}", token.content, token.id);
        let expected = format!("ids that follow on the {tokens} of the vocabulary without a gap");
        return Err(Error::key_value(place.file(), DECODER, found, expected));
    }
    Ok(added)
}

impl AddedToken {
    /// A special token that includes nothing of the text around it.
    pub fn special(id: u32, content: String) -> AddedToken {
        AddedToken { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }
    }
}

/// The boolean of `tokenizer_config.json` under `key`.
pub(super) fn flag(files: &ConfigFiles, key: &str) -> Result<Option<bool>> {
    files.tokenizer_config.as_ref().map_or(Ok(None), |config| config.boolean(key))
}

/// The texts that the files name as special.
pub(super) fn named(files: &ConfigFiles) -> Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    for file in [&files.tokenizer_config, &files.special_tokens_map].into_iter().flatten() {
        for key in ROLES.split(' ') {
            let tokens: Vec<&Value> = match file.object().get(key) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(list)) => list.iter().collect(),
                // `extra_special_tokens` may name the roles of its tokens.
                Some(Value::Object(roles)) if key == "extra_special_tokens" => roles.values().collect(),
                Some(token) => vec![token],
            };
            for token in tokens {
                texts.insert(text(token).ok_or_else(|| wrong(file, key, token))?.to_owned());
            }
        }
    }
    texts.remove("");
    Ok(texts)
}

/// The text of a token that is given as a string, or as an object with the text under `content`.
pub(super) fn text(token: &Value) -> Option<&str> {
    match token {
        Value::Object(object) => object.get("content").and_then(Value::as_str),
        other => other.as_str(),
    }
}

fn from_decoder(file: &JsonFile, decoder: &Map<String, Value>) -> Result<Vec<AddedToken>> {
    let mut added = Vec::with_capacity(decoder.len());
    for (id, token) in decoder {
        let key = || format!("{DECODER}.{id}");
        let content = token.get("content").and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Ok(id), Some(content)) = (id.parse(), content) else { return Err(wrong(file, &key(), token)) };
        let flag = |name: &str, default: bool| match token.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(wrong(file, &format!("{}.{name}", key()), other)),
        };
        let special = flag("special", false)?;
        let [single_word, lstrip, rstrip] = ["single_word", "lstrip", "rstrip"].map(|name| flag(name, false));
        let (single_word, lstrip, rstrip) = (single_word?, lstrip?, rstrip?);
        let (content, normalized) = (content.to_owned(), flag("normalized", !special)?);
        added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special });
    }
    Ok(added)
}

fn from_map(file: &JsonFile, named: &BTreeSet<String>) -> Result<Vec<AddedToken>> {
    let mut added = Vec::with_capacity(file.object().len());
    for (text, id) in file.object() {
        let number = id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| wrong(file, text, id))?;
        let special = named.contains(text);
        added.push(AddedToken { special, normalized: !special, ..AddedToken::special(number, text.clone()) });
    }
    Ok(added)
}

fn wrong(file: &JsonFile, key: &str, found: &Value) -> Error {
    let expected = "an id and a token: its text, or an object with its content and flags";
    wrong_type(file.file(), key, found, expected)
}

/// A token given as a string or as an object with the text under `content`.
pub(super) fn token_text(file: &JsonFile, key: &str) -> Result<Option<String>> {
    let Some(value) = file.object().get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = || wrong_type(file.file(), key, value, "a token text or an object with its content");
    let text = text(value).ok_or_else(wrong)?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
