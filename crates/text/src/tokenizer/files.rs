//! The files of a tokenizer -> its encoder and vocabulary.

use super::added::AddedTokens;
use super::bpe::Bpe;
use super::encoder::{Encoder, Model};
use super::normalizer::{Normalizer, STEPS};
use super::pre_tokenizer::PreTokenizer;
use super::sentencepiece::SentencePiece;
use super::unigram::Unigram;
use super::vocabulary::{Vocabulary, byte_level, byte_token};
use super::word_piece::WordPiece;
use crate::error::{Error, Result};
use model_factory_format::tokenizer::steps::{Decoder, Pattern, Prepend};
use model_factory_format::tokenizer::{AddedToken, TokenizerFiles, TokenizerSpec};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

pub(super) type Built = (Encoder, Vocabulary);

/// Builds the tokenizer that `files` describe; `spec` was made from them.
pub(super) fn build(files: &TokenizerFiles, spec: &TokenizerSpec) -> Result<Built> {
    let damaged = |reason: String| Error::Tokenizer { file: files.path.clone(), reason };
    if let Some(damage) = &files.damage {
        return Err(damaged(damage.clone()));
    }
    let rules = Rules::new(files.decoder.as_ref()).map_err(damaged)?;
    let model: Box<dyn Model> = match files.model.kind.as_deref() {
        Some("WordPiece") => Box::new(WordPiece::new(&files.model).map_err(damaged)?),
        Some("Unigram") => Box::new(Unigram::new(&files.model).map_err(damaged)?),
        Some(_) => Box::new(Bpe::new(files)?),
        None => Box::new(SentencePiece::new(&files.model.pieces).map_err(damaged)?),
    };
    let special: HashSet<u32> = files.added.iter().filter(|token| token.special).map(|token| token.id).collect();
    let encoder = encoder(files, model, spec).map_err(damaged)?;
    let tokens = files.tokens();
    let mut vocabulary = Vocabulary::new(tokens, rules.drops_leading_space);
    for id in (0..).take(tokens) {
        match encoder.text(id) {
            Some(_) if special.contains(&id) => vocabulary.push(None),
            Some(text) => vocabulary.push(Some(&rules.bytes(text))),
            None => vocabulary.push(Some(b"")),
        }
    }
    Ok((encoder, vocabulary))
}

/// Combines `model` with the steps of `files` and the added tokens.
pub(super) fn encoder(files: &TokenizerFiles, model: Box<dyn Model>, spec: &TokenizerSpec) -> Result<Encoder, String> {
    let normalizer = Normalizer::new(files.normalizer.as_ref())?;
    let pre_tokenizer = PreTokenizer::new(files.pre_tokenizer.as_ref())?;
    if pre_tokenizer.marks_the_first() && !normalizer.keeps_the_first() {
        let reason =
            "its Metaspace with prepend_scheme first follows a normalizer that may take the first character away";
        return Err(reason.to_owned());
    }
    let added: Vec<AddedToken> = files.added.iter().filter(|token| !token.content.is_empty()).cloned().collect();
    check_ids(&added, model.as_ref())?;
    let mut added = AddedTokens::new(added, &normalizer)?;
    for id in spec.stop_ids.keys().chain(&spec.bos).chain(&spec.eos) {
        added.guard(*id, model.text(*id).unwrap_or_default());
    }
    Ok(Encoder::new(added, normalizer, pre_tokenizer, model))
}

/// The id of an added token must be that of the model's token with the same text, or the next free one, as in the
/// tokenizers library.
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

/// The effect of a `decoder` on the text of one token, and on the start of a whole text.
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
    fn new(decoder: Option<&Decoder>) -> Result<Rules, String> {
        let mut rules = Rules::default();
        match decoder {
            None => return Err("it has no decoder".into()),
            Some(Decoder::Sequence { decoders }) if decoders.len() > STEPS => {
                return Err(format!("its decoder has more than {STEPS} steps"));
            }
            Some(Decoder::Sequence { decoders }) => decoders.iter().try_for_each(|step| rules.add(step))?,
            Some(step) => rules.add(step)?,
        }
        Ok(rules)
    }

    fn add(&mut self, step: &Decoder) -> Result<(), String> {
        match step {
            Decoder::ByteLevel => self.byte_level = true,
            Decoder::ByteFallback => self.byte_tokens = true,
            Decoder::Fuse => {}
            // A replacement that grows a text could do so in every step.
            Decoder::Replace { pattern: Pattern::String(pattern), content } if content.len() <= pattern.len() => {
                self.replacements.push((pattern.clone(), content.clone()));
            }
            Decoder::WordPiece { prefix } if prefix == "##" => {
                let replacements = std::mem::take(&mut self.replacements);
                *self = Rules { replacements, words: true, drops_leading_space: true, ..Rules::default() };
            }
            Decoder::Strip { content, start: start @ 0..=1, stop: 0 } if content == " " => {
                self.drops_leading_space = *start == 1;
            }
            Decoder::Metaspace { replacement, add_prefix_space, prepend_scheme } => {
                let replacement = replacement.clone().filter(|replacement| !replacement.is_empty());
                self.replacements.push((replacement.unwrap_or("▁".into()), " ".into()));
                let prefixed = *add_prefix_space != Some(false);
                self.drops_leading_space = prepend_scheme.map_or(prefixed, |scheme| scheme != Prepend::Never);
            }
            other => {
                let step: String = format!("{other:?}").chars().take(200).collect();
                return Err(format!(
                    "its decoder has {step}; a fixed text can be replaced by none that is longer, one leading space be \
                     stripped, and the prefix of WordPiece be ##"
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
    use serde_json::{Value, json};

    fn read(decoder: &Value) -> Result<Rules, String> {
        let decoder: Option<Decoder> = serde_json::from_value(decoder.clone()).map_err(|error| error.to_string())?;
        Rules::new(decoder.as_ref())
    }

    #[test]
    fn reads_the_decoders_of_the_families() {
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let rules = read(&llama).unwrap();
        assert!(rules.drops_leading_space);
        assert_eq!(rules.bytes("▁a▁").as_ref(), b" a ");
        assert_eq!(rules.bytes("<0x0A>").as_ref(), b"\n");
        let gpt2 = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let rules = read(&gpt2).unwrap();
        assert!(!rules.drops_leading_space);
        assert_eq!(rules.bytes("Ġa").as_ref(), b" a");
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"});
        assert!(!read(&metaspace).unwrap().drops_leading_space);
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
            assert!(read(&decoder).is_err(), "{decoder}");
        }
    }
}
