//! A stored weight matrix with its kernel, scales and bias.

use super::{CpuDevice, Operands};
use crate::decoder::{check_scales, floats, int8_rule, shape};
use crate::error::{Error, Result};
use crate::kernels::{self, BlockScales, Floats, Form, Isa, Kernel, ZeroPoints};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_dtypes::DType;
use model_factory_spec::spec::{FloatScales, Groups, LinearWeights, Scaling};
use std::ops::Range;

/// A weight `[outputs, inputs]` with its kernel and bias.
#[derive(Clone, Debug)]
pub struct Matrix {
    kernel: Kernel,
    /// How it reads activations.
    pub(super) form: Form,
    weight: WeightView,
    /// Whether it is stored `[inputs, outputs]`.
    transposed: bool,
    scales: Option<Scales>,
    bias: Option<WeightView>,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

#[derive(Clone, Debug)]
enum Scales {
    Int8(Int8Scales),
    /// A byte for each block of a row.
    Blocks(WeightView),
    Groups(GroupScales),
    Floats(BlockedScales),
}

/// The scales of floats of 8 bits.
#[derive(Clone, Debug)]
struct BlockedScales {
    view: WeightView,
    /// Outputs and inputs that share one.
    block: [usize; 2],
    /// Outputs of the first blocks that are not the matrix's.
    before: usize,
}

/// The scales of packed integers.
#[derive(Clone, Debug)]
struct GroupScales {
    view: WeightView,
    /// Inputs that share one.
    size: usize,
    zero_points: Option<WeightView>,
}

#[derive(Clone, Debug)]
struct Int8Scales {
    view: WeightView,
    /// Those of a row; 0 where all rows share one.
    a_row: usize,
    /// Inputs that share one.
    group: usize,
}

impl Matrix {
    /// Chooses the kernel for the stored dtype.
    ///
    /// # Errors
    /// `Files` when a scale of an int8 weight is one that no sound model has; `Internal` when the dtype has no kernel,
    /// which the diagnosis rules out.
    pub fn new(weights: &Weights, linear: &LinearWeights, isa: Isa) -> Result<Matrix> {
        let LinearWeights { transposed, scaling, .. } = linear;
        let stored = shape(&linear.weight);
        let (outputs, inputs) = if *transposed { (stored.1, stored.0) } else { stored };
        let dtype = linear.weight.dtype;
        let kernel = Kernel::select(dtype, isa)
            .ok_or_else(|| Error::Internal(format!("the diagnosis accepted {dtype}, which has no kernel")))?;
        let mut rule = None;
        let scales = match scaling {
            None => None,
            Some(Scaling::Blocks(scales)) => Some(Scales::Blocks(weights.view(scales))),
            Some(Scaling::Groups(Groups { scale, size, zero_point })) => {
                check_scales(weights, scale)?;
                let zero_points = zero_point.as_ref().map(|zero_point| weights.view(zero_point));
                Some(Scales::Groups(GroupScales { view: weights.view(scale), size: *size, zero_points }))
            }
            Some(Scaling::Floats(FloatScales { scale, block, before })) => {
                check_scales(weights, scale)?;
                Some(Scales::Floats(BlockedScales { view: weights.view(scale), block: *block, before: *before }))
            }
            Some(Scaling::Int8(int8)) => {
                let (of_rows, a_row) = int8_rule(weights, int8, inputs)?;
                rule = Some(of_rows);
                Some(Scales::Int8(Int8Scales { view: weights.view(&int8.scale), a_row, group: int8.group }))
            }
        };
        let form = if *transposed { Form::F32 } else { kernel.form };
        Ok(Matrix {
            kernel,
            form: rule.map_or(form, Form::Int8),
            weight: weights.view(&linear.weight),
            transposed: *transposed,
            scales,
            bias: linear.bias.as_ref().map(|bias| weights.view(bias)),
            outputs,
            inputs,
        })
    }

    /// The kernel of its dtype.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Multiplications and additions for one token.
    pub fn operations(&self) -> usize {
        2 * self.outputs * self.inputs
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.kernel.row_bytes(self.inputs)
    }

    pub(super) fn bytes(&self) -> usize {
        self.outputs * self.row_bytes()
    }

    /// Rows for one of `threads` where `left` bytes are still to be divided.
    pub(super) fn rows_per_task(&self, left: usize, tokens: usize, threads: usize) -> usize {
        self.kernel.rows_per_task(left, self.inputs, tokens, threads)
    }

    /// The bytes the kernel reads.
    pub fn weight(&self) -> &WeightView {
        &self.weight
    }

