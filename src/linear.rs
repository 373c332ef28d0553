//! Stored weight + bias -> matrix products, attached to candle as custom operations.
//!
//! Each operation is one or two parallel regions over the rows of its weights and fuses what would otherwise be a pass
//! over memory of its own: the norm in front, the sum with the residual or the gated activation behind.

use crate::error::{Error, Result};
use crate::kernels::{self, Floats, Form, Input, Int8Rule, Isa, Kernel};
use crate::memory::{self, Refusals};
use crate::threads::Pool;
use crate::weights::{WeightView, Weights};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Storage, Tensor, bail};
use model_diagnostics::error::IncompleteKind;
use model_diagnostics::header::TensorInfo;
use model_diagnostics::spec::{Activation, Int8, Int8Activations, LinearWeights, Norm, NormWeights};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What computes: the instruction sets and the threads of one model.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The instruction sets kernels may use.
    pub isa: Isa,
    /// The threads.
    pub pool: Arc<Pool>,
    /// Inputs of the last operations, kept for their memory.
    spare: Arc<Mutex<Vec<Input>>>,
}

impl Engine {
    /// Computes on `pool`.
    pub fn new(isa: Isa, pool: Arc<Pool>) -> Engine {
        Engine { isa, pool, spare: Arc::default() }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Input>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An input for rows of `width` in `form`: rather one that had such rows, so that not all of them grow to the widest, and
    /// never one of another form, which has no memory for it.
    fn take_spare(&self, width: usize, form: Form) -> Input {
        let mut spare = self.spare();
        let of_form = |input: &Input| input.form().is_read_as(form);
        let alike = spare.iter().position(|input| of_form(input) && input.inputs() == width);
        let index = alike.or_else(|| spare.iter().rposition(of_form));
        index.map(|index| spare.swap_remove(index)).unwrap_or_default()
    }
}

/// A weight `[outputs, inputs]` with its kernel and bias.
#[derive(Debug)]
pub struct Matrix {
    kernel: Kernel,
    /// How it reads activations.
    form: Form,
    weight: WeightView,
    scales: Option<Scales>,
    bias: Option<WeightView>,
    outputs: usize,
    inputs: usize,
}

/// The scales of an int8 weight.
#[derive(Debug)]
struct Scales {
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
        let (outputs, inputs) = shape(&linear.weight);
        let dtype = linear.weight.dtype;
        let kernel = Kernel::select(dtype, isa)
            .ok_or_else(|| Error::Internal(format!("the diagnosis accepted {dtype}, which has no kernel")))?;
        let int8 = linear.int8.as_ref();
        Ok(Matrix {
            kernel,
            form: int8.map(|int8| rule(weights, int8)).transpose()?.map_or(kernel.form, Form::Int8),
            weight: weights.view(&linear.weight),
            scales: int8.map(|int8| Scales::new(weights, int8, inputs)).transpose()?,
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

    /// Whether what it computes of a row depends on the rows beside it: where one scale is made for all of them.
    pub(crate) fn mixes_rows(&self) -> bool {
        matches!(self.form, Form::Int8(Int8Rule::Tensor { .. }))
    }

    /// The bytes the kernel reads.
    pub fn weight(&self) -> &WeightView {
        &self.weight
    }

    /// Widens row `index` into `out` (embedding lookup).
    pub fn widen_row(&self, index: usize, out: &mut [f32]) {
        self.kernel.dequantize_row(self.weight.rows(index..index + 1), out);
    }

    /// `y` `[tokens, rows]` = the given rows times `input`, bias included.
    fn rows(&self, isa: Isa, rows: Range<usize>, inputs: &Inputs<'_>, y: &mut [f32]) -> memory::Result<()> {
        let (weight, input) = (self.weight.rows(rows.clone()), inputs.of(self.form));
        match &self.scales {
            None => self.kernel.matmul(weight, input, y)?,
            Some(scales) if scales.a_row > 1 => {
                kernels::int8_groups(isa, weight, scales.of(&rows), scales.group, input, y)?;
            }
            Some(scales) => {
                self.kernel.matmul(weight, input, y)?;
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

impl Scales {
    fn new(weights: &Weights, int8: &Int8, inputs: usize) -> Result<Scales> {
        let whole = int8.scale.shape.iter().product::<u64>() == 1;
        let view = weights.view(&int8.scale);
        check_all(weights, &int8.scale, "a finite number", f32::is_finite)?;
        Ok(Scales { view, a_row: if whole { 0 } else { inputs / int8.group }, group: int8.group })
    }

    /// Those of `rows`, or the one of all.
    fn of(&self, rows: &Range<usize>) -> Floats<'_> {
        match self.a_row {
            0 => floats(&self.view, 0..1),
            each => floats(&self.view, rows.start * each..rows.end * each),
        }
    }
}

/// How the activations of an int8 product become integers.
pub(crate) fn rule(weights: &Weights, int8: &Int8) -> Result<Int8Rule> {
    Ok(match &int8.activations {
        Int8Activations::PerToken { symmetric } => Int8Rule::Token { symmetric: *symmetric },
        Int8Activations::PerTensor { symmetric } => Int8Rule::Tensor { symmetric: *symmetric },
        Int8Activations::Static { scale, zero_point } => {
            check_all(weights, scale, "a finite number above 0", |scale| scale.is_finite() && scale > 0.0)?;
            let mut wide = [0.0];
            kernels::add_floats(Isa::portable(), &mut wide, floats(&weights.view(scale), 0..1));
            let zero = zero_point.as_ref().and_then(|zero| weights.view(zero).bytes().first().copied());
            Int8Rule::Static { scale_bits: wide[0].to_bits(), zero: zero.unwrap_or(0) as i8 }
        }
    })
}

/// Reads a stored vector and refuses it unless all of it is `sound`.
pub(crate) fn check_all(
    weights: &Weights,
    tensor: &TensorInfo,
    expected: &'static str,
    sound: impl Fn(f32) -> bool,
) -> Result<()> {
    let view = weights.view(tensor);
    let elements = view.bytes().len() / view.dtype().block_bytes();
    let Some((index, found)) = floats(&view, 0..elements).find(|value| !sound(value)) else { return Ok(()) };
    let kind = IncompleteKind::TensorValue { name: tensor.name.clone(), index, found, expected };
    Err(model_diagnostics::Error::incomplete(weights.path(tensor.file), kind).into())
}

/// Outputs and inputs.
pub(crate) fn shape(tensor: &TensorInfo) -> (usize, usize) {
    (tensor.shape[0] as usize, tensor.shape[1] as usize)
}

/// Elements of a stored vector, whose dtype the spec has checked.
fn floats(view: &WeightView, elements: Range<usize>) -> Floats<'_> {
    let size = view.dtype().block_bytes();
    let bytes = &view.bytes()[elements.start * size..elements.end * size];
    Floats::new(view.dtype(), bytes).unwrap_or_else(|| unreachable!("a {} vector passed the diagnosis", view.dtype()))
}

/// The same activations in every form that the weights of one operation read.
struct Inputs<'a> {
    engine: &'a Engine,
    forms: Vec<Input>,
}

impl<'a> Inputs<'a> {
    /// `prepare(input, form)` brings them into a form.
    fn prepare(
        engine: &'a Engine,
        matrices: &[Matrix],
        width: usize,
        prepare: impl Fn(&mut Input, Form) -> memory::Result<()>,
    ) -> memory::Result<Inputs<'a>> {
        let mut inputs = Inputs { engine, forms: Vec::with_capacity(1) };
        for form in matrices.iter().map(|matrix| matrix.form) {
            if !inputs.forms.iter().any(|input| input.form() == form) {
                let mut input = engine.take_spare(width, form);
                prepare(&mut input, form)?;
                inputs.forms.push(input);
            }
        }
        Ok(inputs)
    }

    fn of(&self, form: Form) -> &Input {
        let found = self.forms.iter().find(|input| input.form() == form);
        found.unwrap_or(&self.forms[0]) // `prepare` has made every form its matrices ask for; the kernel checks it again
    }
}

impl Drop for Inputs<'_> {
    fn drop(&mut self) {
        self.engine.spare().append(&mut self.forms);
    }
}

/// A stored norm over rows of `width` elements.
#[derive(Debug)]
pub struct NormScale {
    weight: WeightView,
    bias: Option<WeightView>,
    eps: f32,
    width: usize,
}

impl NormScale {
    /// The norm of `weights`.
    pub fn new(weights: &Weights, norm: &NormWeights, kind: Norm) -> NormScale {
        let (Norm::Rms { eps } | Norm::Layer { eps }) = kind else { unreachable!("the decoder knows no other norm") };
        NormScale {
            weight: weights.view(&norm.weight),
            bias: norm.bias.as_ref().map(|bias| weights.view(bias)),
            eps: eps as f32,
            width: norm.weight.shape[0] as usize,
        }
    }

