//! `tokenizer.json` -> encoder and vocabulary.

use super::vocabulary::{Vocabulary, byte_level, byte_token};
use super::{Encoder, Pipeline};
use crate::error::{Error, Result};
use model_diagnostics::tokenizer::TokenizerSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::{AddedToken, Model, NormalizerWrapper, PreTokenizerWrapper};

/// The file with its model in its own type: the library's own reader goes through untyped values three times.
#[derive(Deserialize)]
struct File<M> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    #[serde(default)]
    decoder: Value,
    model: M,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// An encoder and its vocabulary.
pub(super) type Built = (Box<dyn Encoder>, Vocabulary);

/// What surrounds a model.
pub(super) struct Parts {
    /// The tokens matched as a whole, with their ids.
    pub(super) added: Vec<(u32, AddedToken)>,
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(super) rules: Rules,
}

pub(super) fn build(path: &Path, spec: &TokenizerSpec) -> Result<Built> {
    let text = std::fs::read(path).map_err(|error| model_diagnostics::Error::io(path, error))?;
    match spec.model.as_deref() {
        Some("Unigram") => read::<Unigram>(path, &text, spec, |_| None),
        _ => read::<BPE>(path, &text, spec, |model| model.dropout),
    }
}

/// `dropout(model)` is the probability with which it leaves merges out.
fn read<M>(path: &Path, text: &[u8], spec: &TokenizerSpec, dropout: fn(&M) -> Option<f32>) -> Result<Built>
where
    M: Model + DeserializeOwned + Send + Sync + 'static,
{
    let damaged = |reason: String| Error::Tokenizer { file: path.into(), reason };
    // Every entry takes some bytes of the file: a larger id would only make us allocate.
    if spec.tokens > text.len() {
        return Err(damaged(format!(
            "it has ids up to {}, more than its {} bytes can list",
            spec.tokens - 1,
            text.len()
        )));
    }
    let file: File<M> = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if let Some(dropout) = dropout(&file.model).filter(|dropout| *dropout != 0.0) {
        let reason = format!(
            "its model.dropout is {dropout}, which cuts a text differently every time, expected null as outside of training"
        );
        return Err(damaged(reason));
    }
    let rules = Rules::from_decoder(&file.decoder).map_err(damaged)?;
    if has_character_map(&file.normalizer) {
        let reason = "its normalizer has a precompiled character map, expected rules (Prepend, Replace, NFC)";
        return Err(damaged(reason.into()));
    }
    let normalizer: Option<NormalizerWrapper> =
        serde_json::from_value(file.normalizer).map_err(|error| damaged(error.to_string()))?;
    let added = file.added_tokens.into_iter().map(|added| (added.id, added.token)).collect();
    assemble(path, file.model, Parts { added, normalizer, pre_tokenizer: file.pre_tokenizer, rules }, spec)
}

/// Puts the `parts` around `model`, the model of the file at `path`.
pub(super) fn assemble<M>(path: &Path, model: M, parts: Parts, spec: &TokenizerSpec) -> Result<Built>
where
    M: Model + Send + Sync + 'static,
{
    let Parts { added, normalizer, pre_tokenizer, rules } = parts;
    let mut pipeline = Pipeline::new(model);
    pipeline.with_normalizer(normalizer).with_pre_tokenizer(pre_tokenizer);
    let (ids, tokens): (Vec<u32>, Vec<AddedToken>) = added.into_iter().unzip();
    pipeline.add_tokens(&tokens);
    for (id, token) in ids.iter().zip(&tokens).filter(|(_, token)| !token.content.is_empty()) {
        if pipeline.token_to_id(&token.content) != Some(*id) {
            let reason = format!("added token {:?} has id {id}, but its place is another", token.content);
            return Err(Error::Tokenizer { file: path.into(), reason });
        }
    }
    let special: HashSet<u32> =
        ids.into_iter().zip(&tokens).filter(|(_, token)| token.special).map(|(id, _)| id).collect();
    let mut vocabulary = Vocabulary::new(spec.tokens, rules.drops_leading_space);
    for id in (0..).take(spec.tokens) {
        match pipeline.id_to_token(id) {
            Some(_) if special.contains(&id) => vocabulary.push(None),
            Some(text) => vocabulary.push(Some(&rules.bytes(&text))),
            None => vocabulary.push(Some(b"")),
        }
    }
    Ok((Box::new(pipeline), vocabulary))
}

/// Whether a normalizer, or one within it, is a map compiled by SentencePiece. The library trusts it: a damaged one makes
/// it panic, when it is read or when it is used. No family here has one.
fn has_character_map(normalizer: &Value) -> bool {
    match normalizer {
        Value::Object(object) => {
            let named = object.get("type").and_then(Value::as_str) == Some("Precompiled");
            named || object.contains_key("precompiled_charsmap") || object.values().any(has_character_map)
        }
        Value::Array(values) => values.iter().any(has_character_map),
        _ => false,
    }
}

/// What a `decoder` does to the text of one token, and to the start of a whole text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rules {
    byte_level: bool,
    byte_tokens: bool,
    replacements: Vec<(String, String)>,
    drops_leading_space: bool,
}

impl Rules {
    /// GPT-2's byte alphabet.
    pub(super) fn byte_level() -> Rules {
        Rules { byte_level: true, ..Rules::default() }
    }

    /// `▁` for a space, byte tokens, and a space before the text where one was put there.
    pub(super) fn sentence_piece(drops_leading_space: bool) -> Rules {
        let replacements = vec![("▁".into(), " ".into())];
        Rules { byte_level: false, byte_tokens: true, replacements, drops_leading_space }
    }

    fn from_decoder(decoder: &Value) -> Result<Rules, String> {
        let mut rules = Rules::default();
        match decoder.get("decoders").and_then(Value::as_array) {
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
                    (Some(pattern), Some(content)) => self.replacements.push((pattern, content)),
                    _ => return Err(format!("its decoder has {step}, only a fixed text can be replaced")),
                }
            }
            Some("Strip") => {
                let count = |key: &str| step.get(key).and_then(Value::as_u64);
                match (step.get("content").and_then(Value::as_str), count("start"), count("stop")) {
                    (Some(" "), Some(start @ 0..=1), Some(0)) => self.drops_leading_space = start == 1,
                    _ => return Err(format!("its decoder has {step}, only one leading space can be stripped")),
                }
            }
            Some("Metaspace") => {
                self.replacements.push((text(step.get("replacement")).unwrap_or("▁".into()), " ".into()));
                let prefixed = step.get("add_prefix_space").and_then(Value::as_bool) != Some(false);
                let scheme = step.get("prepend_scheme").and_then(Value::as_str);
                self.drops_leading_space = scheme.map_or(prefixed, |scheme| scheme != "never");
            }
            other => {
                return Err(format!(
                    "its decoder is {:?}, expected ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse and Strip",
                    other.unwrap_or("absent")
                ));
            }
        }
        Ok(())
    }

    fn bytes<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
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
            json!({"type": "WordPiece", "prefix": "##"}),
            json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": " "}),
            json!({"type": "Strip", "content": "x", "start": 1, "stop": 0}),
        ] {
            assert!(Rules::from_decoder(&decoder).is_err(), "{decoder}");
        }
    }
}
