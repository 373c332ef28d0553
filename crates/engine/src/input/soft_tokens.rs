//! The vectors of an image.

use super::Mark;
use std::fmt;

/// Vectors in place of the embeddings of ids: what a vision tower makes of an image, one for each of its soft tokens.
#[derive(Clone, PartialEq)]
pub struct SoftTokens {
    /// `[rows, width]`.
    values: Vec<f32>,
    width: usize,
    digest: [u8; 32],
    grid: Option<[usize; 3]>,
    /// `[rows, width]` each.
    deepstack: Vec<Vec<f32>>,
}

/// Why soft tokens cannot be made, or a model does not take them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum SoftTokensError {
    /// The values are no rows of the width.
    #[error("{values} values are no rows of {width} elements; give `[soft tokens, hidden size]`, at least one row")]
    Shape { values: usize, width: usize },
    /// A value is NaN or infinite.
    #[error("element {column} of soft token {row} is {value}, expected a finite number: what made it overflowed")]
    NotFinite { row: usize, column: usize, value: f32 },
    /// The grid has not as many places as there are rows.
    #[error("a grid of {grid:?} (time, height, width) has not the {rows} places of the soft tokens")]
    Grid { grid: [usize; 3], rows: usize },
    /// What is added after a layer has other rows.
    #[error(
        "the vectors to add after layer {layer} are {found} values, expected {expected}, as many as of the soft tokens"
    )]
    Deepstack { layer: usize, found: usize, expected: usize },
    /// The model has fewer layers than vectors are added after.
    #[error("vectors are to be added after {found} layers, and the model has {layers}")]
    Layers { found: usize, layers: usize },
    /// The vectors have another width than the model.
    #[error(
        "soft tokens have {found} elements, and the hidden size of the model is {expected}; take the tower that belongs to it"
    )]
    Width { found: usize, expected: usize },
    /// The family has no images.
    #[error("the family {family} takes no images: only ids are embedded")]
    NotTaken { family: &'static str },
    /// The device has no kernels for it.
    #[error("GPUs take no images yet: load the model on the processor")]
    Device,
    /// An image whose rows attend to each other is longer than a step.
    #[error("an image of {found} soft tokens is more than the {most} that the family's largest has")]
    TooMany { found: usize, most: usize },
    /// Only a part of an image is given.
    #[error("only some of the {rows} soft tokens of an image are given; give all of them at once")]
    Cut { rows: usize },
    /// A text with images is to be scored.
    #[error("a text with images is not scored; score its words without them")]
    NotScored,
    /// A step of a program's own computes ids only.
    #[error("this step of a generation computes ids only; implement `Step::forward_rows` for images")]
    IdsOnly,
    /// The positions of the family have three dimensions, and the image does not say its own.
    #[error("positions of this family have three dimensions: give the grid of the image (`SoftTokens::with_grid`)")]
    NoGrid,
}

impl SoftTokens {
    /// The soft tokens of an image: `values` `[rows, width]`, where `width` is the hidden size of the text model.
    /// `digest` stands for the image in shared prefixes and saved sessions: a hash of all that the values are made of,
    /// such as pixels, options and the tower's weights. Those with equal digests are taken for equal.
    ///
    /// # Errors
    /// `Shape`, `NotFinite`.
    pub fn new(values: Vec<f32>, width: usize, digest: [u8; 32]) -> Result<SoftTokens, SoftTokensError> {
        if values.is_empty() || width == 0 || !values.len().is_multiple_of(width) {
            return Err(SoftTokensError::Shape { values: values.len(), width });
        }
        finite(&values, width)?;
        Ok(SoftTokens { values, width, digest, grid: None, deepstack: Vec::new() })
    }

