//! The work of a pass: tokens of sequences, and the rows whose outputs are wanted.

use super::{KvCache, Logits};
use crate::input::Rows;
use std::ops::Range;

/// The next tokens of one sequence.
pub struct Segment<'a> {
    /// Ids, or soft tokens in place of some of them, at least one. Soft tokens count positions as the sequence does, and
    /// where the rows of an image attend to each other, all of it is here or in the cache.
    pub tokens: Rows<'a>,
    /// The sequence's KV cache; its length is the position of the first token.
    pub cache: &'a mut KvCache,
    /// The length of the sequence with all tokens that are known: this segment, and later segments of the same prompt.
    /// It decides on the rotation, where a model has two, and what is cached must have been computed with the
    /// same: see [`Compute::rotation`](super::Compute::rotation).
    pub reach: usize,
    /// The position from which on tokens are of the second kind, in models that tell kinds apart: the second text of a
    /// pair.
    pub second_text: Option<usize>,
    /// The positions whose logits or hidden states are wanted.
    pub rows: OutputRows,
}

impl Segment<'_> {
    /// How many rows are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.rows.wanted(&(0..self.tokens.len())).len()
    }
}

/// The positions of a segment whose logits or hidden states are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRows {
    /// None: the tokens only fill the cache.
    None,
    /// The first token's row.
    First,
    /// The last token's row.
    Last,
    /// Every token's row.
    All,
}

impl OutputRows {
    /// The wanted rows among `rows`.
    pub(super) fn wanted(self, rows: &Range<usize>) -> Range<usize> {
        match self {
            OutputRows::None => rows.end..rows.end,
            OutputRows::First => rows.start..rows.start + 1,
            OutputRows::Last => rows.end - 1..rows.end,
            OutputRows::All => rows.clone(),
        }
    }
}

/// The inputs of a pass besides ids, and its outputs.
#[derive(Clone, Copy, Debug)]
pub struct PassOptions<'a> {
    /// The input of a prediction head: the hidden state of the position before each row's token, `[rows, hidden]`, from the
    /// model or of the head itself. Empty for a model.
    pub hidden_input: &'a [f32],
    /// Whether the logits of the wanted rows are computed.
    pub logits: bool,
    /// The rows whose hidden states are given.
    pub hidden_states: HiddenOutput,
}

impl PassOptions<'static> {
    /// The logits of the wanted rows.
    pub const LOGITS: Self = PassOptions { hidden_input: &[], logits: true, hidden_states: HiddenOutput::None };
    /// The hidden states of the wanted rows.
    pub const HIDDEN_STATES: Self =
        PassOptions { hidden_input: &[], logits: false, hidden_states: HiddenOutput::Wanted };
}

/// The rows of a pass whose hidden states are given. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenOutput {
    /// No row.
    None,
    /// The rows that are wanted.
    Wanted,
    /// All rows: each of them is brought through all layers.
    All,
}

/// The results of a pass, in the order of its segments.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct PassOutput {
    /// The logits of the wanted rows; `None` where no rows are wanted, or no logits.
    pub logits: Option<Logits>,
    /// Hidden states as the output head reads them, `[rows, hidden]`: the residual stream after the last block and its
    /// norm.
    pub hidden_states: Vec<f32>,
}
