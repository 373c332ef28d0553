//! A stored weight matrix with its kernel, scales and bias.

use super::columns::ColumnParts;
use super::runs::RunParts;
use super::{CpuDevice, Operands};
use crate::decoder::{
    check_factor, check_rows_in_order, check_scales, check_scales_of_blocks, floats, int8_rule, shape,
};
use crate::error::{Error, Result};
use crate::kernels::{self, BlockScales, Floats, Form, Isa, Kernel, ZeroPoints};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_dtypes::DType;
use model_factory_spec::plan::ActivationDtype;
use model_factory_spec::spec::{Affine, Factor, FloatScales, Groups, IntegerRows, LinearWeights, Scaling};
use std::ops::Range;

/// Outputs of a tile of columns.
const COLUMNS: usize = 128;

/// A weight `[outputs, inputs]` with its kernel and bias.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Its place among the matrices of the model, by which adapters know it.
    pub(super) place: usize,
    kernel: Kernel,
    /// How it reads activations.
    pub(super) form: Form,
    weight: WeightView,
    /// Whether it is stored `[inputs, outputs]`.
    transposed: bool,
    scales: Option<Scales>,
    /// What products are multiplied or, if that is said, divided by.
    factor: Option<(WeightView, bool)>,
    /// Factors of products by the end of their outputs.
    multipliers: Vec<(usize, f32)>,
    bias: Option<WeightView>,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The scales of a matrix, one for each block of it.
#[derive(Clone, Debug)]
struct Scales {
    view: WeightView,
    /// Outputs and inputs that share one.
    block: [usize; 2],
    /// Outputs of the first blocks that are not the matrix's.
    before: usize,
    kind: ScaleKind,
}

#[derive(Clone, Debug)]
enum ScaleKind {
    /// A byte for each block of a row.
    Bytes,
    /// Floats for packed integers, with the zero points of these.
    Groups(Option<WeightView>),
    /// Floats for packed integers, with the biases of these.
    Affine(WeightView),
    /// Floats for floats of 8 bits.
    Rectangles,
    /// Floats for products of integers.
    Int8,
    /// Floats for packed integers by columns.
    Columns(ColumnParts),
    /// Floats for codes of 4 bits.
    Runs(RunParts),
    /// Floats for integers, 127 of which stand for them.
    IntegerRows,
}

impl Scales {
    /// Those of `rows` of `inputs` elements, which are floats.
    fn floats(&self, rows: Range<usize>, inputs: usize) -> Floats<'_> {
        let [height, width] = self.block;
        let across = inputs.div_ceil(width);
        floats(
            &self.view,
            (self.before + rows.start) / height * across..(self.before + rows.end).div_ceil(height) * across,
        )
    }

    /// Those of `rows` of `inputs` elements, where kernels multiply blocks by them.
    fn of_rows(&self, rows: Range<usize>, inputs: usize) -> BlockScales<'_> {
        let [height, group] = self.block;
        let scales = || self.floats(rows.clone(), inputs);
        match &self.kind {
            ScaleKind::Bytes if self.view.dtype() == DType::F8_E8M0 => BlockScales::Powers(self.view.rows(rows)),
            ScaleKind::Bytes => BlockScales::Halves(self.view.rows(rows)),
            ScaleKind::Affine(biases) => {
                let across = inputs / group;
                let biases = floats(biases, rows.start * across..rows.end * across);
                BlockScales::Affine { group, scales: scales(), biases }
            }
            ScaleKind::Rectangles => {
                let before = (self.before + rows.start) % height;
                BlockScales::Rectangles { sides: self.block, before, scales: scales() }
            }
            ScaleKind::Groups(_)
            | ScaleKind::Int8
            | ScaleKind::Columns(_)
            | ScaleKind::Runs(_)
            | ScaleKind::IntegerRows => BlockScales::Floats { group, scales: scales() },
        }
    }
}