    /// `out` = the norm of the row `x`.
    pub fn apply(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        let weight = floats(&self.weight, 0..self.width);
        match &self.bias {
            None => kernels::rms_norm(isa, x, weight, self.eps, out),
            Some(bias) => kernels::layer_norm(isa, x, weight, floats(bias, 0..self.width), self.eps, out),
        }
    }

    /// Prepares the norm of every row of `x` for `matrices`.
    fn prepare<'a>(&self, engine: &'a Engine, x: &[f32], matrices: &[Matrix]) -> memory::Result<Inputs<'a>> {
        let tokens = x.len() / self.width;
        Inputs::prepare(engine, matrices, self.width, |input, form| {
            input.fill(&engine.pool, engine.isa, form, tokens, self.width, |token, row| {
                self.apply(engine.isa, &x[token * self.width..][..self.width], row);
            })
        })
    }
}

thread_local! {
    /// A task's outputs before they are placed: at most two tiles.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `body` on `len` floats of this thread's own, which hold unspecified numbers.
pub(crate) fn with_scratch(len: usize, body: impl FnOnce(&mut [f32]) -> memory::Result<()>) -> memory::Result<()> {
    SCRATCH.with_borrow_mut(|scratch| {
        memory::lengthen(scratch, len, 0.0, "a thread's outputs")?;
        body(&mut scratch[..len])
    })
}

/// The elements of a contiguous F32 CPU tensor.
pub(crate) fn contiguous<'s>(storage: &'s CpuStorage, layout: &Layout) -> candle_core::Result<&'s [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        _ => bail!("activations must be contiguous F32"),
    }
}

