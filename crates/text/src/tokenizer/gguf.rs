//! GGUF keys -> encoder and vocabulary.

use super::added::AddedTokens;
use super::bpe::{Bpe, Unknown, merge_map};
use super::charsmap::Charsmap;
use super::encoder::{Encoder, Model};
use super::json::Built;
use super::normalizer::{Normalizer, NormalizerStep};
use super::pre_tokenizer::PreTokenizer;
use super::sentencepiece::SentencePiece;
use super::unigram::UnigramJson;
use super::vocabulary::{Vocabulary, byte_level as to_bytes, byte_token};
use super::word_piece;
use crate::error::{Error, Result};
use model_factory_format::header::Fields;
use model_factory_format::header::gguf::{GgufMetadata, Strings};
use model_factory_format::tokenizer::{AddedToken, TokenizerSpec, pre};
use serde_json::json;
use std::borrow::Cow;
use tokenizers::models::bpe::Vocab;

/// A space as SentencePiece writes it.
const SPACE: &str = "▁";

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenType {
    /// Made by merging.
    Normal,
    /// Matched in a text as a whole and hidden from text: control and unknown.
    Control,
    /// Matched in a text as a whole and shown.
    UserDefined,
    /// Never matched, no text.
    Unused,
    /// One byte.
    Byte,
}

/// `llama`: SentencePiece-like.
pub(super) fn sentence_piece(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = GgufTokens::read(metadata, spec)?;
    let scores = metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default();
    let unknown = metadata.unsigned("tokenizer.ggml.unknown_token_id")?.unwrap_or(0);

    let (vocabulary, bytes) = entries.with_byte_tokens(spec);
    let mut model = SentencePiece {
        ids: entries.ids()?,
        texts: Vec::new(),
        scores: entries.types.iter().zip(scores).map(|(kind, score)| entries.merges(*kind).then_some(score)).collect(),
        bytes,
        unknown: u32::try_from(unknown).ok().filter(|id| (*id as usize) < spec.tokens),
    };
    let prefix = spec.add_space_prefix.then(|| NormalizerStep::Prepend(SPACE.into()));
    let spaces = NormalizerStep::replace(" ", SPACE.into()).map_err(|reason| entries.damaged(reason))?;
    let normalizer = Normalizer::new(prefix.into_iter().chain([spaces]).collect());
    let added = entries.added()?;
    model.texts = entries.take_texts();
    Ok((entries.encoder(added, normalizer, PreTokenizer::default(), Box::new(model))?, vocabulary))
}

/// `gpt2`: byte-level BPE.
pub(super) fn byte_level(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = GgufTokens::read(metadata, spec)?;
    let merges = metadata.strings("tokenizer.ggml.merges")?;
    let pre = spec.pre.as_deref().and_then(pre::find);
    let (Some(merges), Some(pre)) = (merges, pre) else {
        return Err(entries.damaged("it has no merges or no pre-tokenizer".into()));
    };
    let mut vocabulary = Vocabulary::new(spec.tokens, false);
    for ((raw, text), kind) in entries.raw.iter().zip(&entries.texts).zip(&entries.types) {
        match (kind, text) {
            (TokenType::Control, _) => vocabulary.push(None),
            (TokenType::Unused, _) => vocabulary.push_unused(),
            (TokenType::UserDefined, _) | (_, None) => vocabulary.push(Some(raw)),
            (_, Some(text)) => vocabulary.push(Some(&to_bytes(text))),
        }
    }
    let ids = entries.ids()?;
    let merges = merge_map(halves(merges), &ids).map_err(|reason| entries.damaged(reason))?;
    let added = entries.added()?;
    let (texts, ignore_merges) = (entries.take_texts(), pre.ignore_merges);
    let model = Bpe { ids, texts, merges, ignore_merges, unknown: Unknown::default() };
    let normalizer = Normalizer::new(pre.nfc.then_some(NormalizerStep::Nfc).into_iter().collect());
    let pre_tokenizer = PreTokenizer::byte_level(pre.patterns).map_err(|reason| entries.damaged(reason))?;
    Ok((entries.encoder(added, normalizer, pre_tokenizer, Box::new(model))?, vocabulary))
}

