//! The hidden states of a sequence that its prediction head did not read yet.

use crate::memory;
use model_diagnostics::plan::PREFILL_CHUNK;

/// Hidden states of the last positions that were computed of a sequence, a chunk of a prompt at most.
#[derive(Debug, Default)]
pub(crate) struct HiddenRows {
    /// The position behind them.
    end: usize,
    /// `[positions, width]`.
    states: Vec<f32>,
    width: usize,
}

impl HiddenRows {
    /// None, of a model that is `width` wide.
    pub(crate) fn new(width: usize) -> HiddenRows {
        HiddenRows { end: 0, states: Vec::new(), width }
    }

    /// The first position, and the one behind the last.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.end - self.states.len() / self.width..self.end
    }

    /// Those of positions in [`range`](Self::range).
    pub(crate) fn of(&self, positions: std::ops::Range<usize>) -> &[f32] {
        let first = self.range().start;
        &self.states[(positions.start - first) * self.width..(positions.end - first) * self.width]
    }

    /// Puts those of the positions before `end` behind the ones that are there, where these reach up to them, else in their place.
    /// `rows` may have none: then nothing is known of them.
    ///
    /// # Errors
    /// When memory runs out.
    pub(crate) fn put<'r>(&mut self, end: usize, rows: impl ExactSizeIterator<Item = &'r [f32]>) -> memory::Result<()> {
        let start = end - rows.len();
        if rows.len() == 0 || start != self.end {
            self.states.clear();
        }
        let kept = PREFILL_CHUNK.saturating_sub(rows.len()) * self.width;
        let excess = self.states.len().saturating_sub(kept);
        self.states.drain(..excess);
        let skipped = rows.len().saturating_sub(PREFILL_CHUNK);
        memory::grow(&mut self.states, (rows.len() - skipped) * self.width, "hidden states")?;
        rows.skip(skipped).for_each(|row| self.states.extend_from_slice(row));
        self.end = end;
        Ok(())
    }

    /// Forgets those of the positions from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let Some(beyond) = self.end.checked_sub(len) else { return };
        self.states.truncate(self.states.len().saturating_sub(beyond * self.width));
        self.end = len;
    }

    /// Forgets all: they were read.
    pub(crate) fn clear(&mut self) {
        self.states.clear();
    }
}
