//! Codes of 4 bits whose floats are scaled in runs: what must hold of the tensors next to them, and the product.

use super::matrix::Matrix;
use crate::decoder::{check_scales, check_values, floats};
use crate::error::{Error, Result};
use crate::kernels::{BlockScales, Floats, Input, Kernel, RunScales};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_spec::spec;
use std::ops::Range;

/// What is stored next to the scales.
#[derive(Clone, Debug)]
pub(super) struct RunParts {
    size: usize,
    before: usize,
    /// The factors of nested scales, their table and what is added.
    nested: Option<(WeightView, WeightView, f32)>,
}

impl RunParts {
    /// The parts of a matrix of `kernel`.
    ///
    /// # Errors
    /// `Files` for scales that are not finite, codes that stand for other floats, and a description of another matrix.
    pub(super) fn new(weights: &Weights, runs: &spec::Runs, kernel: &Kernel) -> Result<RunParts> {
        let mut values = [0.0; 16];
        kernel.dequantize_row(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef], &mut values);
        // Writers may have divided in another precision.
        let near = |index: usize, value: f32| (value - values[index]).abs() <= 1e-6;
        check_values(weights, &runs.table, "the float that this code stands for", near)?;
        let offset = runs.offset(kernel.dtype, weights.view(&runs.state).bytes()).map_err(|[found, expected]| {
            let file = weights.path(runs.state.file);
            Error::from(model_factory_format::Error::contradiction(file, found, expected))
        })?;
        let nested = match &runs.nested {
            None => {
                check_scales(weights, &runs.scale)?;
                None
            }
            Some(spec::NestedScales { factors, table }) => {
                check_scales(weights, factors)?;
                check_scales(weights, table)?;
                Some((weights.view(factors), weights.view(table), offset))
            }
        };
        Ok(RunParts { size: runs.size, before: runs.before, nested })
    }

    /// `y` `[tokens, rows]` = the given rows times `input`. `scales` are those of all runs.
    pub(super) fn multiply(
        &self,
        matrix: &Matrix,
        scales: &WeightView,
        rows: Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let scales = match &self.nested {
            None => RunScales::Floats(all(scales)),
            Some((factors, table, offset)) => {
                let (factors, table) = (all(factors), all(table));
                RunScales::Nested { bytes: scales.bytes(), table, factors, offset: *offset }
            }
        };
        let before = self.before + rows.start * matrix.inputs;
        let scales = BlockScales::Runs { size: self.size, before, scales };
        matrix.kernel().matmul_scaled(matrix.weight().rows(rows), scales, input, y)
    }
}

fn all(view: &WeightView) -> Floats<'_> {
    floats(view, 0..view.bytes().len() / size_of::<f32>())
}