/// `gemma4`: BPE of characters, with spaces written `▁`, and byte tokens for what is none.
pub(super) fn character_bpe(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = GgufTokens::read(metadata, spec)?;
    let Some(merges) = metadata.strings("tokenizer.ggml.merges")? else {
        return Err(entries.damaged("it has no merges".into()));
    };
    let ids = entries.ids()?;
    let merges = merge_map(halves(merges), &ids).map_err(|reason| entries.damaged(reason))?;
    let (vocabulary, bytes) = entries.with_byte_tokens(spec);
    let unknown = metadata.unsigned("tokenizer.ggml.unknown_token_id")?;
    let token = unknown.and_then(|id| entries.texts.get(usize::try_from(id).ok()?).cloned().flatten());
    let bytes = bytes.try_into().ok().map(Box::new);
    let spaces = NormalizerStep::replace(" ", SPACE.into()).map_err(|reason| entries.damaged(reason))?;
    let added = entries.added()?;
    let texts = entries.take_texts();
    let model = Bpe { ids, texts, merges, ignore_merges: false, unknown: Unknown { bytes, token, fused: true } };
    let normalizer = Normalizer::new(vec![spaces]);
    Ok((entries.encoder(added, normalizer, PreTokenizer::default(), Box::new(model))?, vocabulary))
}

/// `t5`: Unigram, normalized and split as transformers' XLMRobertaTokenizer does it.
pub(super) fn unigram(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = GgufTokens::read(metadata, spec)?;
    let scores = metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default();
    let unknown = match metadata.unsigned("tokenizer.ggml.unknown_token_id")? {
        None => None,
        Some(id) => match u32::try_from(id).ok().filter(|id| (*id as usize) < spec.tokens) {
            None => return Err(entries.damaged(format!("its unknown token is {id}, of {} tokens", spec.tokens))),
            known => known,
        },
    };
    let (vocabulary, bytes) = entries.with_byte_tokens(spec);
    let normalizer = match metadata.integers("tokenizer.ggml.precompiled_charsmap")? {
        None => Normalizer::default(),
        Some(table) => {
            // Of signed or unsigned bytes.
            let byte = |byte: i64| u8::try_from(byte).ok().or_else(|| i8::try_from(byte).ok().map(|byte| byte as u8));
            let table = table.into_iter().map(byte).collect::<Option<Vec<u8>>>();
            let table = table.ok_or_else(|| "its precompiled_charsmap has entries that are no bytes".to_owned());
            let table = table.and_then(|table| Charsmap::read(&table)).map_err(|reason| entries.damaged(reason))?;
            Normalizer::new(vec![NormalizerStep::Charsmap(table)])
        }
    };
    let prefix = if spec.add_space_prefix { "always" } else { "never" };
    let metaspace = json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prefix});
    let split = metadata
        .boolean("tokenizer.ggml.remove_extra_whitespaces")?
        .unwrap_or(false)
        .then(|| json!({"type": "WhitespaceSplit"}));
    let steps: Vec<_> = split.into_iter().chain([metaspace]).collect();
    let pre_tokenizer = PreTokenizer::read(&json!({"type": "Sequence", "pretokenizers": steps}));
    let pre_tokenizer = pre_tokenizer.map_err(|reason| entries.damaged(reason))?;
    entries.ids()?;
    let added = entries.added()?;
    // What fills the vocabulary up must match no text, and count for nothing.
    let used = || entries.types.iter().zip(&scores).filter(|(kind, _)| **kind != TokenType::Unused);
    let least = used().map(|(_, score)| *score).fold(0.0, f32::min);
    let types = std::mem::take(&mut entries.types);
    let pieces = entries.take_texts().into_iter().zip(&types).zip(scores).enumerate();
    let pieces = pieces.map(|(id, ((text, kind), score))| match kind {
        TokenType::Unused => (format!("\u{ffff}unused {id}"), f64::from(least)),
        _ => (text, f64::from(score)),
    });
    let model = UnigramJson::new(pieces.collect(), unknown, bytes.iter().any(Option::is_some)).build();
    let model = model.map_err(|reason| entries.damaged(reason))?;
    Ok((entries.encoder(added, normalizer, pre_tokenizer, Box::new(model))?, vocabulary))
}

