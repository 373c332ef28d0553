//! Matrices on the GPU, and the launches that multiply by them.

use super::arguments::{self, MOST_MATRICES, MatrixArguments, Prepare, Product};
use super::buffer::{Function, LaunchShape};
use super::driver::Gpu;
use super::modules::{self, Kind, Module};
use super::weights::DeviceWeights;
use crate::error::Result;
use model_factory_dtypes::DType;
use model_factory_engine::decoder::{int8_rule, shape};
use model_factory_engine::error::Error;
use model_factory_engine::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_kernels::Int8Rule;
use model_factory_spec::spec::{LinearWeights, Norm, NormWeights, Scaling};
use std::sync::Arc;

/// The most tokens that the kernels for few are used for: they read a weight once for so many.
pub(super) const FEW_TOKENS: usize = 8;

/// Rows and threads of a block of the kernels for few: `WARPS * ROWS`, `32 * WARPS` of `common.cuh`.
const FEW_ROWS: usize = 8;
const FEW_THREADS: usize = 128;

/// Rows and tokens of a block of each of the kernels for many, and its threads: `tile.cuh`.
const TILES: [usize; 2] = [64, 128];
const TILE_THREADS: usize = 128;

/// How products read activations: `FORM_*` of `steps.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandForm {
    F32,
    Bf16,
    F16,
    Q8,
    Int8(Int8Rule),
}

impl OperandForm {
    fn code(self) -> i32 {
        match self {
            OperandForm::F32 => 0,
            OperandForm::Bf16 => 1,
            OperandForm::F16 => 2,
            OperandForm::Q8 => 3,
            OperandForm::Int8(_) => 4,
        }
    }

    /// The code of `FORM_EXTENT`.
    const EXTENT: i32 = 5;

    /// Bytes of a row of `inputs`, and of its steps.
    pub(super) fn row_bytes(self, inputs: usize) -> (usize, usize) {
        match self {
            OperandForm::F32 => (4 * inputs, 0),
            OperandForm::Bf16 => (2 * inputs, 0),
            OperandForm::F16 => (2 * inputs, 4),
            OperandForm::Q8 => (inputs, inputs / 32 * 8),
            OperandForm::Int8(_) => (inputs, 8),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixKernels {
    kind: Kind,
    /// The kernels for up to 1, 2, 4 and 8 tokens.
    few: [Function; 4],
    /// The kernels for more tokens, if the GPU has tensor cores for the dtype: by [`TILES`], all with the same bits.
    many: Option<[Function; 2]>,
    embed: Option<Function>,
}

impl MatrixKernels {
    pub(super) fn load(gpu: &Gpu, dtype: DType) -> Result<MatrixKernels, Error> {
        let kind = modules::kind(dtype)
            .ok_or_else(|| Error::Internal(format!("the diagnosis accepted {dtype}, which has no kernel for GPUs")))?;
        let function = |name| gpu.function(Module::Matrix(dtype), name);
        Ok(MatrixKernels {
            kind,
            few: [function("few_1")?, function("few_2")?, function("few_4")?, function("few_8")?],
            many: if tensor_cores(gpu, dtype) { Some([function("many_64")?, function("many_128")?]) } else { None },
            embed: (kind != Kind::Int8).then(|| function("embed")).transpose()?,
        })
    }

    /// The kernel that widens rows.
    pub(super) fn embed(&self) -> Result<Function, Error> {
        self.embed.ok_or_else(|| Error::Internal("an embedding of integers without scales".into()))
    }
}

/// Whether the kernels for many tokens have tensor cores for `dtype`: the instructions of `device.cuh`.
pub(super) fn tensor_cores(gpu: &Gpu, dtype: DType) -> bool {
    match dtype {
        DType::F32 => false,
        DType::BF16 => gpu.capability >= (8, 0),
        _ => gpu.capability >= (7, 5),
    }
}

/// The index in [`TILES`]: the larger one, which reads less for each product, if there are more tokens than the smaller
/// has, and at least as many tiles, `blocks`, as three quarters of the GPU's `processors`.
fn tile(blocks: usize, tokens: usize, processors: usize) -> usize {
    usize::from(tokens > TILES[0] && 4 * blocks >= 3 * processors)
}

/// A stored vector of floats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vector {
    pub(super) address: u64,
    pub(super) code: i32,
}

impl Vector {
    pub(super) fn new(device: &DeviceWeights, tensor: &TensorInfo) -> Result<Vector, Error> {
        let code = arguments::code(tensor.dtype)
            .ok_or_else(|| Error::Internal(format!("the diagnosis accepted a vector of {}", tensor.dtype)))?;
        Ok(Vector { address: device.address(tensor)?, code })
    }

    fn of(device: &DeviceWeights, tensor: Option<&TensorInfo>) -> Result<Vector, Error> {
        tensor.map_or(Ok(Vector::default()), |tensor| Vector::new(device, tensor))
    }
}

/// A matrix `[outputs, inputs]` on the GPU.
#[derive(Clone, Debug)]
pub struct DeviceMatrix {
    pub(super) kernels: MatrixKernels,
    pub(super) dtype: DType,
    pub(super) rule: Option<Int8Rule>,
    pub(super) part: MatrixArguments,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) row_bytes: usize,
}

impl DeviceMatrix {
    pub(super) fn new(
        gpu: &Gpu,
        device: &DeviceWeights,
        weights: &Weights,
        linear: &LinearWeights,
    ) -> Result<Self, Error> {
        let dtype = linear.weight.dtype;
        let kernels = MatrixKernels::load(gpu, dtype)?;
        let (outputs, inputs) = shape(&linear.weight);
        let bias = Vector::of(device, linear.bias.as_ref())?;
        let mut part = MatrixArguments {
            weight: device.address(&linear.weight)?,
            bias: bias.address,
            bias_code: bias.code,
            rows: outputs as i32,
            ..MatrixArguments::default()
        };
        let mut rule = None;
        if let Some(Scaling::Int8(int8)) = &linear.scaling {
            let (of_rows, scales_a_row) = int8_rule(weights, int8, inputs)?;
            let scales = Vector::new(device, &int8.scale)?;
            (part.scales, part.scales_code) = (scales.address, scales.code);
            (part.scales_a_row, part.group) = (scales_a_row as i32, int8.group as i32);
            rule = Some(of_rows);
        }
        let row_bytes = inputs / dtype.block_len() * dtype.block_bytes();
        Ok(DeviceMatrix { kernels, dtype, rule, part, outputs, inputs, row_bytes })
    }

