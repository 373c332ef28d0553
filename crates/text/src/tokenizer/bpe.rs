//! BPE by merges: the model of a `tokenizer.json`, of GGUF vocabularies named `gpt2`, and of `vocab.json` and `merges.txt`; or by
//! ranks, as in tiktoken.
//!
//! The tokenizers library's BPE gives the same merges, but is built from texts for each merge and its halves, ten times slower
//! for the vocabulary of Llama 3; and it caches words for each thread, which nothing frees.

use super::added::IdSet;
use super::encoder::{Model, Tokens};
use super::merge::{Symbol, merge};
use super::text::push;
use super::vocabulary::byte_character;
use crate::error::{EncodeError, Error, Result};
use model_factory_format::tokenizer::TokenizerFiles;
use std::cmp::Reverse;
use tokenizers::models::bpe::{MergeMap, Vocab};

/// Merges the adjacent pair of the lowest rank, leftmost first, until no merge is listed for any pair.
#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) tokens: Tokens,
    /// The rank and the result of each pair of ids; without it two tokens make any token of their texts, whose id is the rank.
    pub(super) merges: Option<MergeMap>,
    /// Whether a piece that is a token is not split.
    pub(super) ignore_merges: bool,
    pub(super) unknown: Unknown,
}

/// How a character without a token is encoded.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// The tokens of its bytes, where all have one (`<0x0A>`).
    pub(super) bytes: Option<Box<[Option<u32>; 256]>>,
    /// The text of the unknown token; without one the character is dropped.
    pub(super) token: Option<String>,
    /// Whether one unknown token stands for a run of such characters.
    pub(super) fused: bool,
}

/// The merges by the ids of their halves: the rank, and the id of the result. Ids instead of texts keep a vocabulary of
/// 128,000 tokens and 280,000 merges below a tenth of a second.
pub(super) fn merge_map<'m>(
    merges: impl Iterator<Item = Result<(&'m str, &'m str), String>>,
    ids: &Vocab,
) -> Result<MergeMap, String> {
    let mut pairs = MergeMap::with_capacity(merges.size_hint().0);
    let mut joined = String::new();
    for (rank, merge) in (0..).zip(merges) {
        let (left, right) = merge.map_err(|found| format!("merge {rank} is {found}"))?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        match (ids.get(left), ids.get(right), ids.get(joined.as_str())) {
            // If two merges are equal the later one counts, as in the tokenizers library.
            (Some(left), Some(right), Some(id)) => drop(pairs.insert((*left, *right), (rank, *id))),
            _ => {
                let found = format!("{left} {right}");
                return Err(format!("merge {rank} is {found:?}, expected tokens that make a token"));
            }
        }
    }
    Ok(pairs)
}

impl Bpe {
    /// Builds the model of `files`.
    ///
    /// # Errors
    /// `Tokenizer` for files that are invalid, or that use what no model of a known family does.
    pub(super) fn new(files: &TokenizerFiles) -> Result<Bpe, Error> {
        let model = &files.model;
        let damaged = |reason: String| Error::Tokenizer { file: files.path.clone(), reason };
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
            return Err(damaged(format!(
                "its model.dropout is {dropout}, which splits a text differently every time, expected null as outside of training"
            )));
        }
        for (key, text) in [
            ("continuing_subword_prefix", &model.continuing_subword_prefix),
            ("end_of_word_suffix", &model.end_of_word_suffix),
        ] {
            if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
                return Err(damaged(format!("its model.{key} is {text:?}, expected none: no known family has one")));
            }
        }
        let stored = model.merges.as_ref().filter(|_| model.vocab.scores.is_empty());
        if stored.is_none() && !model.by_rank {
            return Err(damaged(
                "its model has no merges, or a list as its vocab, expected texts with their ids".into(),
            ));
        }
        let mut ids = Vocab::with_capacity(model.vocab.end());
        ids.extend(model.vocab.iter().map(|(text, id)| (text.to_owned(), id)));
        let mut texts = vec![String::new(); model.vocab.end()];
        ids.iter().for_each(|(text, id)| texts[*id as usize].clone_from(text));
        let merges = stored.map(|stored| merge_map(stored.iter().map(Ok), &ids)).transpose().map_err(|reason| {
            let file = files.merges_path.as_ref().unwrap_or(&files.path).clone();
            Error::Tokenizer { file, reason }
        })?;
        let byte = |byte: u8| ids.get(format!("<0x{byte:02X}>").as_str()).copied();
        let bytes = model.byte_fallback == Some(true);
        let bytes = bytes.then(|| Box::new(std::array::from_fn(|index| byte(index as u8))));
        let unknown = Unknown { bytes, token: model.unk_token.clone(), fused: model.fuse_unk == Some(true) };
        Ok(Bpe { tokens: Tokens { ids, texts }, merges, ignore_merges: model.ignore_merges == Some(true), unknown })
    }

    /// The tokens of the bytes of `character`, if all have one.
    fn bytes(&self, character: &str) -> Option<impl Iterator<Item = u32>> {
        let bytes = self.unknown.bytes.as_ref()?;
        let tokens = character.bytes().map(|byte| bytes[usize::from(byte)]);
        tokens.clone().all(|token| token.is_some()).then(|| tokens.flatten())
    }
}

