//! Byte-level BPE by merges: the model of GGUF vocabularies called `gpt2`, and of `vocab.json` and `merges.txt`.
//!
//! The library's own BPE merges alike, but is built from a text for each merge and each half of it: ten times slower
//! for the vocabulary of Llama 3.

use super::merge::{Symbol, merge};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokenizers::models::bpe::{BpeTrainer, MergeMap, Vocab};
use tokenizers::{Model, Result, Token};

/// Merges the adjacent pair of the lowest rank, leftmost first, until none is listed. A character that is no token is
/// dropped, as in the library.
pub(super) struct ByteLevelBpe {
    /// Every text of the vocabulary, in GPT-2's byte alphabet.
    pub(super) ids: Vocab,
    /// Every text by id.
    pub(super) texts: Vec<String>,
    /// Rank and result of each pair of ids.
    pub(super) merges: MergeMap,
    /// Whether a text that is a token is taken whole.
    pub(super) ignore_merges: bool,
}

/// The merges by the ids of their halves: rank, and the id of both together. Ids instead of texts keep a vocabulary of
/// 128,000 tokens and 280,000 merges below a tenth of a second.
pub(super) fn merge_map<'m>(
    merges: impl Iterator<Item = std::result::Result<(&'m str, &'m str), String>>,
    ids: &Vocab,
) -> std::result::Result<MergeMap, String> {
    let mut pairs = MergeMap::with_capacity(merges.size_hint().0);
    let mut joined = String::new();
    for (rank, merge) in (0..).zip(merges) {
        let (left, right) = merge.map_err(|found| format!("merge {rank} is {found}"))?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        match (ids.get(left), ids.get(right), ids.get(joined.as_str())) {
            // Of two equal merges the later counts, as in the tokenizers library.
            (Some(left), Some(right), Some(id)) => drop(pairs.insert((*left, *right), (rank, *id))),
            _ => {
                let found = format!("{left} {right}");
                return Err(format!("merge {rank} is {found:?}, expected tokens that make a token"));
            }
        }
    }
    Ok(pairs)
}

impl Model for ByteLevelBpe {
    type Trainer = BpeTrainer;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        let token = |id: u32, start: usize, end: usize| Token::new(id, String::new(), (start, end));
        if self.ignore_merges
            && let Some(id) = self.ids.get(text)
        {
            return Ok(vec![token(*id, 0, text.len())]);
        }
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .filter_map(|(start, character)| {
                let end = start + character.len_utf8();
                let id = *self.ids.get(&text[start..end])?;
                Some(Symbol { start, end, id: Some(id) })
            })
            .collect();
        merge(&mut symbols, |left, right| {
            let (rank, id) = self.merges.get(&(left.id?, right.id?))?;
            Some((Reverse(*rank), *id))
        });
        Ok(symbols.into_iter().filter_map(|symbol| Some(token(symbol.id?, symbol.start, symbol.end))).collect())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.texts.get(id as usize).cloned()
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.ids.iter().map(|(text, id)| (text.clone(), *id)).collect()
    }

    fn get_vocab_size(&self) -> usize {
        self.texts.len()
    }

    fn save(&self, _: &Path, _: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("a vocabulary is read, never written".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::models::bpe::BPE;

    const TEXTS: [&str; 9] = ["a", "b", "c", "ab", "bc", "abc", "aa", "aab", "cab"];
    const MERGES: [(&str, &str); 6] = [("b", "c"), ("a", "b"), ("a", "bc"), ("a", "a"), ("a", "ab"), ("c", "ab")];

    fn ids() -> Vocab {
        TEXTS.iter().map(|text| (*text).to_owned()).zip(0..).collect()
    }

    fn ours(ignore_merges: bool) -> ByteLevelBpe {
        let ids = ids();
        let merges = (0..)
            .zip(MERGES)
            .map(|(rank, (left, right))| ((ids[left], ids[right]), (rank, ids[&[left, right].concat()])))
            .collect();
        ByteLevelBpe { ids, texts: TEXTS.map(str::to_owned).to_vec(), merges, ignore_merges }
    }

    fn library(ignore_merges: bool) -> BPE {
        let merges = MERGES.map(|(left, right)| (left.to_owned(), right.to_owned())).to_vec();
        BPE::builder().vocab_and_merges(ids(), merges).ignore_merges(ignore_merges).build().unwrap()
    }

    proptest! {
        #[test]
        fn merges_as_the_library_does(text in "[abcd]{0,24}", ignore_merges: bool) {
            let ids = |tokens: Vec<Token>| tokens.into_iter().map(|token| token.id).collect::<Vec<u32>>();
            let (ours, library) = (ours(ignore_merges), library(ignore_merges));
            prop_assert_eq!(ids(ours.tokenize(&text).unwrap()), ids(library.tokenize(&text).unwrap()));
        }
    }
}
