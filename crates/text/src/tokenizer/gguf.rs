//! GGUF keys -> the encoder and vocabulary of a tokenizer.

use super::bpe::{Bpe, Unknown, merge_map};
use super::encoder::{Model, Tokens};
use super::files::{Built, encoder};
use super::sentencepiece::SentencePiece;
use super::unigram::Unigram;
use super::vocabulary::{Vocabulary, byte_level as to_bytes, byte_token};
use super::word_piece::WordPiece;
use crate::error::{Error, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use model_factory_format::header::Fields;
use model_factory_format::header::gguf::{GgufMetadata, Strings};
use model_factory_format::tokenizer::sentencepiece::PieceKind;
use model_factory_format::tokenizer::steps::{Normalizer, Pattern, PreTokenizer, Prepend};
use model_factory_format::tokenizer::{
    AddedToken, Model as Description, TokenizerFiles, TokenizerKind, TokenizerSpec, pre,
};
use std::borrow::Cow;

/// A space as SentencePiece writes it.
const SPACE: &str = "▁";

/// Builds the tokenizer that the keys in `metadata` describe.
pub(super) fn build(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Built> {
    let entries = GgufTokens::read(metadata, spec)?;
    let damaged = |reason: String| Error::Tokenizer { file: metadata.file().into(), reason };
    let (vocabulary, bytes) = entries.vocabulary(spec);
    let added = entries.added()?;
    let (types, tokens) = (entries.types, Tokens::new(entries.texts));
    let mut texts = (0..).zip(&tokens.texts).filter(|(_, text)| !text.is_empty());
    if let Some((id, text)) = texts.find(|(id, text)| tokens.ids[*text] != *id) {
        return Err(damaged(format!("tokens {id} and {} have the same text {text:?}", tokens.ids[text])));
    }
    let scores = metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default();
    let stored_unknown = metadata.unsigned("tokenizer.ggml.unknown_token_id")?;
    let unknown = u32::try_from(stored_unknown.unwrap_or(0)).ok().filter(|id| (*id as usize) < spec.tokens);
    let merges = |tokens: &Tokens| {
        let merges = metadata.strings("tokenizer.ggml.merges")?.ok_or_else(|| damaged("it has no merges".into()))?;
        merge_map(halves(merges), &tokens.ids).map_err(damaged)
    };
    // Writes `▁` for each space.
    let spaces = Normalizer::Replace { pattern: Pattern::String(" ".into()), content: SPACE.into() };
    let mut files = TokenizerFiles::new(metadata.file(), spec.kind, Description::default(), added);
    let model: Box<dyn Model> = match spec.kind {
        TokenizerKind::SentencePiece => {
            let prefix = spec.add_space_prefix.then(|| Normalizer::Prepend { prepend: SPACE.into() });
            let normalizers = prefix.into_iter().chain([spaces]).collect();
            files.normalizer = Some(Normalizer::Sequence { normalizers });
            // Merging makes only tokens of these types.
            let merges = |kind: &Option<PieceKind>| matches!(kind, Some(PieceKind::Normal | PieceKind::UserDefined));
            let scores = types.iter().zip(scores).map(|(kind, score)| merges(kind).then_some(score)).collect();
            Box::new(SentencePiece { tokens, scores, bytes, unknown })
        }
        TokenizerKind::ByteLevelBpe => {
            let pre = spec.pre.as_deref().and_then(pre::find);
            let pre = pre.ok_or_else(|| damaged("it has no pre-tokenizer".into()))?;
            files.normalizer = pre.nfc.then_some(Normalizer::NFC);
            files.pre_tokenizer = Some(PreTokenizer::byte_level(pre.patterns));
            let (merges, ignore_merges) = (Some(merges(&tokens)?), pre.ignore_merges);
            Box::new(Bpe { tokens, merges, ignore_merges, unknown: Unknown::default() })
        }
        // A character without a token becomes a token for each of its bytes.
        TokenizerKind::CharacterBpe => {
            files.normalizer = Some(spaces);
            let token = stored_unknown.and(unknown).and_then(|id| tokens.texts.get(id as usize));
            let token = token.filter(|text| !text.is_empty()).cloned();
            let unknown = Unknown { bytes: bytes.try_into().ok().map(Box::new), token, fused: true };
            Box::new(Bpe { merges: Some(merges(&tokens)?), tokens, ignore_merges: false, unknown })
        }
        // Texts are normalized and split like in transformers' XLMRobertaTokenizer.
        TokenizerKind::Unigram => {
            let unknown = match (stored_unknown, unknown) {
                (Some(id), None) => {
                    return Err(damaged(format!("its unknown token is {id}, of {} tokens", spec.tokens)));
                }
                (stored, id) => stored.and(id).map(|id| id as usize),
            };
            if let Some(table) = metadata.integers("tokenizer.ggml.precompiled_charsmap")? {
                // The array may have signed or unsigned bytes.
                let byte =
                    |byte: i64| u8::try_from(byte).ok().or_else(|| i8::try_from(byte).ok().map(|byte| byte as u8));
                let table = table.into_iter().map(byte).collect::<Option<Vec<u8>>>();
                let table =
                    table.ok_or_else(|| damaged("its precompiled_charsmap has entries that are no bytes".into()))?;
                files.normalizer = Some(Normalizer::Precompiled { precompiled_charsmap: BASE64.encode(table) });
            }
            let metaspace = PreTokenizer::Metaspace {
                replacement: '▁',
                add_prefix_space: None,
                prepend_scheme: Some(if spec.add_space_prefix { Prepend::Always } else { Prepend::Never }),
                split: None,
            };
            let splits = metadata.boolean("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false);
            let split = splits.then_some(PreTokenizer::WhitespaceSplit);
            let pretokenizers = split.into_iter().chain([metaspace]).collect();
            files.pre_tokenizer = Some(PreTokenizer::Sequence { pretokenizers });
            // Unused entries must match no text, and must not count.
            let used = types.iter().zip(&scores).filter(|(kind, _)| kind.is_some());
            let least = used.map(|(_, score)| *score).fold(0.0, f32::min);
            let pieces = tokens.texts.into_iter().zip(&types).zip(&scores).enumerate();
            let pieces = pieces.map(|(id, ((text, kind), score))| match kind {
                None => (format!("\u{ffff}unused {id}"), f64::from(least)),
                Some(_) => (text, f64::from(*score)),
            });
            let has_bytes = bytes.iter().any(Option::is_some);
            Box::new(Unigram::from_pieces(pieces.collect(), unknown, has_bytes).map_err(damaged)?)
        }
        TokenizerKind::WordPiece => {
            let rules = spec.word_piece.ok_or_else(|| damaged("its rules are not known".into()))?;
            files.normalizer = Some(Normalizer::BertNormalizer {
                clean_text: true,
                handle_chinese_chars: true,
                strip_accents: Some(rules.strip_accents),
                lowercase: rules.lowercase,
            });
            files.pre_tokenizer = Some(PreTokenizer::BertPreTokenizer);
            Box::new(WordPiece::gguf(tokens, rules.unknown))
        }
        TokenizerKind::Json | TokenizerKind::Missing => return Err(damaged("it has no vocabulary".into())),
    };
    Ok((encoder(&files, model, spec).map_err(damaged)?, vocabulary))
}

/// The vocabulary as listed in the file.
struct GgufTokens<'m> {
    metadata: &'m GgufMetadata,
    raw: &'m Strings,
    /// The texts. One that is not UTF-8 is empty here: its token can be generated, but never encoded.
    texts: Vec<String>,
    types: Vec<Option<PieceKind>>,
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
                // Tokens that end a turn are control tokens whatever the file says, and so are BOS and EOS.
                let ends = spec.stop_ids.contains_key(&id) || spec.bos == Some(id) || spec.eos == Some(id);
                if ends { Some(PieceKind::Control) } else { token_type(stored.unwrap_or(1), text) }
            })
            .collect();
        let texts = raw
            .iter()
            .enumerate()
            .map(|(id, text)| match std::str::from_utf8(text) {
                Ok("") => format!("[EMPTY_{id}]"),
                text => text.unwrap_or_default().to_owned(),
            })
            .collect();
        Ok(GgufTokens { metadata, raw, texts, types })
    }

    /// The bytes that each token adds to a text, and the token of each byte.
    fn vocabulary(&self, spec: &TokenizerSpec) -> (Vocabulary, Vec<Option<u32>>) {
        let drops_leading_space = match spec.kind {
            TokenizerKind::ByteLevelBpe => false,
            TokenizerKind::WordPiece => true,
            _ => spec.add_space_prefix,
        };
        let mut vocabulary = Vocabulary::new(spec.tokens, drops_leading_space);
        let mut bytes = vec![None; 256];
        for (id, ((raw, text), kind)) in (0..).zip(self.raw.iter().zip(&self.texts).zip(&self.types)) {
            match (kind, spec.kind, &**text) {
                (Some(PieceKind::Control | PieceKind::Unknown), ..) => vocabulary.push(None),
                (None, ..) => {
                    vocabulary.unused.push(id);
                    vocabulary.push(Some(b""));
                }
                (_, TokenizerKind::WordPiece, _) => vocabulary.push(Some(&with_spaces(raw))),
                (Some(PieceKind::UserDefined), ..) | (_, TokenizerKind::ByteLevelBpe, "") => vocabulary.push(Some(raw)),
                (_, TokenizerKind::ByteLevelBpe, text) => vocabulary.push(Some(&to_bytes(text))),
                (Some(PieceKind::Normal), ..) => vocabulary.push(Some(&with_spaces(raw))),
                (Some(PieceKind::Byte), ..) => {
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

    /// The control and user-defined tokens, which are matched in a text as a whole.
    fn added(&self) -> Result<Vec<AddedToken>> {
        // Phi-3's tokenizer.json says `rstrip` for its special tokens; GGUF has no key for it.
        let name = self.metadata.text("general.name")?.unwrap_or_default().to_lowercase();
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        let mut added = Vec::new();
        for (id, (text, kind)) in (0..).zip(self.texts.iter().zip(&self.types)) {
            if matches!(kind, Some(PieceKind::Control | PieceKind::UserDefined)) && !text.is_empty() {
                let rstrip = phi3 && !matches!(text.as_str(), "<unk>" | "<s>" | "<|endoftext|>");
                let special = *kind == Some(PieceKind::Control);
                added.push(AddedToken { rstrip, special, ..AddedToken::special(id, text.clone()) });
            }
        }
        Ok(added)
    }
}

/// The effective type of a `tokenizer.ggml.token_type`; unknown tokens count as control tokens. `None` if a token never matches
/// and has no text: converters pad vocabularies with `[PAD<i>]` of several types, which must never match a text.
fn token_type(stored: i64, text: &[u8]) -> Option<PieceKind> {
    let number = text.strip_prefix(b"[PAD").and_then(|text| text.strip_suffix(b"]"));
    let filler = number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit));
    let unused = || text.windows(6).any(|part| part == b"unused");
    match stored {
        2..=4 if filler || text.is_empty() => None,
        3 if unused() => None,
        2 | 3 => Some(PieceKind::Control),
        4 => Some(PieceKind::UserDefined),
        5 => None,
        6 => Some(PieceKind::Byte),
        _ => Some(PieceKind::Normal),
    }
}

fn with_spaces(text: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(text) {
        Ok(text) if text.contains(SPACE) => Cow::Owned(text.replace(SPACE, " ").into_bytes()),
        _ => Cow::Borrowed(text),
    }
}

/// The two halves of every merge `A B`, split at the first space that is not the first byte.
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
    use crate::tokenizer::pre_tokenizer;
    use crate::tokenizer::text::Budget;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let steps = PreTokenizer::byte_level(pre::find(name).unwrap().patterns);
        let pre_tokenizer = pre_tokenizer::PreTokenizer::new(Some(&steps)).unwrap();
        let pieces = pre_tokenizer.apply(text, true, &Budget::new(text.len())).unwrap();
        pieces.iter().map(|piece| String::from_utf8_lossy(&to_bytes(piece)).into_owned()).collect()
    }

    #[test]
    fn every_pre_tokenizer_splits_without_losing_a_byte() {
        let text = " Hello WörLd's 12345 日本語 !? x\r\n\n\ty  z\u{1fd3}\u{1f7d} $1+2=3 ";
        for pre in pre::PRE_TOKENIZERS {
            let pieces = pieces(pre.names.split(' ').next().unwrap(), text);
            assert_eq!(pieces.concat(), text, "{}", pre.names);
            assert!(pieces.len() > 5, "{}: {pieces:?}", pre.names);
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
            assert_eq!(token_type(stored, b"[PAD312]"), None);
        }
        assert_eq!(token_type(3, b"<|unused_7|>"), None);
        assert_eq!(token_type(3, b"<|eot_id|>"), Some(PieceKind::Control));
        assert_eq!(token_type(4, b"<think>"), Some(PieceKind::UserDefined));
    }
}