impl Model for Bpe {
    fn encode(&self, piece: &str, guarded: &IdSet, ids: &mut Vec<u32>) -> Result<()> {
        let free = |id: u32| !guarded.has(id);
        if self.ignore_merges
            && let Some(id) = self.tokens.ids.get(piece).filter(|id| free(**id))
        {
            return push(ids, *id);
        }
        let mut symbols: Vec<Symbol> = Vec::new();
        let mut add = |id: u32, bytes: usize| {
            let start = symbols.last().map_or(0, |last| last.end);
            push(&mut symbols, Symbol { start, end: start + bytes, id: Some(id) })
        };
        // As in the library, an unknown token waits for the next known token, and byte tokens are written before it.
        let mut waiting: Option<(u32, usize)> = None;
        for (start, character) in piece.char_indices() {
            let bytes = character.len_utf8();
            let character = &piece[start..start + bytes];
            if let Some(id) = self.tokens.ids.get(character).filter(|id| free(**id)) {
                waiting.take().map_or(Ok(()), |(unknown, bytes)| add(unknown, bytes))?;
                add(*id, bytes)?;
            } else if let Some(mut tokens) = self.bytes(character) {
                tokens.try_for_each(|id| add(id, 1))?;
            } else if let Some(token) = &self.unknown.token {
                let none = || EncodeError::NoToken { text: character.into(), unknown: token.clone() };
                let id = *self.tokens.ids.get(token).ok_or_else(none)?;
                match &mut waiting {
                    Some((_, waiting)) if self.unknown.fused => *waiting += bytes,
                    _ => waiting.replace((id, bytes)).map_or(Ok(()), |(unknown, bytes)| add(unknown, bytes))?,
                }
            } else if self.tokens.ids.contains_key(character) {
                // The token is a guarded one, and there is no other for the letter.
                return Err(EncodeError::NoToken { text: character.into(), unknown: "unk_token".into() }.into());
            }
        }
        waiting.map_or(Ok(()), |(unknown, bytes)| add(unknown, bytes))?;
        merge(&mut symbols, |left, right| {
            let (rank, id) = match &self.merges {
                Some(merges) => *merges.get(&(left.id?, right.id?))?,
                None => self.tokens.ids.get(&piece[left.start..right.end]).map(|id| (*id, *id))?,
            };
            free(id).then_some((Reverse(rank), id))
        })?;
        symbols.iter().filter_map(|symbol| symbol.id).try_for_each(|id| push(ids, id))
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn longest(&self, bytes: bool) -> Option<usize> {
        let every_byte = bytes
            && (0..=u8::MAX).all(|byte| self.tokens.ids.contains_key(byte_character(byte).encode_utf8(&mut [0; 4])));
        let fallback = self.unknown.bytes.as_ref().is_some_and(|bytes| bytes.iter().all(Option::is_some));
        let unknown = self.unknown.token.is_some() && !self.unknown.fused;
        (every_byte || fallback || unknown).then(|| self.tokens.longest())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_factory_format::tokenizer::TokenizerKind;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::path::Path;
    use tokenizers::Model as _;
    use tokenizers::models::bpe::BPE;

    const TEXTS: [&str; 13] =
        ["a", "b", "c", "ab", "bc", "abc", "aa", "aab", "cab", "<unk>", "<0xC3>", "<0xA9>", "<unk><unk>"];
    const MERGES: [(&str, &str); 7] =
        [("b", "c"), ("a", "b"), ("a", "bc"), ("a", "a"), ("a", "ab"), ("c", "ab"), ("<unk>", "<unk>")];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn merges_as_the_library_does(
            text in "[abcdeé日]{1,24}",
            ignore_merges: bool,
            fuse_unk: bool,
            byte_fallback: bool,
            unknown in prop::sample::select(vec![json!(null), json!("<unk>")]),
            in_lines: bool,
        ) {
            let vocab: serde_json::Map<String, Value> = TEXTS.iter().map(|text| text.to_string()).zip((0..).map(Value::from)).collect();
            let line = |(left, right): &(&str, &str)| if in_lines { json!(format!("{left} {right}")) } else { json!([left, right]) };
            let merges: Vec<Value> = MERGES.iter().map(line).collect();
            let model = json!({"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": unknown, "fuse_unk": fuse_unk,
                "byte_fallback": byte_fallback, "ignore_merges": ignore_merges});
            let library: BPE = serde_json::from_str(&model.to_string()).unwrap();
            let model = serde_json::from_value(model).unwrap();
            let files = TokenizerFiles::new(Path::new("tokenizer.json"), TokenizerKind::Json, model, Vec::new());
            let ours = Bpe::new(&files).unwrap();
            let mut ids = Vec::new();
            ours.encode(&text, &IdSet::default(), &mut ids).unwrap();
            let expected: Vec<u32> = library.tokenize(&text).unwrap().iter().map(|token| token.id).collect();
            prop_assert_eq!(&ids, &expected);
            if let Some(longest) = ours.longest(false) {
                prop_assert!(ids.len() * longest >= text.len());
            }
        }
    }
}
