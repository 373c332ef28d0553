//! What a pass computes: tokens of sequences, and which of them it gives something of.

use super::Cache;
use std::ops::Range;

/// Which sequences are computed in one pass over the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// All: each row has the bits that it has alone.
    Any,
    /// Those of a batch that a caller made: a row's sums depend on how many are computed.
    Explicit,
    /// None: a row's values depend on those beside it.
    Never,
}

/// The next tokens of one sequence.
pub struct Segment<'a> {
    /// Ids, at least one.
    pub tokens: &'a [u32],
    /// What the sequence has cached; its length is the position of the first token.
    pub cache: &'a mut dyn Cache,
    /// The length of the sequence when all that is known of it is in: this segment, and those of the same prompt that
    /// follow. It decides on the rotation, where a model has two, and what is cached must have been computed with the
    /// same: see [`Decoder::rotation`](super::Decoder::rotation).
    pub reach: usize,
    /// The position from which on tokens are of the second kind, in models that tell kinds apart: the second text of a pair.
    pub second_text: Option<usize>,
    /// Which positions' logits, or hidden states, are wanted.
    pub logits: OutputRows,
}

impl Segment<'_> {
    /// Rows whose logits are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.logits.wanted(&(0..self.tokens.len())).len()
    }
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRows {
    /// None: the tokens only fill the cache.
    None,
    /// The first token's.
    First,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

impl OutputRows {
    /// Those of `rows` whose logits are wanted.
    pub(super) fn wanted(self, rows: &Range<usize>) -> Range<usize> {
        match self {
            OutputRows::None => rows.end..rows.end,
            OutputRows::First => rows.start..rows.start + 1,
            OutputRows::Last => rows.end - 1..rows.end,
            OutputRows::All => rows.clone(),
        }
    }
}
