//! Stored weight + bias -> matrix products, attached to candle as custom operations.
//!
//! Each operation is one or two parallel regions over the rows of its weights and fuses what would otherwise be a pass
//! over memory of its own: the norm in front, the sum with the residual or the gated activation behind.

use crate::kernels::{self, Floats, Form, Input, Isa, Kernel};
use crate::threads::Pool;
use crate::weights::{WeightView, Weights};
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, bail};
use model_diagnostics::header::TensorInfo;
use model_diagnostics::spec::{LinearWeights, Norm, NormWeights};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// What computes: the instruction sets and the threads of one model.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The instruction sets kernels may use.
    pub isa: Isa,
    /// The threads.
    pub pool: Arc<Pool>,
}

/// Rows of one weight that a task computes at a time: enough to amortise the handover, few enough to share evenly.
const ROWS: usize = 64;

/// A weight `[outputs, inputs]` with its kernel and bias.
#[derive(Debug)]
pub struct Matrix {
    kernel: Kernel,
    weight: WeightView,
    bias: Option<WeightView>,
    outputs: usize,
    inputs: usize,
}

impl Matrix {
    /// Chooses the kernel for the stored dtype. `None` when there is none: the diagnosis has refused such a model.
    pub fn new(weights: &Weights, linear: &LinearWeights, isa: Isa) -> Option<Matrix> {
        let (outputs, inputs) = shape(&linear.weight);
        Some(Matrix {
            kernel: Kernel::select(linear.weight.dtype, isa)?,
            weight: weights.view(&linear.weight),
            bias: linear.bias.as_ref().map(|bias| weights.view(bias)),
            outputs,
            inputs,
        })
    }

    /// The bytes the kernel reads.
    pub fn weight(&self) -> &WeightView {
        &self.weight
    }

    /// Widens row `index` into `out` (embedding lookup).
    pub fn widen_row(&self, index: usize, out: &mut [f32]) {
        self.kernel.widen(self.weight.rows(index..index + 1), out);
    }

    /// `y` `[tokens, rows]` = the given rows times `input`, bias included.
    fn rows(&self, rows: Range<usize>, inputs: &Inputs, y: &mut [f32]) {
        self.kernel.matmul(self.weight.rows(rows.clone()), inputs.of(self.kernel.form), y);
        if let Some(bias) = &self.bias {
            let bias = floats(bias, rows.clone());
            y.chunks_exact_mut(rows.len()).for_each(|y| kernels::add_floats(y, bias));
        }
    }
}

fn shape(tensor: &TensorInfo) -> (usize, usize) {
    (tensor.shape[0] as usize, tensor.shape[1] as usize)
}

/// Elements of a stored vector.
fn floats(view: &WeightView, elements: Range<usize>) -> Floats<'_> {
    let size = view.dtype().block_bytes();
    Floats { dtype: view.dtype(), bytes: &view.bytes()[elements.start * size..elements.end * size] }
}

/// The same activations in every form that the weights of one operation read.
struct Inputs(Vec<Input>);

impl Inputs {
    fn prepare<'m>(engine: &Engine, x: &[f32], matrices: impl Iterator<Item = &'m Matrix>) -> Inputs {
        let mut inputs: Vec<Input> = Vec::with_capacity(1);
        for matrix in matrices {
            if !inputs.iter().any(|input| input.form() == matrix.kernel.form) {
                inputs.push(Input::prepare_on(&engine.pool, engine.isa, matrix.kernel.form, x, matrix.inputs));
            }
        }
        Inputs(inputs)
    }

    fn of(&self, form: Form) -> &Input {
        let found = self.0.iter().find(|input| input.form() == form);
        found.unwrap_or(&self.0[0]) // `prepare` has made every form its matrices ask for; the kernel checks it again
    }
}

/// A stored norm over rows of `width` elements.
#[derive(Debug)]
pub struct NormScale {
    weight: WeightView,
    eps: f32,
    width: usize,
}

impl NormScale {
    /// The norm of `weights`.
    pub fn new(weights: &Weights, norm: &NormWeights, kind: Norm) -> NormScale {
        let Norm::Rms { eps } = kind else { unreachable!("the family tables know no other norm") };
        NormScale { weight: weights.view(&norm.weight), eps: eps as f32, width: norm.weight.shape[0] as usize }
    }

    fn apply(&self, engine: &Engine, x: &[f32]) -> Vec<f32> {
        let mut normed = vec![0f32; x.len()];
        let scale = floats(&self.weight, 0..self.width);
        engine.pool.run_grid(&mut normed, self.width, 16, &[0, self.width], &|tile, out| {
            for row in tile.rows.clone() {
                let x = &x[row * self.width..][..self.width];
                kernels::rms_norm(engine.isa, x, scale, self.eps, out.row(row));
            }
        });
        normed
    }
}

thread_local! {
    /// A task's outputs before they are placed: at most `tokens * ROWS` elements twice.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        body(&mut scratch[..len])
    })
}

/// The elements of a contiguous F32 CPU tensor.
pub(crate) fn contiguous<'s>(storage: &'s CpuStorage, layout: &Layout) -> Result<&'s [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        _ => bail!("activations must be contiguous F32"),
    }
}

/// The bounds of row chunks over several matrices one after the other: every matrix is cut into [`ROWS`] on its own.
fn bounds(matrices: &[Matrix]) -> Vec<usize> {
    let mut bounds = vec![0];
    for matrix in matrices {
        let start = *bounds.last().unwrap_or(&0);
        let end = start + matrix.outputs;
        bounds.extend((start + ROWS..end).step_by(ROWS));
        bounds.push(end);
    }
    bounds
}

