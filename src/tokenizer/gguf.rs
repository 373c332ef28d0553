//! GGUF keys -> encoder and vocabulary.

use super::Pipeline;
use super::bpe::{ByteLevelBpe, merge_map};
use super::json::Built;
use super::sentencepiece::SentencePiece;
use super::vocabulary::{Vocabulary, byte_level as to_bytes, byte_token};
use crate::error::{Error, Result};
use model_diagnostics::header::Fields;
use model_diagnostics::header::gguf::{GgufMetadata, Strings};
use model_diagnostics::tokenizer::{TokenizerSpec, pre};
use std::borrow::Cow;
use tokenizers::models::bpe::Vocab;
use tokenizers::normalizers::NFC;
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

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
    let mut entries = Entries::read(metadata, spec)?;
    let scores = metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default();
    let unknown = metadata.unsigned("tokenizer.ggml.unknown_token_id")?.unwrap_or(0);

    let mut model = SentencePiece {
        ids: entries.ids()?,
        texts: Vec::new(),
        scores: entries.types.iter().zip(scores).map(|(kind, score)| entries.merges(*kind).then_some(score)).collect(),
        bytes: vec![None; 256],
        unknown: u32::try_from(unknown).ok().filter(|id| (*id as usize) < spec.tokens),
    };
    let mut vocabulary = Vocabulary::new(spec.tokens, spec.add_space_prefix);
    for (id, (raw, kind)) in (0..).zip(entries.raw.iter().zip(&entries.types)) {
        match kind {
            TokenType::Normal => vocabulary.push(Some(&with_spaces(raw))),
            TokenType::UserDefined => vocabulary.push(Some(raw)),
            TokenType::Control => vocabulary.push(None),
            TokenType::Unused => vocabulary.push_unused(),
            TokenType::Byte => {
                let byte = byte_token(raw);
                if let Some(slot) = byte.and_then(|byte| model.bytes.get_mut(usize::from(byte))) {
                    slot.get_or_insert(id);
                }
                vocabulary.push(Some(byte.as_slice()));
            }
        }
    }
    let normalizer = with_prefix(spec.add_space_prefix).map_err(|error| entries.damaged(error.to_string()))?;
    let added = entries.added()?;
    model.texts = entries.take_texts();
    let mut pipeline = Pipeline::new(model);
    pipeline.with_normalizer(Some(normalizer));
    pipeline.add_tokens(&added);
    Ok((Box::new(pipeline), vocabulary))
}

/// `gpt2`: byte-level BPE.
pub(super) fn byte_level(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let mut entries = Entries::read(metadata, spec)?;
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
    let model = ByteLevelBpe { ids, texts: entries.take_texts(), merges, ignore_merges: pre.ignore_merges };
    let splits = splits(pre.patterns).map_err(|error| entries.damaged(error.to_string()))?;
    let mut pipeline = Pipeline::new(model);
    pipeline.with_normalizer(pre.nfc.then_some(NFC));
    pipeline.with_pre_tokenizer(Some(splits));
    pipeline.add_tokens(&added);
    Ok((Box::new(pipeline), vocabulary))
}

/// Spaces as SentencePiece writes them, one more before each text if `space`.
pub(super) fn with_prefix(space: bool) -> tokenizers::Result<Normalizers> {
    let prefix = space.then(|| NormalizerWrapper::from(Prepend::new(SPACE.into())));
    let replace = NormalizerWrapper::from(Replace::new(" ", SPACE)?);
    Ok(Normalizers::new(prefix.into_iter().chain([replace]).collect()))
}

/// The cuts of a pre-tokenizer, then the byte alphabet.
pub(super) fn splits(patterns: &[&str]) -> tokenizers::Result<Sequence> {
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in patterns {
        let pattern = SplitPattern::Regex((*pattern).into());
        steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    Ok(Sequence::new(steps))
}

/// The vocabulary as the file lists it.
struct Entries<'m> {
    metadata: &'m GgufMetadata,
    raw: &'m Strings,
    /// `None` for a text that is not UTF-8: such a token can be generated, never encoded.
    texts: Vec<Option<String>>,
    types: Vec<TokenType>,
}

impl<'m> Entries<'m> {
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
        Ok(Entries { metadata, raw, texts, types })
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
        for (text, kind) in self.texts.iter().zip(&self.types) {
            if let (Some(text), TokenType::Control | TokenType::UserDefined) = (text, kind) {
                let strips = phi3 && !matches!(text.as_str(), "<unk>" | "<s>" | "<|endoftext|>");
                let token = AddedToken::from(text.as_str(), *kind == TokenType::Control);
                added.push(token.normalized(false).rstrip(strips));
            }
        }
        Ok(added)
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

/// Every `A B`, cut at the first space that is not the first byte.
fn halves(merges: &Strings) -> impl Iterator<Item = Result<(&str, &str), String>> {
    merges.iter().map(|merge| {
        let text = std::str::from_utf8(merge).ok();
        let halves = text.and_then(|text| {
            let cut = text.bytes().skip(1).position(|byte| byte == b' ')? + 1;
            Some((text.get(..cut)?, text.get(cut + 1..)?))
        });
        halves.ok_or_else(|| format!("{:?}, expected two texts", String::from_utf8_lossy(merge)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(text);
        splits(pre::find(name).unwrap().patterns).unwrap().pre_tokenize(&mut cut).unwrap();
        cut.get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(piece, _, _)| String::from_utf8_lossy(&to_bytes(piece)).into_owned())
            .collect()
    }

    #[test]
    fn every_pre_tokenizer_cuts_without_losing_a_byte() {
        let text = " Hello WörLd's 12345 日本語 !? x\r\n\n\ty  z\u{1fd3}\u{1f7d} $1+2=3 ";
        for pre in pre::PRE_TOKENIZERS {
            let pieces = pieces(pre.names[0], text);
            assert_eq!(pieces.concat(), text, "{}", pre.names[0]);
            assert!(pieces.len() > 5, "{}: {pieces:?}", pre.names[0]);
        }
    }

    #[test]
    fn digits_are_cut_as_each_family_does() {
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