    /// Whether the kernels for many tokens multiply by it.
    fn by_tiles(&self, tokens: usize) -> bool {
        tokens > FEW_TOKENS && self.kernels.many.is_some() && self.whole() && self.part.scales_a_row <= 1
    }

    pub(super) fn form(&self, tokens: usize) -> OperandForm {
        match (self.kernels.kind, self.rule) {
            (Kind::Blocks, _) => OperandForm::Q8,
            (Kind::Int8, Some(rule)) => OperandForm::Int8(rule),
            (Kind::Halves, _) if self.by_tiles(tokens) && self.dtype == DType::BF16 => OperandForm::Bf16,
            (Kind::Halves, _) if self.by_tiles(tokens) => OperandForm::F16,
            _ => OperandForm::F32,
        }
    }

    /// Whether rows of it and of its activations can be read 16 bytes at a time.
    fn whole(&self) -> bool {
        match self.kernels.kind {
            Kind::F32 => self.inputs.is_multiple_of(4),
            Kind::Halves => self.inputs.is_multiple_of(8),
            Kind::Int8 => self.inputs.is_multiple_of(16),
            Kind::Blocks => true,
        }
    }
}

/// How rows of activations are made: `SOURCE_*` of `steps.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowSource<'a> {
    Plain,
    Normed(&'a DeviceNorm),
    /// `silu(gate) * x`; the gate lies `offset` elements after x in each row.
    SwiGlu {
        offset: usize,
    },
    Gelu,
}

/// A norm on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct DeviceNorm {
    pub(super) weight: Vector,
    pub(super) bias: Vector,
    pub(super) eps: f32,
    /// Whether the mean is subtracted first.
    pub(super) layer: bool,
}