/// `bert`: WordPiece.
pub(super) fn word_piece(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = GgufTokens::read(metadata, spec)?;
    let rules = spec.word_piece.ok_or_else(|| entries.damaged("its rules are not known".into()))?;
    let mut vocabulary = Vocabulary::new(spec.tokens, true);
    for (raw, kind) in entries.raw.iter().zip(&entries.types) {
        match kind {
            TokenType::Control => vocabulary.push(None),
            TokenType::Unused => vocabulary.push_unused(),
            _ => vocabulary.push(Some(&with_spaces(raw))),
        }
    }
    entries.ids()?;
    let added = entries.added()?;
    let encoder = word_piece::of_gguf(entries.take_texts(), added, rules);
    Ok((encoder.map_err(|reason| entries.damaged(reason))?, vocabulary))
}

/// The vocabulary as the file lists it.
struct GgufTokens<'m> {
    metadata: &'m GgufMetadata,
    raw: &'m Strings,
    /// `None` for a text that is not UTF-8: such a token can be generated, never encoded.
    texts: Vec<Option<String>>,
    types: Vec<TokenType>,
}

impl<'m> GgufTokens<'m> {
    fn read(metadata: &'m GgufMetadata, spec: &TokenizerSpec) -> Result<Self> {
        let none = || Error::Tokenizer { file: metadata.file().into(), reason: "it has no tokens".into() };
        let raw = metadata.strings("tokenizer.ggml.tokens")?.ok_or_else(none)?;
        let types = metadata.integers("tokenizer.ggml.token_type")?;
        let types = (0..)
            .zip(raw.iter())
            .map(|(id, text)| {
                let stored = types.as_ref().and_then(|types| types.get(id as usize)).copied();
                // Tokens that end a turn are control tokens whatever the file says; so are BOS and EOS.
                let ends = spec.stop_ids.contains_key(&id) || spec.bos == Some(id) || spec.eos == Some(id);
                if ends { TokenType::Control } else { token_type(stored.unwrap_or(1), text) }
            })
            .collect();
        let texts = raw
            .iter()
            .enumerate()
            .map(|(id, text)| match std::str::from_utf8(text) {
                Ok("") => Some(format!("[EMPTY_{id}]")),
                Ok(text) => Some(text.to_owned()),
                Err(_) => None,
            })
            .collect();
        Ok(GgufTokens { metadata, raw, texts, types })
    }

    fn ids(&self) -> Result<Vocab> {
        let mut ids = Vocab::with_capacity(self.texts.len());
        for (id, text) in (0..).zip(&self.texts) {
            if let Some(text) = text
                && let Some(other) = ids.insert(text.clone(), id)
            {
                return Err(self.damaged(format!("tokens {other} and {id} have the same text {text:?}")));
            }
        }
        Ok(ids)
    }

    /// What each token adds to a text, where `▁` is a space and bytes have tokens; and the token of each byte.
    fn with_byte_tokens(&self, spec: &TokenizerSpec) -> (Vocabulary, Vec<Option<u32>>) {
        let mut vocabulary = Vocabulary::new(spec.tokens, spec.add_space_prefix);
        let mut bytes = vec![None; 256];
        for (id, (raw, kind)) in (0..).zip(self.raw.iter().zip(&self.types)) {
            match kind {
                TokenType::Normal => vocabulary.push(Some(&with_spaces(raw))),
                TokenType::UserDefined => vocabulary.push(Some(raw)),
                TokenType::Control => vocabulary.push(None),
                TokenType::Unused => vocabulary.push_unused(),
                TokenType::Byte => {
                    let byte = byte_token(raw);
                    if let Some(slot) = byte.and_then(|byte| bytes.get_mut(usize::from(byte))) {
                        slot.get_or_insert(id);
                    }
                    vocabulary.push(Some(byte.as_slice()));
                }
            }
        }
        (vocabulary, bytes)
    }

    /// Whether merging can make a token of this type.
    fn merges(&self, kind: TokenType) -> bool {
        matches!(kind, TokenType::Normal | TokenType::UserDefined)
    }

    /// The control and user-defined tokens, which match in a text as a whole.
    fn added(&self) -> Result<Vec<AddedToken>> {
        // Phi-3's tokenizer.json says `rstrip` for its special tokens; GGUF has no key for it.
        let name = self.metadata.text("general.name")?.unwrap_or_default().to_lowercase();
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        let mut added = Vec::new();
        for (id, (text, kind)) in (0..).zip(self.texts.iter().zip(&self.types)) {
            if let (Some(text), TokenType::Control | TokenType::UserDefined) = (text, kind) {
                let rstrip = phi3 && !matches!(text.as_str(), "<unk>" | "<s>" | "<|endoftext|>");
                let special = *kind == TokenType::Control;
                added.push(AddedToken { rstrip, special, ..AddedToken::special(id, text.clone()) });
            }
        }
        Ok(added)
    }

