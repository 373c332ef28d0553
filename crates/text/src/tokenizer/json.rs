//! `tokenizer.json` -> encoder and vocabulary.

use super::added::AddedTokens;
use super::bpe;
use super::encoder::{Encoder, Model};
use super::normalizer::{Normalizer, STEPS};
use super::pre_tokenizer::PreTokenizer;
use super::unigram;
use super::vocabulary::{Vocabulary, byte_level, byte_token};
use super::word_piece;
use crate::error::{Error, Result};
use model_factory_format::tokenizer::{AddedToken, TokenizerSpec};
use model_factory_format::{limits, source};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The file with its model in its own type: the library's own reader goes through untyped values three times.
#[derive(Deserialize)]
struct File<M> {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    model: M,
}

/// An encoder and its vocabulary.
pub(super) type Built = (Encoder, Vocabulary);

/// What surrounds a model.
pub(super) struct Parts {
    /// The tokens matched as a whole.
    pub(super) added: Vec<AddedToken>,
    pub(super) normalizer: Normalizer,
    pub(super) pre_tokenizer: PreTokenizer,
    pub(super) rules: Rules,
}

pub(super) fn build(path: &Path, spec: &TokenizerSpec) -> Result<Built> {
    let text = source::read(path, limits::TOKENIZER_JSON_BYTES)?;
    let damaged = |reason: String| Error::Tokenizer { file: path.into(), reason };
    // Every entry takes some bytes of the file: a larger id would only make us allocate.
    if spec.tokens > text.len() {
        let (last, bytes) = (spec.tokens - 1, text.len());
        return Err(damaged(format!("it has ids up to {last}, more than its {bytes} bytes can list")));
    }
    match spec.model.as_deref() {
        Some("WordPiece") => {
            read(path, &text, spec, |model: word_piece::WordPieceJson| Ok(Box::new(model.build(spec.tokens)?)))
        }
        Some("Unigram") => read(path, &text, spec, |model: unigram::UnigramJson| Ok(Box::new(model.build()?))),
        _ => read(path, &text, spec, |model: bpe::BpeJson| Ok(Box::new(model.build(spec.tokens)?))),
    }
}

fn read<'t, M: Deserialize<'t>>(
    path: &Path,
    text: &'t [u8],
    spec: &TokenizerSpec,
    model: impl FnOnce(M) -> Result<Box<dyn Model>, String>,
) -> Result<Built> {
    let damaged = |reason: String| Error::Tokenizer { file: path.into(), reason };
    let file: File<M> = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    let parts = || {
        let normalizer = Normalizer::read(&file.normalizer)?;
        let pre_tokenizer = PreTokenizer::read(&file.pre_tokenizer)?;
        if pre_tokenizer.marks_the_first() && !normalizer.keeps_the_first() {
            let reason =
                "its Metaspace with prepend_scheme first follows a normalizer that may take the first character away";
            return Err(reason.to_owned());
        }
        let rules = Rules::from_decoder(&file.decoder)?;
        Ok((Parts { added: file.added_tokens, normalizer, pre_tokenizer, rules }, model(file.model)?))
    };
    let (parts, model) = parts().map_err(damaged)?;
    assemble(path, model, parts, spec)
}

/// Puts the `parts` around `model`, the model of the file at `path`.
pub(super) fn assemble(path: &Path, model: Box<dyn Model>, parts: Parts, spec: &TokenizerSpec) -> Result<Built> {
    let damaged = |reason: String| Error::Tokenizer { file: path.into(), reason };
    let Parts { mut added, normalizer, pre_tokenizer, rules } = parts;
    added.retain(|token| !token.content.is_empty());
    check_ids(&added, model.as_ref()).map_err(damaged)?;
    let special: HashSet<u32> = added.iter().filter(|token| token.special).map(|token| token.id).collect();
    let mut added = AddedTokens::new(added, &normalizer).map_err(damaged)?;
    for id in spec.stop_ids.keys().chain(&spec.bos).chain(&spec.eos) {
        added.guard(*id, model.text(*id).unwrap_or_default());
    }
    let encoder = Encoder::new(added, normalizer, pre_tokenizer, model);
    let mut vocabulary = Vocabulary::new(spec.tokens, rules.drops_leading_space);
    for id in (0..).take(spec.tokens) {
        match encoder.text(id) {
            Some(_) if special.contains(&id) => vocabulary.push(None),
            Some(text) => vocabulary.push(Some(&rules.bytes(text))),
            None => vocabulary.push(Some(b"")),
        }
    }
    Ok((encoder, vocabulary))
}

/// An added token is the model's of the same text, or the next behind the model's and the added ones before it, as the
/// tokenizers library counts.
fn check_ids(added: &[AddedToken], model: &dyn Model) -> Result<(), String> {
    let mut next = u32::try_from(model.len()).map_err(|_| "it has too many tokens".to_owned())?;
    let mut ids: HashMap<&str, u32> = HashMap::new();
    for AddedToken { id, content, .. } in added {
        let place = ids.get(content.as_str()).copied().or_else(|| model.id(content));
        let place = place.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        if place != *id {
            return Err(format!("added token {content:?} has id {id}, but its place is {place}"));
        }
        ids.insert(content, *id);
    }
    Ok(())
}