impl Matrix {
    /// Chooses the kernel for the stored dtype.
    ///
    /// # Errors
    /// `Files` when a scale of an int8 weight is one that no sound model has; `Internal` when the dtype has no kernel,
    /// which the diagnosis rules out.
    pub fn new(weights: &Weights, linear: &LinearWeights, isa: Isa, activations: ActivationDtype) -> Result<Matrix> {
        let LinearWeights { transposed, scaling, .. } = linear;
        let stored = shape(&linear.weight);
        let (outputs, inputs) = if *transposed { (stored.1, stored.0) } else { stored };
        let dtype = linear.weight.dtype;
        let kernel = Kernel::select(dtype, isa)
            .ok_or_else(|| Error::Internal(format!("the diagnosis accepted {dtype}, which has no kernel")))?;
        let mut rule = None;
        let load = |scaling: &Scaling| -> Result<Scales> {
            let (scale, block, before, kind) = match scaling {
                Scaling::Blocks(scale) => {
                    check_scales_of_blocks(weights, scale)?;
                    (scale, [1, 1], 0, ScaleKind::Bytes)
                }
                Scaling::Groups(Groups { scale, size, zero_point }) => {
                    check_scales(weights, scale)?;
                    let zero_points = zero_point.as_ref().map(|zero_point| weights.view(zero_point));
                    (scale, [1, *size], 0, ScaleKind::Groups(zero_points))
                }
                Scaling::Affine(Affine { scale, bias, size }) => {
                    check_scales(weights, scale)?;
                    check_scales(weights, bias)?;
                    (scale, [1, *size], 0, ScaleKind::Affine(weights.view(bias)))
                }
                Scaling::Floats(FloatScales { scale, block, before }) => {
                    check_scales(weights, scale)?;
                    (scale, *block, *before, ScaleKind::Rectangles)
                }
                Scaling::Columns(columns) => {
                    let parts = ColumnParts::new(weights, columns, outputs, 8 * kernel.row_bytes(inputs) / inputs)?;
                    (&columns.scale, [1, columns.size], 0, ScaleKind::Columns(parts))
                }
                Scaling::Runs(runs) => {
                    (&runs.scale, [1, inputs], 0, ScaleKind::Runs(RunParts::new(weights, runs, &kernel)?))
                }
                Scaling::IntegerRows(IntegerRows { scale, format }) => {
                    check_scales(weights, scale)?;
                    if let Some(format) = format {
                        check_rows_in_order(weights, format)?;
                    }
                    (scale, [1, inputs], 0, ScaleKind::IntegerRows)
                }
                Scaling::Int8(int8) => {
                    let (of_rows, a_row) = int8_rule(weights, int8, inputs)?;
                    rule = Some(of_rows);
                    (&int8.scale, [if a_row == 0 { outputs } else { 1 }, int8.group], 0, ScaleKind::Int8)
                }
            };
            Ok(Scales { view: weights.view(scale), block, before, kind })
        };
        let scales = scaling.as_ref().map(load).transpose()?;
        let factor = |Factor { tensor, divides }: &Factor| -> Result<_> {
            check_factor(weights, tensor)?;
            Ok((weights.view(tensor), *divides))
        };
        let columns = match &scales {
            Some(Scales { kind: ScaleKind::Columns(parts), .. }) => Some(parts.is_shuffled()),
            _ => None,
        };
        let form = match kernel.form {
            _ if *transposed || columns == Some(true) => Form::F32,
            Form::Q16 if columns.is_none() && dtype != DType::F4 && activations == ActivationDtype::Int8 => Form::Q8,
            form => form,
        };
        Ok(Matrix {
            place: 0,
            kernel,
            form: rule.map_or(form, Form::Int8),
            weight: match scaling {
                Some(Scaling::Columns(columns)) => weights.view(&columns.whole(&linear.weight, outputs)),
                _ => weights.view(&linear.weight),
            },
            transposed: *transposed,
            scales,
            factor: linear.factor.as_ref().map(factor).transpose()?,
            multipliers: linear.multipliers.clone(),
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

    /// Outputs of which the tasks of one token have a multiple.
    pub(super) fn tile(&self) -> usize {
        if matches!(&self.scales, Some(Scales { kind: ScaleKind::Columns(_), .. })) { COLUMNS } else { 8 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.outputs * self.row_bytes()
    }

    /// Rows for one of `threads` where `left` bytes are still to be divided.
    pub(super) fn rows_per_task(&self, left: usize, tokens: usize, threads: usize) -> usize {
        if let Some(Scales { block: [_, group], kind: ScaleKind::Columns(_), .. }) = &self.scales {
            let sizes = [self.outputs, self.inputs, self.inputs / group];
            return self.kernel.columns_per_task(left, sizes, tokens, threads);
        }
        self.kernel.rows_per_task(left, self.inputs, tokens, threads)
    }

    /// The bytes the kernel reads.
    pub fn weight(&self) -> &WeightView {
        &self.weight
    }

    /// Dequantizes the stored row `index` into `out`, as long as it.
    pub(super) fn dequantize_row(&self, index: usize, out: &mut [f32]) {
        let row = self.weight.rows(index..index + 1);
        match &self.scales {
            Some(scales) => self.kernel.dequantize_scaled_row(row, scales.of_rows(index..index + 1, out.len()), out),
            None => self.kernel.dequantize_row(row, out),
        }
    }

    /// The product with a matrix that is stored by inputs; what are no floats are widened for it.
    fn multiply_transposed(
        &self,
        isa: Isa,
        outputs: Range<usize>,
        input: &kernels::Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let (dtype, width) = (self.weight.dtype(), self.outputs);
        if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            kernels::multiply_transposed(isa, (dtype, self.weight.bytes(), width), outputs, input, y);
            return Ok(());
        }
        let mut widened = memory::zeros(self.inputs * width, "a matrix that is stored by inputs")?;
        for (index, row) in widened.chunks_exact_mut(width).enumerate() {
            self.dequantize_row(index, row);
        }
        kernels::multiply_transposed(isa, (DType::F32, bytemuck::cast_slice(&widened), width), outputs, input, y);
        Ok(())
    }

    /// Multiplies `y` `[tokens, rows]`, products with the given rows, by their multipliers.
    fn multiply_by_keys(&self, rows: &Range<usize>, y: &mut [f32]) {
        let mut start = 0;
        for &(end, factor) in &self.multipliers {
            let of = start.max(rows.start)..end.min(rows.end);
            for y in y.chunks_exact_mut(rows.len()).filter(|_| !of.is_empty()) {
                y[of.start - rows.start..of.end - rows.start].iter_mut().for_each(|y| *y *= factor);
            }
            start = end;
        }
    }

    /// `y` `[tokens, rows]` = the given rows times `operands`, with the bias and what adapters add.
    pub(super) fn rows(&self, isa: Isa, rows: Range<usize>, operands: &Operands, y: &mut [f32]) -> memory::Result<()> {
        let (input, weight) = (operands.of(self.form), || self.weight.rows(rows.clone()));
        match &self.scales {
            _ if self.transposed => self.multiply_transposed(isa, rows.clone(), input, y)?,
            None => self.kernel.matmul(weight(), input, y)?,
            Some(scales @ Scales { block: [_, width], kind, .. }) => match kind {
                ScaleKind::Bytes | ScaleKind::Affine(_) | ScaleKind::Rectangles | ScaleKind::Groups(None) => {
                    self.kernel.matmul_scaled(weight(), scales.of_rows(rows.clone(), self.inputs), input, y)?;
                }
                ScaleKind::Groups(Some(stored)) => {
                    let zeros = match stored.dtype() {
                        DType::I8 => ZeroPoints::Bytes(stored.bytes()),
                        _ => ZeroPoints::Words(stored.bytes()),
                    };
                    let (kernel, scales) = (&self.kernel, (scales.floats(rows.clone(), self.inputs), zeros));
                    kernels::multiply_with_zero_points(kernel, isa, weight(), scales, rows.clone(), *width, input, y)?;
                }
                ScaleKind::IntegerRows => {
                    self.kernel.matmul_scaled(weight(), scales.of_rows(rows.clone(), self.inputs), input, y)?;
                    y.iter_mut().for_each(|y| *y /= 127.0);
                }
                ScaleKind::Runs(parts) => parts.multiply(self, &scales.view, rows.clone(), input, y)?,
                ScaleKind::Columns(parts) => parts.multiply(self, isa, rows.clone(), input, y)?,
                ScaleKind::Int8 if *width < self.inputs => {
                    let scales = scales.floats(rows.clone(), self.inputs);
                    kernels::int8_groups(isa, weight(), scales, *width, input, y)?;
                }
                ScaleKind::Int8 => {
                    let scales = scales.floats(rows.clone(), self.inputs);
                    self.kernel.matmul_row_scaled(isa, weight(), scales, input, y)?;
                }
            },
        }
        if let Some((factors, divides)) = &self.factor {
            let part = rows.start * factors.bytes().len() / factors.dtype().block_bytes() / self.outputs;
            let factor = floats(factors, part..part + 1).get(0);
            let factor = if *divides { 1.0 / factor } else { factor };
            y.iter_mut().for_each(|y| *y *= factor);
        }
        self.multiply_by_keys(&rows, y);
        if let Some(bias) = &self.bias {
            let bias = floats(bias, rows.clone());
            y.chunks_exact_mut(rows.len()).for_each(|y| kernels::add_floats(isa, y, bias));
        }
        let mut adapted = operands.adapted.iter().filter(|adapted| adapted.adds_to(self.place, &rows));
        adapted.try_for_each(|adapted| {
            adapted.add(isa, rows.clone(), y, |products| self.multiply_by_keys(&rows, products))
        })
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