/// `norm(x)` `[tokens, width]` times several weights, their outputs side by side: q, k and v, or the head.
pub struct NormLinear {
    engine: Engine,
    norm: NormScale,
    matrices: Vec<Matrix>,
    bounds: Vec<usize>,
}

impl NormLinear {
    /// All `matrices` read the same input.
    pub fn new(engine: Engine, norm: NormScale, matrices: Vec<Matrix>) -> NormLinear {
        let bounds = bounds(&matrices);
        NormLinear { engine, norm, matrices, bounds }
    }

    /// The matrix and its rows that output columns `columns` are.
    fn locate(&self, columns: &Range<usize>) -> (&Matrix, Range<usize>) {
        let mut start = 0;
        for matrix in &self.matrices {
            if columns.end <= start + matrix.outputs {
                return (matrix, columns.start - start..columns.end - start);
            }
            start += matrix.outputs;
        }
        unreachable!("the bounds come from the same matrices")
    }

    /// The weights, for inspection.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }
}

impl CustomOp1 for NormLinear {
    fn name(&self) -> &'static str {
        "norm-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let tokens = x.len() / self.norm.width;
        let normed = self.norm.apply(&self.engine, x);
        let inputs = Inputs::prepare(&self.engine, &normed, self.matrices.iter());
        let width = *self.bounds.last().unwrap_or(&0);
        let mut y = vec![0f32; tokens * width];
        self.engine.pool.run_grid(&mut y, width, tokens, &self.bounds, &|tile, out| {
            let (matrix, rows) = self.locate(&tile.columns);
            if tokens == 1 {
                return matrix.rows(rows, &inputs, out.row(0));
            }
            with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(rows.clone(), &inputs, scratch);
                for (token, y) in scratch.chunks_exact(rows.len()).enumerate() {
                    out.row(token).copy_from_slice(y);
                }
            });
        });
        Ok((CpuStorage::F32(y), Shape::from((tokens, width))))
    }
}

/// `residual + weight * x`.
pub struct LinearAdd {
    engine: Engine,
    matrices: [Matrix; 1],
    bounds: Vec<usize>,
}

impl LinearAdd {
    /// `matrix` reads `[tokens, inputs]` and its output is as wide as the residual.
    pub fn new(engine: Engine, matrix: Matrix) -> LinearAdd {
        let matrices = [matrix];
        let bounds = bounds(&matrices);
        LinearAdd { engine, matrices, bounds }
    }

    /// The weight, for inspection.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }
}

impl CustomOp2 for LinearAdd {
    fn name(&self) -> &'static str {
        "linear-add"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_layout: &Layout, r: &CpuStorage, r_layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let [matrix] = &self.matrices;
        let x = contiguous(x, x_layout)?;
        let residual = contiguous(r, r_layout)?;
        let tokens = x.len() / matrix.inputs;
        if residual.len() != tokens * matrix.outputs {
            bail!("the residual has {} elements, expected {}", residual.len(), tokens * matrix.outputs);
        }
        let inputs = Inputs::prepare(&self.engine, x, self.matrices.iter());
        let mut y = vec![0f32; residual.len()];
        self.engine.pool.run_grid(&mut y, matrix.outputs, tokens, &self.bounds, &|tile, out| {
            let rows = tile.columns.clone();
            with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(rows.clone(), &inputs, scratch);
                for (token, product) in scratch.chunks_exact(rows.len()).enumerate() {
                    let residual = &residual[token * matrix.outputs..][rows.clone()];
                    for ((y, residual), product) in out.row(token).iter_mut().zip(residual).zip(product) {
                        *y = residual + product;
                    }
                }
            });
        });
        Ok((CpuStorage::F32(y), Shape::from((tokens, matrix.outputs))))
    }
}

/// `silu(gate * norm(x)) * (up * norm(x))`.
pub struct NormGated {
    engine: Engine,
    norm: NormScale,
    gate_up: [Matrix; 2],
    bounds: Vec<usize>,
}

impl NormGated {
    /// `gate` and `up` have the same shape.
    pub fn new(engine: Engine, norm: NormScale, gate: Matrix, up: Matrix) -> NormGated {
        let bounds = bounds(std::slice::from_ref(&gate));
        NormGated { engine, norm, gate_up: [gate, up], bounds }
    }

    /// Gate and up, for inspection.
    pub fn matrices(&self) -> &[Matrix] {
        &self.gate_up
    }
}

impl CustomOp1 for NormGated {
    fn name(&self) -> &'static str {
        "norm-gated"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let tokens = x.len() / self.norm.width;
        let [gate, up] = &self.gate_up;
        let normed = self.norm.apply(&self.engine, x);
        let inputs = Inputs::prepare(&self.engine, &normed, self.gate_up.iter());
        let mut y = vec![0f32; tokens * gate.outputs];
        self.engine.pool.run_grid(&mut y, gate.outputs, tokens, &self.bounds, &|tile, out| {
            let rows = tile.columns.clone();
            with_scratch(2 * tokens * rows.len(), |scratch| {
                let (gated, lifted) = scratch.split_at_mut(tokens * rows.len());
                gate.rows(rows.clone(), &inputs, gated);
                up.rows(rows.clone(), &inputs, lifted);
                let pairs = gated.chunks_exact(rows.len()).zip(lifted.chunks_exact(rows.len()));
                for (token, (gate, up)) in pairs.enumerate() {
                    kernels::swiglu(self.engine.isa, gate, up, out.row(token));
                }
            });
        });
        Ok((CpuStorage::F32(y), Shape::from((tokens, gate.outputs))))
    }
}