    /// With its extent in time, height and width, row after row: the positions of families that rotate by all three.
    ///
    /// # Errors
    /// `Grid` unless that is as many places as rows.
    pub fn with_grid(self, grid: [usize; 3]) -> Result<SoftTokens, SoftTokensError> {
        let places = grid.iter().try_fold(1usize, |places, extent| places.checked_mul(*extent));
        match places == Some(self.rows()) {
            true => Ok(SoftTokens { grid: Some(grid), ..self }),
            false => Err(SoftTokensError::Grid { grid, rows: self.rows() }),
        }
    }

    /// With vectors that are added to the rows after each of the first layers, `[rows, width]` each (Qwen3-VL).
    ///
    /// # Errors
    /// `Deepstack` for other lengths, `NotFinite`.
    pub fn with_deepstack(self, deepstack: Vec<Vec<f32>>) -> Result<SoftTokens, SoftTokensError> {
        for (layer, values) in deepstack.iter().enumerate() {
            let (found, expected) = (values.len(), self.values.len());
            if found != expected {
                return Err(SoftTokensError::Deepstack { layer, found, expected });
            }
            finite(values, self.width)?;
        }
        Ok(SoftTokens { deepstack, ..self })
    }

    /// The number of soft tokens.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// Elements of each.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All elements, `[rows, width]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// What stands for the content.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The extent in time, height and width.
    pub fn grid(&self) -> Option<[usize; 3]> {
        self.grid
    }

    /// The vectors that are added after each of the first layers.
    pub fn deepstack(&self) -> &[Vec<f32>] {
        &self.deepstack
    }

    /// How many positions it takes of families that rotate by three dimensions: as many as its longer side.
    pub(super) fn extent(&self) -> usize {
        self.grid.map_or(self.rows(), |[_, height, width]| height.max(width))
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { digest: self.digest, rows: self.rows(), grid: self.grid }
    }
}

fn finite(values: &[f32], width: usize) -> Result<(), SoftTokensError> {
    let wrong = values.iter().enumerate().find(|(_, value)| !value.is_finite());
    wrong.map_or(Ok(()), |(index, value)| {
        Err(SoftTokensError::NotFinite { row: index / width, column: index % width, value: *value })
    })
}

impl fmt::Debug for SoftTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("SoftTokens");
        all.field("rows", &self.rows()).field("width", &self.width).field("grid", &self.grid);
        all.field("deepstack", &self.deepstack.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_refused() {
        let new = |values: Vec<f32>, width| SoftTokens::new(values, width, [0; 32]);
        assert_eq!(new(vec![], 2).unwrap_err(), SoftTokensError::Shape { values: 0, width: 2 });
        assert_eq!(new(vec![1.0; 3], 2).unwrap_err(), SoftTokensError::Shape { values: 3, width: 2 });
        assert_eq!(new(vec![1.0; 3], 0).unwrap_err(), SoftTokensError::Shape { values: 3, width: 0 });
        let infinite = new(vec![1.0, 1.0, 1.0, f32::INFINITY], 2).unwrap_err();
        assert_eq!(infinite, SoftTokensError::NotFinite { row: 1, column: 1, value: f32::INFINITY });
        assert!(matches!(new(vec![f32::NAN; 2], 2), Err(SoftTokensError::NotFinite { row: 0, column: 0, .. })));
        let four = || new(vec![1.0; 8], 2).unwrap();
        assert_eq!(four().with_grid([1, 2, 2]).unwrap().extent(), 2);
        assert_eq!(four().with_grid([1, 1, 4]).unwrap().extent(), 4);
        for grid in [[1, 2, 3], [0, 2, 2], [usize::MAX, 2, 2]] {
            assert_eq!(four().with_grid(grid).unwrap_err(), SoftTokensError::Grid { grid, rows: 4 });
        }
        let wrong = SoftTokensError::Deepstack { layer: 1, found: 6, expected: 8 };
        assert_eq!(four().with_deepstack(vec![vec![0.0; 8], vec![0.0; 6]]).unwrap_err(), wrong);
        assert!(four().with_deepstack(vec![vec![f32::NAN; 8]]).is_err());
    }
}
