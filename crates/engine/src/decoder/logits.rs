//! The logits of the wanted rows of a pass.

/// The wanted logits of a pass, F32 `[rows, vocab]`, in the order of its segments.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    values: Vec<f32>,
    vocab: usize,
}

impl Logits {
    pub(super) fn new(values: Vec<f32>, vocab: usize) -> Logits {
        Logits { values, vocab }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.values.len() / self.vocab
    }

    /// Entries of the vocabulary: the elements of a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Row `index`, `[vocab]`. Panics past the last.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.vocab..][..self.vocab]
    }

    /// All of them, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All of them, row after row, without a copy.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}
