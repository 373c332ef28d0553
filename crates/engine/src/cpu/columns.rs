//! Integers that are stored by columns: what must hold of the tensors next to their words, and the product.

use super::matrix::Matrix;
use crate::decoder::check_all;
use crate::error::Result;
use crate::kernels::{self, Columns, Isa, field};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_dtypes::PackedDim;
use model_factory_format::error::IncompleteKind;
use model_factory_format::header::TensorInfo;
use model_factory_spec::spec;
use std::ops::Range;

/// What is stored next to the words.
#[derive(Clone, Debug)]
pub(super) struct ColumnParts {
    packed: PackedDim,
    group: usize,
    scales: WeightView,
    zero_points: WeightView,
    zero_offset: Option<u32>,
    /// The group of each input, where that is not the one of its place.
    g_idx: Option<WeightView>,
    /// Stored outputs before those of the matrix, and in all.
    before: usize,
    total: usize,
}

impl ColumnParts {
    /// The parts of a matrix `[outputs, inputs]` of integers of `bits`.
    ///
    /// # Errors
    /// `Files` for scales that are not finite, zero points that are read in several ways, groups that have no scale, and a bias that is
    /// not zero.
    pub(super) fn new(weights: &Weights, columns: &spec::Columns, outputs: usize, bits: usize) -> Result<ColumnParts> {
        let spec::Columns { packed, size, zero_offset, before, total, .. } = *columns;
        let scale = columns.whole(&columns.scale, outputs);
        check_all(weights, &scale, "a finite number", f32::is_finite)?;
        let zero_point = columns.whole(&columns.zero_point, outputs);
        check_zeros(weights, &zero_point, zero_offset, bits)?;
        let mut g_idx = None;
        if let Some(stored) = &columns.g_idx {
            let (view, groups) = (weights.view(stored), columns.scale.shape[0]);
            refuse(
                weights,
                stored,
                words_of(&view),
                |(_, group)| u64::from(group) < groups,
                "one of the groups of scales",
            )?;
            let in_order = words_of(&view).enumerate().all(|(i, group)| group as usize == i / size);
            g_idx = (!in_order).then_some(view);
        }
        if let Some(bias) = &columns.zero_bias {
            check_all(weights, bias, "0: the family has no bias here", |value| value == 0.0)?;
        }
        let (scales, zero_points) = (weights.view(&scale), weights.view(&zero_point));
        Ok(ColumnParts { packed, group: size, scales, zero_points, zero_offset, g_idx, before, total })
    }

    /// Whether inputs are of groups out of order, which are multiplied as floats.
    pub(super) fn is_shuffled(&self) -> bool {
        self.g_idx.is_some()
    }

    /// `y` `[tokens, rows]` = the given rows times `input`.
    pub(super) fn multiply(
        &self,
        matrix: &Matrix,
        isa: Isa,
        rows: Range<usize>,
        input: &kernels::Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let ColumnParts { packed, group, total: width, .. } = *self;
        let zero_points = self.zero_offset.map(|offset| (self.zero_points.bytes(), offset));
        let scales = crate::decoder::floats(&self.scales, 0..matrix.inputs / group * width);
        let columns = Columns { words: matrix.weight().bytes(), packed, width, group, scales, zero_points };
        let outputs = self.before + rows.start..self.before + rows.end;
        if let Some(g_idx) = &self.g_idx {
            let bits = 8 * matrix.row_bytes() / matrix.inputs;
            return kernels::multiply_shuffled(isa, bits, &columns, g_idx.bytes(), outputs, input, y);
        }
        kernels::multiply_columns(&matrix.kernel(), isa, &columns, outputs, input, y)
    }
}

fn words_of(view: &WeightView) -> impl Iterator<Item = u32> {
    view.bytes().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// Refuses zero points that are not the middle of the integers, or one below, where all of them are said to be; and where they are
/// stored less one the largest, which readers take for the number above it or for 0.
fn check_zeros(weights: &Weights, zero_point: &TensorInfo, zero_offset: Option<u32>, bits: usize) -> Result<()> {
    let (most, middle) = ((1 << bits) - 1, 1 << (bits - 1));
    let view = weights.view(zero_point);
    let fields = (0..view.bytes().len() * 8 / bits).map(|i| field(view.bytes(), bits, i));
    match zero_offset {
        None => {
            let sound = |(_, field)| field == middle || field + 1 == middle;
            refuse(weights, zero_point, fields, sound, "the middle of the integers, or one below: sym is true")
        }
        Some(1) => {
            let expected =
                "below the largest integer, which is read as two numbers where zero points are stored less one";
            refuse(weights, zero_point, fields, |(_, field)| field != most, expected)
        }
        Some(_) => Ok(()),
    }
}

/// Refuses the first of the numbers of a tensor that is not `sound`.
fn refuse(
    weights: &Weights,
    tensor: &TensorInfo,
    numbers: impl Iterator<Item = u32>,
    sound: impl Fn((usize, u32)) -> bool,
    expected: &'static str,
) -> Result<()> {
    let Some((index, found)) = numbers.enumerate().find(|number| !sound(*number)) else { return Ok(()) };
    let kind = IncompleteKind::TensorValue { name: tensor.name.clone(), index, found: found as f32, expected };
    Err(model_factory_format::Error::incomplete(weights.path(tensor.file), kind).into())
}