impl DeviceNorm {
    pub(super) fn new(device: &DeviceWeights, norm: &NormWeights) -> Result<DeviceNorm, Error> {
        let (eps, bias) = match &norm.kind {
            Norm::Rms { eps, .. } => (eps, None),
            Norm::Layer { eps, bias, .. } => (eps, bias.as_ref()),
        };
        Ok(DeviceNorm {
            weight: Vector::of(device, norm.weight.as_ref())?,
            bias: Vector::of(device, bias)?,
            eps: *eps as f32,
            layer: bias.is_some(),
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) source: RowSource<'a>,
    /// The address of the F32 rows.
    pub(super) address: u64,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    /// The address of the row indices, or 0 to take rows from the first on.
    pub(super) gather: u64,
    pub(super) count: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ProductTarget {
    /// The address of the F32 output, `[tokens, width]`.
    pub(super) address: u64,
    pub(super) width: usize,
    pub(super) add: bool,
}

#[derive(Debug)]
pub(super) struct Multiplier {
    pub(super) gpu: Arc<Gpu>,
    pub(super) prepare: Function,
    /// Addresses of scratch memory, as long as `GpuBuffers` says.
    pub(super) prepared: u64,
    pub(super) steps: u64,
    pub(super) extents: u64,
}

impl Multiplier {
    /// The outputs of `matrices`, side by side in `target`.
    pub(super) fn multiply(&self, rows: Rows<'_>, matrices: &[&DeviceMatrix], target: ProductTarget) -> Result<()> {
        let (mut columns, mut end) = (Vec::new(), 0);
        for matrix in matrices {
            columns.push(end);
            end += matrix.outputs;
        }
        let mut done: Vec<OperandForm> = Vec::new();
        for matrix in matrices {
            let form = matrix.form(rows.count);
            if !done.contains(&form) {
                let x = self.prepare(rows, form, matrix.inputs)?;
                self.multiply_prepared((x, form), 0..rows.count, rows.count, &columns, matrices, target)?;
                done.push(form);
            }
        }
        Ok(())
    }

    /// Like [`multiply`](Self::multiply) by one matrix, `slice` rows at a time; `take` is called with each slice's rows.
    pub(super) fn multiply_slices(
        &self,
        rows: Rows<'_>,
        matrix: &DeviceMatrix,
        slice: usize,
        target: ProductTarget,
        mut take: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // The form is chosen for a whole slice: the last may have fewer rows, and is computed like the others.
        let tokens = rows.count.min(slice);
        let form = matrix.form(tokens);
        let x = self.prepare(rows, form, matrix.inputs)?;
        for start in (0..rows.count).step_by(slice) {
            let of_slice = start..rows.count.min(start + slice);
            self.multiply_prepared((x, form), of_slice.clone(), tokens, &[0], &[matrix], target)?;
            take(of_slice.len())?;
        }
        Ok(())
    }

    /// The address of rows of `width` elements in this form: their own, or where they were prepared.
    pub(super) fn prepare(&self, rows: Rows<'_>, form: OperandForm, width: usize) -> Result<u64> {
        if matches!((rows.source, form), (RowSource::Plain, OperandForm::F32))
            && rows.stride == width
            && rows.gather == 0
        {
            return Ok(rows.address);
        }
        let mut given = Prepare {
            x: rows.address,
            gather: rows.gather,
            out: self.prepared,
            steps: self.steps,
            extents: self.extents,
            form: form.code(),
            width: width as i32,
            stride: rows.stride as i32,
            ..Prepare::default()
        };
        match rows.source {
            RowSource::Plain => {}
            RowSource::Normed(norm) => {
                given.source = if norm.layer { 2 } else { 1 };
                (given.weight, given.weight_code) = (norm.weight.address, norm.weight.code);
                (given.bias, given.bias_code) = (norm.bias.address, norm.bias.code);
                given.eps = norm.eps;
            }
            RowSource::SwiGlu { offset } => {
                given.source = 3;
                given.gate = rows.address + 4 * offset as u64;
            }
            RowSource::Gelu => given.source = 4,
        }
        if let OperandForm::Int8(rule) = form {
            match rule {
                Int8Rule::Token { symmetric } | Int8Rule::Tensor { symmetric } => given.rule = i32::from(!symmetric),
                Int8Rule::Static { scale_bits, zero } => {
                    given.rule = 2;
                    given.scale = f32::from_bits(scale_bits);
                    given.zero = i32::from(zero);
                }
            }
            if let Int8Rule::Tensor { .. } = rule {
                given.together = rows.count as i32;
            }
        }
        let in_row =
            matches!(rows.source, RowSource::Normed(_)) || matches!(form, OperandForm::F16 | OperandForm::Int8(_));
        let threads = if in_row { width.div_ceil(4).next_multiple_of(32).min(1024) } else { 256 };
        given.columns = if in_row { width as i32 } else { 1024 };
        let columns = width.div_ceil(given.columns as usize);
        let shape = LaunchShape::new([rows.count, columns, 1], threads);
        if given.together > 0 {
            self.gpu.start(self.prepare, shape, &Prepare { form: OperandForm::EXTENT, ..given })?;
        }
        self.gpu.start(self.prepare, shape, &given)?;
        Ok(self.prepared)
    }

    /// Multiplies the rows `rows` of `x`, in its form, by those `matrices` that read it; `tokens` selects the kernel.
    fn multiply_prepared(
        &self,
        (x, form): (u64, OperandForm),
        rows: std::ops::Range<usize>,
        tokens: usize,
        columns: &[usize],
        matrices: &[&DeviceMatrix],
        target: ProductTarget,
    ) -> Result<()> {
        let mut left: Vec<usize> = (0..matrices.len()).filter(|index| matrices[*index].form(tokens) == form).collect();
        while let Some(first) = left.first().map(|index| matrices[*index]) {
            // One launch takes matrices of one dtype and one kernel.
            let alike = |matrix: &DeviceMatrix| {
                matrix.dtype == first.dtype && matrix.by_tiles(tokens) == first.by_tiles(tokens)
            };
            let (now, later): (Vec<usize>, _) = left.iter().partition(|index| alike(matrices[**index]));
            left = later;
            for chosen in now.chunks(MOST_MATRICES) {
                let (row_bytes, step_bytes) = form.row_bytes(first.inputs);
                let mut parts = [MatrixArguments::default(); MOST_MATRICES];
                for (part, index) in parts.iter_mut().zip(chosen) {
                    *part = MatrixArguments { column: columns[*index] as i32, ..matrices[*index].part };
                }
                let count = rows.len();
                let symmetric = |rule| {
                    matches!(rule, Int8Rule::Token { symmetric: true } | Int8Rule::Tensor { symmetric: true })
                        || matches!(rule, Int8Rule::Static { zero: 0, .. })
                };
                let given = Product {
                    x: x + (rows.start * row_bytes) as u64,
                    steps: if step_bytes == 0 { 0 } else { self.steps + (rows.start * step_bytes) as u64 },
                    y: target.address,
                    matrices: parts,
                    count: chosen.len() as i32,
                    inputs: first.inputs as i32,
                    row_bytes: first.row_bytes as i32,
                    tokens: count as i32,
                    width: target.width as i32,
                    add: i32::from(target.add),
                    zeros: i32::from(!first.rule.is_none_or(symmetric)),
                    whole: i32::from(first.whole()),
                };
                // Blocks in one row: a GPU takes fewer than 65536 in the other directions.
                let blocks = |each: usize, tokens: usize| {
                    let of_rows: usize = chosen.iter().map(|index| matrices[*index].outputs.div_ceil(each)).sum();
                    [of_rows * count.div_ceil(tokens), 1, 1]
                };
                match first.kernels.many {
                    Some(many) if first.by_tiles(tokens) => {
                        let chosen = tile(blocks(TILES[1], TILES[1])[0], count, self.gpu.processors);
                        let shape = LaunchShape::new(blocks(TILES[chosen], TILES[chosen]), TILE_THREADS);
                        self.gpu.start(many[chosen], shape, &given)?;
                    }
                    _ => {
                        let choice = count.min(FEW_TOKENS).next_power_of_two();
                        let few = first.kernels.few[choice.ilog2() as usize];
                        let shape = LaunchShape::new(blocks(FEW_ROWS, choice), FEW_THREADS);
                        self.gpu.start(few, shape, &given)?;
                    }
                }
            }
        }
        Ok(())
    }
}