/// What a `decoder` does to the text of one token, and to the start of a whole text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rules {
    byte_level: bool,
    byte_tokens: bool,
    replacements: Vec<(String, String)>,
    drops_leading_space: bool,
    /// Whether a token begins a word unless it begins with `##`.
    words: bool,
}

impl Rules {
    /// GPT-2's byte alphabet.
    pub(super) fn byte_level() -> Rules {
        Rules { byte_level: true, ..Rules::default() }
    }

    /// `▁` for a space, byte tokens, and a space before the text where one was put there.
    pub(super) fn sentence_piece(drops_leading_space: bool) -> Rules {
        let replacements = vec![("▁".into(), " ".into())];
        Rules { byte_tokens: true, replacements, drops_leading_space, ..Rules::default() }
    }

    /// A space in front of words.
    pub(super) fn word_piece() -> Rules {
        Rules { words: true, drops_leading_space: true, ..Rules::default() }
    }

    fn from_decoder(decoder: &Value) -> Result<Rules, String> {
        let mut rules = Rules::default();
        match decoder.get("decoders").and_then(Value::as_array) {
            Some(steps) if steps.len() > STEPS => return Err(format!("its decoder has more than {STEPS} steps")),
            Some(steps) => steps.iter().try_for_each(|step| rules.add(step))?,
            None => rules.add(decoder)?,
        }
        Ok(rules)
    }

    fn add(&mut self, step: &Value) -> Result<(), String> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        match step.get("type").and_then(Value::as_str) {
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_tokens = true,
            Some("Fuse") => {}
            Some("Replace") => {
                let pattern = text(step.get("pattern").and_then(|pattern| pattern.get("String")));
                match (pattern, text(step.get("content"))) {
                    // What grows could grow in every step.
                    (Some(pattern), Some(content)) if content.len() <= pattern.len() => {
                        self.replacements.push((pattern, content));
                    }
                    _ => {
                        let step: String = step.to_string().chars().take(200).collect();
                        return Err(format!(
                            "its decoder has {step}, only a fixed text can be replaced, by none that is longer"
                        ));
                    }
                }
            }
            Some("WordPiece") if step.get("prefix").and_then(Value::as_str) == Some("##") => {
                *self = Rules { replacements: std::mem::take(&mut self.replacements), ..Rules::word_piece() };
            }
            Some("Strip") => {
                let count = |key: &str| step.get(key).and_then(Value::as_u64);
                match (step.get("content").and_then(Value::as_str), count("start"), count("stop")) {
                    (Some(" "), Some(start @ 0..=1), Some(0)) => self.drops_leading_space = start == 1,
                    _ => return Err(format!("its decoder has {step}, only one leading space can be stripped")),
                }
            }
            Some("Metaspace") => {
                let replacement = text(step.get("replacement")).filter(|replacement| !replacement.is_empty());
                self.replacements.push((replacement.unwrap_or("▁".into()), " ".into()));
                let prefixed = step.get("add_prefix_space").and_then(Value::as_bool) != Some(false);
                let scheme = step.get("prepend_scheme").and_then(Value::as_str);
                self.drops_leading_space = scheme.map_or(prefixed, |scheme| scheme != "never");
            }
            other => {
                return Err(format!(
                    "its decoder is {:?}, expected ByteLevel, Metaspace, WordPiece of ##, or a Sequence of Replace, ByteFallback, Fuse and Strip",
                    other.unwrap_or("absent")
                ));
            }
        }
        Ok(())
    }

    fn bytes<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        if self.words {
            return match text.strip_prefix("##") {
                Some(rest) => Cow::Borrowed(rest.as_bytes()),
                None => Cow::Owned(format!(" {text}").into_bytes()),
            };
        }
        if self.byte_tokens
            && let Some(byte) = byte_token(text.as_bytes())
        {
            return Cow::Owned(vec![byte]);
        }
        let mut replaced = Cow::Borrowed(text);
        for (pattern, content) in &self.replacements {
            if replaced.contains(pattern.as_str()) {
                replaced = Cow::Owned(replaced.replace(pattern.as_str(), content));
            }
        }
        match replaced {
            Cow::Borrowed(text) if self.byte_level => byte_level(text),
            Cow::Owned(text) if self.byte_level => Cow::Owned(byte_level(&text).into_owned()),
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_decoders_of_the_families() {
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let rules = Rules::from_decoder(&llama).unwrap();
        assert!(rules.drops_leading_space);
        assert_eq!(rules.bytes("▁a▁").as_ref(), b" a ");
        assert_eq!(rules.bytes("<0x0A>").as_ref(), b"\n");
        let gpt2 = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let rules = Rules::from_decoder(&gpt2).unwrap();
        assert!(!rules.drops_leading_space);
        assert_eq!(rules.bytes("Ġa").as_ref(), b" a");
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"});
        assert!(!Rules::from_decoder(&metaspace).unwrap().drops_leading_space);
    }

    #[test]
    fn refuses_a_decoder_it_cannot_follow() {
        for decoder in [
            json!(null),
            json!({"type": "WordPiece", "prefix": "@@"}),
            json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": " "}),
            json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}),
            json!({"type": "Sequence", "decoders": vec![json!({"type": "Fuse"}); STEPS + 1]}),
            json!({"type": "Strip", "content": "x", "start": 1, "stop": 0}),
        ] {
            assert!(Rules::from_decoder(&decoder).is_err(), "{decoder}");
        }
    }
}