/// Runs `take` on the elements of a tensor: its own, or a copy of those that do not lie in main memory, or not one behind the
/// other.
pub(crate) fn with_floats<R>(tensor: &Tensor, take: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(data)), Some((start, end))) => Ok(take(&data[start..end])),
        _ => Ok(take(&tensor.flatten_all()?.to_vec1::<f32>()?)),
    }
}

/// The same as [`contiguous`], to be written: `len` elements.
pub(crate) fn outputs<'s>(y: &'s mut CpuStorage, layout: &Layout, len: usize) -> candle_core::Result<&'s mut [f32]> {
    match (y, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) if end - start == len => Ok(&mut data[start..end]),
        _ => bail!("outputs must be {len} contiguous F32"),
    }
}

/// The columns that tasks compute, over matrices whose outputs stand side by side: each is cut on its own.
fn bounds(engine: &Engine, tokens: usize, matrices: &[Matrix]) -> memory::Result<Vec<usize>> {
    let row_bytes = |matrix: &Matrix| matrix.kernel.row_bytes(matrix.inputs);
    let mut left: usize = matrices.iter().map(|matrix| matrix.outputs * row_bytes(matrix)).sum();
    let (mut bounds, mut start) = (vec![0], 0);
    for matrix in matrices {
        let mut row = 0;
        while row < matrix.outputs {
            let rows = matrix.kernel.rows_per_task(left, matrix.inputs, tokens, engine.pool.threads());
            let rows = rows.min(matrix.outputs - row);
            row += rows;
            left -= rows * row_bytes(matrix);
            memory::grow(&mut bounds, 1, "the tasks of a product")?;
            bounds.push(start + row);
        }
        start += matrix.outputs;
    }
    Ok(bounds)
}

