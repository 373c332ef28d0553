//! The hidden states of a sequence that its prediction head has not read yet.

use crate::memory;
use model_factory_spec::plan::PREFILL_CHUNK;

/// Hidden states of the last positions that were computed of a sequence, a chunk of a prompt at most.
#[derive(Debug, Default)]
pub struct HiddenRows {
    /// The position after the last of them.
    end: usize,
    /// `[positions, width]`.
    states: Vec<f32>,
    width: usize,
}

impl HiddenRows {
    /// No rows, of a model that is `width` wide.
    pub fn new(width: usize) -> HiddenRows {
        HiddenRows { end: 0, states: Vec::new(), width }
    }

    /// The range of their positions.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.end - self.states.len() / self.width..self.end
    }

    /// The hidden states of positions in [`range`](Self::range).
    pub fn of(&self, positions: std::ops::Range<usize>) -> &[f32] {
        let first = self.range().start;
        &self.states[(positions.start - first) * self.width..(positions.end - first) * self.width]
    }

    /// Puts `rows`, those of the positions before `end`, after the present ones if these end where `rows` begin,
    /// else in their place. There may be none: then nothing is known of these positions.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn put(&mut self, end: usize, rows: &[f32]) -> memory::Result<()> {
        let most = PREFILL_CHUNK * self.width;
        if rows.is_empty() || end - rows.len() / self.width != self.end {
            self.states.clear();
        }
        // Room for as much as the plan counts, and no more.
        if self.states.capacity() < most {
            let held = self.states.len();
            memory::grow(&mut self.states, most - held, "hidden states")?;
        }
        let rows = &rows[rows.len().saturating_sub(most)..];
        // At least half of them are dropped, as otherwise every token of a sequence in a batch would move the rest.
        if self.states.len() + rows.len() > most {
            let excess = (self.states.len() + rows.len() - most).max(PREFILL_CHUNK / 2 * self.width);
            self.states.drain(..excess.min(self.states.len()));
        }
        self.states.extend_from_slice(rows);
        self.end = end;
        Ok(())
    }

    /// Forgets the states of the positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        let Some(beyond) = self.end.checked_sub(len) else { return };
        self.states.truncate(self.states.len().saturating_sub(beyond * self.width));
        self.end = len;
    }

    /// Forgets all states: they were read.
    pub fn clear(&mut self) {
        self.states.clear();
    }
}
