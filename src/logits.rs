//! Rows of logits: what models compute and samplers read.

use std::ops::{Deref, Range};
use std::slice::ChunksExact;
use std::sync::Arc;

/// Rows of logits, F32 `[rows, columns]`: a row for each token over the vocabulary, or for each text over the labels. It reads as
/// a slice of all rows, one after the other, and clones share the numbers.
///
/// With the feature `candle` it converts to a `Tensor` without a copy, and from one.
#[derive(Clone, Debug)]
pub struct Logits {
    numbers: Arc<Vec<f32>>,
    range: Range<usize>,
    columns: usize,
}

impl Logits {
    /// Rows of `columns` numbers each; a remainder at the end is not a row.
    pub(crate) fn new(numbers: Vec<f32>, columns: usize) -> Logits {
        Logits { range: 0..numbers.len(), numbers: Arc::new(numbers), columns }
    }

    /// The row at `index`, without a copy; `None` after the last one.
    pub(crate) fn row(&self, index: usize) -> Option<Logits> {
        let start = self.range.start + index * self.columns;
        let range = start..start + self.columns;
        (range.end <= self.range.end).then(|| Logits { numbers: Arc::clone(&self.numbers), range, ..*self })
    }

    /// The rows, in their order.
    pub fn rows(&self) -> ChunksExact<'_, f32> {
        self.chunks_exact(self.columns.max(1))
    }

    /// The length of a row: the number of entries of the vocabulary, or of labels.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All numbers, row after row. They are copied only if they are a part of other rows or another clone exists.
    pub fn into_vec(self) -> Vec<f32> {
        if self.range != (0..self.numbers.len()) {
            return self.to_vec();
        }
        Arc::try_unwrap(self.numbers).unwrap_or_else(|shared| shared.to_vec())
    }
}

/// All rows, one after the other.
impl Deref for Logits {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.range.clone()]
    }
}

impl AsRef<[f32]> for Logits {
    fn as_ref(&self) -> &[f32] {
        self
    }
}

/// The numbers become one row.
impl From<Vec<f32>> for Logits {
    fn from(row: Vec<f32>) -> Logits {
        let columns = row.len();
        Logits::new(row, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::Logits;

    #[test]
    fn rows_share_the_numbers() {
        let logits = Logits::new(vec![1.0, 2.0, 3.0, 4.0], 2);
        let place = logits.as_ptr();
        let second = logits.row(1).unwrap();
        assert_eq!((&*second, second.columns(), second.rows().len()), (&[3.0, 4.0][..], 2, 1));
        assert_eq!(second.as_ptr(), place.wrapping_add(2));
        assert!(logits.row(2).is_none());
        assert_eq!(logits.rows().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(second.into_vec(), [3.0, 4.0]);
        let numbers = logits.into_vec();
        assert_eq!(numbers.as_ptr(), place);
        assert_eq!(Logits::from(Vec::new()).rows().len(), 0);
    }
}