/// `norm(x)` `[tokens, width]` times several weights, their outputs side by side: q, k and v, or the head.
pub struct NormLinear {
    engine: Engine,
    norm: NormScale,
    matrices: Vec<Matrix>,
}

impl NormLinear {
    /// All `matrices` read the same input.
    pub fn new(engine: Engine, norm: NormScale, matrices: Vec<Matrix>) -> NormLinear {
        NormLinear { engine, norm, matrices }
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

    /// Outputs for a row.
    pub fn outputs(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.outputs).sum()
    }
}

impl InplaceOp2 for NormLinear {
    fn name(&self) -> &'static str {
        "norm-linear"
    }

    fn cpu_fwd(&self, y: &mut CpuStorage, y_at: &Layout, x: &CpuStorage, x_at: &Layout) -> candle_core::Result<()> {
        let x = contiguous(x, x_at)?;
        let tokens = x.len() / self.norm.width;
        let inputs = self.norm.prepare(&self.engine, x, &self.matrices)?;
        let bounds = bounds(&self.engine, tokens, &self.matrices)?;
        let width = *bounds.last().unwrap_or(&0);
        let y = outputs(y, y_at, tokens * width)?;
        let refusals = Refusals::default();
        self.engine.pool.run_grid(y, width, tokens, &bounds, &|tile, out| {
            let (matrix, rows) = self.locate(&tile.columns);
            if tokens == 1 {
                return refusals.note(matrix.rows(self.engine.isa, rows, &inputs, out.row(0)));
            }
            refusals.note(with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(self.engine.isa, rows.clone(), &inputs, scratch)?;
                for (token, y) in scratch.chunks_exact(rows.len()).enumerate() {
                    out.row(token).copy_from_slice(y);
                }
                Ok(())
            }));
        });
        Ok(refusals.into_result()?)
    }
}

/// `residual += weight * x`.
pub struct LinearAdd {
    engine: Engine,
    matrices: [Matrix; 1],
}

impl LinearAdd {
    /// `matrix` reads `[tokens, inputs]` and its output is as wide as the residual.
    pub fn new(engine: Engine, matrix: Matrix) -> LinearAdd {
        LinearAdd { engine, matrices: [matrix] }
    }

    /// The weight, for inspection.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }
}

impl LinearAdd {
    /// Adds the product with `inputs`, which are in its form.
    fn add(&self, residual: &mut [f32], tokens: usize, inputs: &Inputs<'_>) -> memory::Result<()> {
        let [matrix] = &self.matrices;
        let Engine { isa, pool, .. } = &self.engine;
        let bounds = bounds(&self.engine, tokens, &self.matrices)?;
        let refusals = Refusals::default();
        pool.run_grid(residual, matrix.outputs, tokens, &bounds, &|tile, residual| {
            let rows = tile.columns.clone();
            refusals.note(with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(*isa, rows.clone(), inputs, scratch)?;
                for (token, product) in scratch.chunks_exact(rows.len()).enumerate() {
                    kernels::add(*isa, residual.row(token), product);
                }
                Ok(())
            }));
        });
        refusals.into_result()
    }
}

