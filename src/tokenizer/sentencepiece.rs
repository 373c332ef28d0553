//! SentencePiece-like BPE by scores: the model of GGUF vocabularies called `llama`.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use tokenizers::models::bpe::{BpeTrainer, Vocab};
use tokenizers::{Model, Result, Token};

/// Merges the adjacent pair whose text is the token of the highest score, leftmost first, until none is a token; what
/// is left and no token becomes byte tokens, or the unknown token.
pub(super) struct SentencePiece {
    /// Every text of the vocabulary.
    pub(super) ids: Vocab,
    /// Every text by id.
    pub(super) texts: Vec<String>,
    /// The score of the tokens that merging can make; `None` for control, byte and unused ones.
    pub(super) scores: Vec<Option<f32>>,
    /// The token of each byte.
    pub(super) bytes: Vec<Option<u32>>,
    /// What stands for a byte without a token.
    pub(super) unknown: Option<u32>,
}

/// A part of the text; merged-away ones are empty.
struct Symbol {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that would make a token of `len` bytes.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Pair {}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        // The best score first, then the leftmost.
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl SentencePiece {
    fn merge(&self, text: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, character))| Symbol {
                start,
                end: start + character.len_utf8(),
                previous: index.checked_sub(1),
                next: Some(index + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut pairs: BinaryHeap<Pair> =
            (1..symbols.len()).filter_map(|right| self.pair(text, &symbols, right - 1, right)).collect();
        while let Some(Pair { left, right, len, .. }) = pairs.pop() {
            // A pair is stale when one of its sides has grown or is gone since it was found.
            let side = |index: usize| symbols[index].end - symbols[index].start;
            if side(left) == 0 || side(right) == 0 || side(left) + side(right) != len {
                continue;
            }
            let (end, next) = (symbols[right].end, symbols[right].next);
            symbols[left].end = end;
            symbols[left].next = next;
            symbols[right].start = end;
            if let Some(next) = next {
                symbols[next].previous = Some(left);
                pairs.extend(self.pair(text, &symbols, left, next));
            }
            if let Some(previous) = symbols[left].previous {
                pairs.extend(self.pair(text, &symbols, previous, left));
            }
        }
        symbols.retain(|symbol| symbol.start < symbol.end);
        symbols
    }

    fn pair(&self, text: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
        let joined = &text[symbols[left].start..symbols[right].end];
        let id = *self.ids.get(joined)?;
        let score = (*self.scores.get(id as usize)?)?;
        Some(Pair { score, left, right, len: joined.len() })
    }
}

impl Model for SentencePiece {
    type Trainer = BpeTrainer;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        for Symbol { start, end, .. } in self.merge(text) {
            let part = &text[start..end];
            let whole = self.ids.get(part).filter(|id| self.scores.get(**id as usize).is_some_and(Option::is_some));
            if let Some(id) = whole {
                tokens.push(Token::new(*id, part.to_owned(), (start, end)));
                continue;
            }
            for (offset, byte) in part.bytes().enumerate() {
                let token = self.bytes.get(usize::from(byte)).copied().flatten();
                if let Some(id) = token.or(self.unknown) {
                    tokens.push(Token::new(id, String::new(), (start + offset, start + offset + 1)));
                }
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(tokens)
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
        Err("a vocabulary read from a GGUF file is not written".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(entries: &[(&str, f32)]) -> SentencePiece {
        let texts: Vec<String> = entries.iter().map(|(text, _)| (*text).to_owned()).collect();
        SentencePiece {
            ids: texts.iter().cloned().zip(0..).collect(),
            texts,
            scores: entries.iter().map(|(_, score)| score.is_finite().then_some(*score)).collect(),
            bytes: vec![None; 256],
            unknown: Some(0),
        }
    }

    fn texts(model: &SentencePiece, text: &str) -> Vec<String> {
        model.tokenize(text).unwrap().iter().map(|token| model.texts[token.id as usize].clone()).collect()
    }

    #[test]
    fn the_best_score_merges_first_and_ties_go_left() {
        let entries = [("?", f32::NAN), ("a", 0.0), ("b", 0.0), ("c", 0.0), ("ab", -2.0), ("bc", -1.0), ("aa", -3.0)];
        let model = model(&entries);
        assert_eq!(texts(&model, "abc"), ["a", "bc"]);
        assert_eq!(texts(&model, "aab"), ["a", "ab"]);
        assert_eq!(texts(&model, "aaaaa"), ["aa", "aa", "a"]);
    }

    #[test]
    fn equal_scores_merge_the_leftmost_pair() {
        let model = model(&[("?", f32::NAN), ("x", 0.0), ("y", 0.0), ("z", 0.0), ("yz", -1.0), ("xy", -1.0)]);
        assert_eq!(texts(&model, "xyz"), ["xy", "z"]);
    }

    #[test]
    fn a_token_that_merging_cannot_make_is_not_matched() {
        let model = model(&[("?", f32::NAN), ("a", 0.0), ("b", 0.0), ("ab", f32::NAN)]);
        assert_eq!(texts(&model, "ab"), ["a", "b"]);
    }

    #[test]
    fn characters_without_a_token_become_bytes_or_unknown() {
        let mut model = model(&[("?", f32::NAN), ("a", 0.0), ("<0xC3>", f32::NAN), ("<0xA9>", f32::NAN)]);
        assert_eq!(texts(&model, "aé"), ["a", "?"]);
        model.bytes[0xc3] = Some(2);
        model.bytes[0xa9] = Some(3);
        assert_eq!(texts(&model, "aé"), ["a", "<0xC3>", "<0xA9>"]);
    }
}