    /// Puts the parts together.
    fn encoder(
        &self,
        added: Vec<AddedToken>,
        normalizer: Normalizer,
        pre_tokenizer: PreTokenizer,
        model: Box<dyn Model>,
    ) -> Result<Encoder> {
        let added = AddedTokens::new(added, &normalizer).map_err(|reason| self.damaged(reason))?;
        Ok(Encoder::new(added, normalizer, pre_tokenizer, model))
    }

    fn take_texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.texts).into_iter().map(Option::unwrap_or_default).collect()
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Tokenizer { file: self.metadata.file().into(), reason }
    }
}

/// The type that counts: converters pad vocabularies with `[PAD<i>]` of several types, which must never match a text.
fn token_type(stored: i64, text: &[u8]) -> TokenType {
    let filler = text.starts_with(b"[PAD") && text.ends_with(b"]");
    let unused = || text.windows(6).any(|part| part == b"unused");
    match stored {
        2..=4 if filler || text.is_empty() => TokenType::Unused,
        3 if unused() => TokenType::Unused,
        2 | 3 => TokenType::Control,
        4 => TokenType::UserDefined,
        5 => TokenType::Unused,
        6 => TokenType::Byte,
        _ => TokenType::Normal,
    }
}

fn with_spaces(text: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(text) {
        Ok(text) if text.contains(SPACE) => Cow::Owned(text.replace(SPACE, " ").into_bytes()),
        _ => Cow::Borrowed(text),
    }
}

/// Every `A B`, split at the first space that is not the first byte.
fn halves(merges: &Strings) -> impl Iterator<Item = Result<(&str, &str), String>> {
    merges.iter().map(|merge| {
        let text = std::str::from_utf8(merge).ok();
        let halves = text.and_then(|text| {
            let space = text.bytes().skip(1).position(|byte| byte == b' ')? + 1;
            Some((text.get(..space)?, text.get(space + 1..)?))
        });
        halves.ok_or_else(|| format!("{:?}, expected two texts", String::from_utf8_lossy(merge)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::text::Budget;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let pre_tokenizer = PreTokenizer::byte_level(pre::find(name).unwrap().patterns).unwrap();
        let pieces = pre_tokenizer.apply(text, true, &Budget::of(text.len())).unwrap();
        pieces.iter().map(|piece| String::from_utf8_lossy(&to_bytes(piece)).into_owned()).collect()
    }

    #[test]
    fn every_pre_tokenizer_splits_without_losing_a_byte() {
        let text = " Hello WörLd's 12345 日本語 !? x\r\n\n\ty  z\u{1fd3}\u{1f7d} $1+2=3 ";
        for pre in pre::PRE_TOKENIZERS {
            let pieces = pieces(pre.names[0], text);
            assert_eq!(pieces.concat(), text, "{}", pre.names[0]);
            assert!(pieces.len() > 5, "{}: {pieces:?}", pre.names[0]);
        }
    }

    #[test]
    fn digits_are_split_as_each_family_does() {
        let text = "a12345";
        assert_eq!(pieces("llama-bpe", text), ["a", "123", "45"]);
        assert_eq!(pieces("qwen2", text), ["a", "1", "2", "3", "4", "5"]);
        assert_eq!(pieces("gpt-2", text), ["a", "12345"]);
        assert_eq!(pieces("smollm", text), ["a", "1", "2", "3", "4", "5"]);
        assert_eq!(pieces("deepseek-llm", text), ["a", "1", "2", "3", "4", "5"]);
        assert_eq!(pieces("default", text), ["a", "123", "45"]);
    }

    #[test]
    fn fillers_never_match_a_text() {
        for stored in [2, 3, 4] {
            assert_eq!(token_type(stored, b"[PAD312]"), TokenType::Unused);
        }
        assert_eq!(token_type(3, b"<|unused_7|>"), TokenType::Unused);
        assert_eq!(token_type(3, b"<|eot_id|>"), TokenType::Control);
        assert_eq!(token_type(4, b"<think>"), TokenType::UserDefined);
    }
}