impl InplaceOp2 for LinearAdd {
    fn name(&self) -> &'static str {
        "linear-add"
    }

    fn cpu_fwd(&self, y: &mut CpuStorage, y_at: &Layout, x: &CpuStorage, x_at: &Layout) -> candle_core::Result<()> {
        let [matrix] = &self.matrices;
        let x = contiguous(x, x_at)?;
        let tokens = x.len() / matrix.inputs;
        let Engine { isa, pool, .. } = &self.engine;
        let inputs = Inputs::prepare(&self.engine, &self.matrices, matrix.inputs, |input, form| {
            input.convert(pool, *isa, form, x, matrix.inputs)
        })?;
        Ok(self.add(outputs(y, y_at, tokens * matrix.outputs)?, tokens, &inputs)?)
    }
}

/// `residual += down * activated`, where [`NormActivate::activate`] has made `activated` for `down`.
pub struct DownAdd<'a> {
    down: &'a LinearAdd,
    tokens: usize,
    activated: Inputs<'a>,
}

impl InplaceOp1 for DownAdd<'_> {
    fn name(&self) -> &'static str {
        "down-add"
    }

    fn cpu_fwd(&self, y: &mut CpuStorage, y_at: &Layout) -> candle_core::Result<()> {
        let residual = outputs(y, y_at, self.tokens * self.down.matrices[0].outputs)?;
        Ok(self.down.add(residual, self.tokens, &self.activated)?)
    }
}

/// `silu(gate * norm(x)) * (up * norm(x))`, or `gelu(up * norm(x))` without a gate, for the product behind it.
pub struct NormActivate {
    engine: Engine,
    norm: NormScale,
    activation: Activation,
    /// Up, and behind it gate where there is one.
    up_gate: Vec<Matrix>,
}

impl NormActivate {
    /// `gate` has the shape of `up`; `None` unless the activation and the weights agree on having one.
    pub fn new(
        engine: Engine,
        norm: NormScale,
        activation: Activation,
        up: Matrix,
        gate: Option<Matrix>,
    ) -> Option<NormActivate> {
        let gated = match activation {
            Activation::SwiGlu => true,
            Activation::GeluTanh => false,
            _ => return None,
        };
        (gated == gate.is_some()).then(|| NormActivate {
            engine,
            norm,
            activation,
            up_gate: std::iter::once(up).chain(gate).collect(),
        })
    }

    /// Up and gate, for inspection.
    pub fn matrices(&self) -> &[Matrix] {
        &self.up_gate
    }
}

impl NormActivate {
    /// The activations of the rows of `x`, in the form that `down` reads, to be multiplied with it.
    pub fn activate<'a>(&'a self, x: &Tensor, down: &'a LinearAdd) -> candle_core::Result<DownAdd<'a>> {
        let (storage, layout) = x.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { bail!("activations are on the CPU") };
        let x = contiguous(storage, layout)?;
        let tokens = x.len() / self.norm.width;
        let Engine { isa, pool, .. } = &self.engine;
        let up = &self.up_gate[0];
        let inputs = self.norm.prepare(&self.engine, x, &self.up_gate)?;
        let bounds = bounds(&self.engine, tokens, std::slice::from_ref(up))?;
        let activated = Inputs::prepare(&self.engine, &down.matrices, up.outputs, |input, form| {
            input.fill_columns(pool, *isa, form, tokens, up.outputs, &bounds, |rows, part| {
                with_scratch(self.up_gate.len() * tokens * rows.len(), |scratch| {
                    let (lifted, gated) = scratch.split_at_mut(tokens * rows.len());
                    up.rows(*isa, rows.clone(), &inputs, lifted)?;
                    if let Some(gate) = self.up_gate.get(1) {
                        gate.rows(*isa, rows.clone(), &inputs, gated)?;
                    }
                    part.put(|token, columns, out| {
                        let at = token * rows.len() + columns.start..token * rows.len() + columns.end;
                        match self.activation {
                            Activation::GeluTanh => {
                                out.copy_from_slice(&lifted[at]);
                                kernels::gelu_tanh(*isa, out);
                            }
                            _ => kernels::swiglu(*isa, &gated[at.clone()], &lifted[at], out),
                        }
                    });
                    Ok(())
                })
            })
        })?;
        Ok(DownAdd { down, tokens, activated })
    }
}
