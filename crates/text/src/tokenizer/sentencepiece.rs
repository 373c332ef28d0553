//! SentencePiece-like BPE by scores: the model of GGUF vocabularies named `llama`, and of `tokenizer.model`.

use super::added::IdSet;
use super::encoder::{Model, Tokens};
use super::merge::{Symbol, merge};
use super::text::push;
use super::vocabulary::byte_token;
use crate::error::Result;
use model_factory_format::tokenizer::sentencepiece::{Piece, PieceKind};

/// Merges the adjacent pair whose text is the token of the highest score, leftmost first, until no pair is a token. Parts
/// without a token become byte tokens, or the unknown token.
pub(super) struct SentencePiece {
    pub(super) tokens: Tokens,
    /// The score of the tokens that merging can make; `None` for control, byte and unused ones.
    pub(super) scores: Vec<Option<f32>>,
    /// The token of each byte.
    pub(super) bytes: Vec<Option<u32>>,
    /// The unknown token, for a byte without a token.
    pub(super) unknown: Option<u32>,
}

/// A number with the order of `score` by [`f32::total_cmp`]: if negative, all bits except the sign are flipped.
fn order(score: f32) -> i32 {
    let bits = score.to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

impl SentencePiece {
    /// Builds the model of a `tokenizer.model`.
    ///
    /// # Errors
    /// If a byte piece has the text of something else.
    pub(super) fn new(pieces: &[Piece]) -> Result<SentencePiece, String> {
        let tokens = Tokens::new(pieces.iter().map(|piece| piece.text.clone()).collect());
        let (mut scores, mut bytes, mut unknown) = (Vec::with_capacity(pieces.len()), vec![None; 256], None);
        for (id, Piece { text, score, kind }) in (0..).zip(pieces) {
            scores.push(matches!(kind, PieceKind::Normal | PieceKind::UserDefined).then_some(*score));
            match kind {
                PieceKind::Unknown => unknown = Some(id),
                PieceKind::Byte => {
                    let byte = byte_token(text.as_bytes());
                    let byte = byte.ok_or_else(|| format!("piece {id} is {text:?}, expected a byte as <0x0A>"))?;
                    bytes[usize::from(byte)].get_or_insert(id);
                }
                _ => {}
            }
        }
        Ok(SentencePiece { tokens, scores, bytes, unknown })
    }

    /// The token of `part` that merging can make, and the order of its score.
    fn find(&self, part: &str, guarded: &IdSet) -> Option<(i32, u32)> {
        let id = *self.tokens.ids.get(part).filter(|id| !guarded.has(**id))?;
        let score = (*self.scores.get(id as usize)?)?;
        Some((order(score), id))
    }
}

impl Model for SentencePiece {
    fn encode(&self, piece: &str, guarded: &IdSet, ids: &mut Vec<u32>) -> Result<()> {
        let mut symbols: Vec<Symbol> = Vec::new();
        for (start, character) in piece.char_indices() {
            let end = start + character.len_utf8();
            push(&mut symbols, Symbol { start, end, id: self.find(&piece[start..end], guarded).map(|(_, id)| id) })?;
        }
        merge(&mut symbols, |left, right| self.find(&piece[left.start..right.end], guarded))?;
        for Symbol { start, end, id } in symbols {
            if let Some(id) = id {
                push(ids, id)?;
                continue;
            }
            for byte in piece[start..end].bytes() {
                let token = self.bytes.get(usize::from(byte)).copied().flatten();
                token.or(self.unknown).map_or(Ok(()), |id| push(ids, id))?;
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn longest(&self, _: bool) -> Option<usize> {
        let known = self.unknown.is_some() || self.bytes.iter().all(Option::is_some);
        known.then(|| self.tokens.longest())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(entries: &[(&str, f32)]) -> SentencePiece {
        SentencePiece {
            tokens: Tokens::new(entries.iter().map(|(text, _)| (*text).to_owned()).collect()),
            scores: entries.iter().map(|(_, score)| score.is_finite().then_some(*score)).collect(),
            bytes: vec![None; 256],
            unknown: Some(0),
        }
    }

    fn texts(model: &SentencePiece, text: &str) -> Vec<String> {
        let mut ids = Vec::new();
        model.encode(text, &IdSet::default(), &mut ids).unwrap();
        ids.iter().map(|id| model.tokens.texts[*id as usize].clone()).collect()
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