    /// Dequantizes row `index` into `out` (embedding lookup).
    pub(super) fn dequantize_row(&self, index: usize, out: &mut [f32]) {
        self.kernel.dequantize_row(self.weight.rows(index..index + 1), out);
    }

    /// `y` `[tokens, rows]` = the given rows times `operands`, bias included.
    pub(super) fn rows(&self, isa: Isa, rows: Range<usize>, operands: &Operands, y: &mut [f32]) -> memory::Result<()> {
        let (input, weight) = (operands.of(self.form), || self.weight.rows(rows.clone()));
        match &self.scales {
            None if self.transposed => {
                let stored = (self.weight.dtype(), self.weight.bytes(), self.outputs);
                kernels::multiply_transposed(isa, stored, rows.clone(), input, y);
            }
            None => self.kernel.matmul(weight(), input, y)?,
            Some(Scales::Blocks(scales)) => {
                let scales = BlockScales::Powers(scales.rows(rows.clone()));
                self.kernel.matmul_scaled(weight(), scales, input, y)?;
            }
            Some(Scales::Groups(GroupScales { view, size, zero_points })) => {
                let groups = self.inputs / size;
                let scales = floats(view, rows.start * groups..rows.end * groups);
                self.kernel.matmul_scaled(weight(), BlockScales::Floats { group: *size, scales }, input, y)?;
                if let Some(stored) = zero_points {
                    let zero_points = match stored.dtype() {
                        DType::I8 => ZeroPoints::Bytes(stored.bytes()),
                        _ => ZeroPoints::Words { words: stored.bytes(), of: self.kernel.dtype },
                    };
                    kernels::subtract_zero_points(isa, zero_points, scales, rows.clone(), *size, input, y)?;
                }
            }
            Some(Scales::Floats(BlockedScales { view, block, before })) => {
                let [first, end] = [rows.start, rows.end].map(|row| before + row);
                let across = self.inputs.div_ceil(block[1]);
                let scales = floats(view, first / block[0] * across..end.div_ceil(block[0]) * across);
                let scales = BlockScales::Rectangles { sides: *block, before: first % block[0], scales };
                self.kernel.matmul_scaled(weight(), scales, input, y)?;
            }
            Some(Scales::Int8(scales)) if scales.a_row > 1 => {
                kernels::int8_groups(isa, weight(), scales.of(&rows), scales.group, input, y)?;
            }
            Some(Scales::Int8(scales)) => {
                self.kernel.matmul(weight(), input, y)?;
                let scales = scales.of(&rows);
                y.chunks_exact_mut(rows.len()).for_each(|y| kernels::scale_floats(isa, y, scales));
            }
        }
        if let Some(bias) = &self.bias {
            let bias = floats(bias, rows.clone());
            y.chunks_exact_mut(rows.len()).for_each(|y| kernels::add_floats(isa, y, bias));
        }
        Ok(())
    }
}

impl Int8Scales {
    /// Those of `rows`, or the one of all.
    fn of(&self, rows: &Range<usize>) -> Floats<'_> {
        match self.a_row {
            0 => floats(&self.view, 0..1),
            each => floats(&self.view, rows.start * each..rows.end * each),
        }
    }
}

impl CpuDevice {
    /// The columns that tasks compute, over matrices whose outputs stand side by side: each is divided on its own.
    pub(super) fn column_bounds(&self, tokens: usize, matrices: &[&Matrix]) -> memory::Result<Vec<usize>> {
        let mut left: usize = matrices.iter().map(|matrix| matrix.bytes()).sum();
        let (mut bounds, mut start) = (vec![0], 0);
        for matrix in matrices {
            let mut row = 0;
            while row < matrix.outputs {
                let rows = matrix.rows_per_task(left, tokens, self.pool.threads()).min(matrix.outputs - row);
                row += rows;
                left -= rows * matrix.row_bytes();
                memory::grow(&mut bounds, 1, "the tasks of a product")?;
                bounds.push(start + row);
            }
            start += matrix.outputs;
        }
        Ok(bounds)
    }
}

/// The matrix and its rows that output columns `columns` are.
pub(super) fn locate<'a>(matrices: &[&'a Matrix], columns: &Range<usize>) -> (&'a Matrix, Range<usize>) {
    let mut start = 0;
    for matrix in matrices {
        if columns.end <= start + matrix.outputs {
            return (matrix, columns.start - start..columns.end - start);
        }
        start += matrix.outputs;
    }
    unreachable!("the bounds come from the same matrices")
}
