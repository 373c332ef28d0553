//! What a GPU can do, measured with kernels that do nothing else, to compare speeds with; and the time of single
//! products.

use super::CudaDevice;
use super::arguments::{Copy16, MatrixArguments, Rate};
use super::buffer::{Buffer, LaunchShape};
use super::driver::Gpu;
use super::modules::{Kind, Module, kind};
use super::product::{DeviceMatrix, MatrixKernels, Multiplier, ProductTarget, RowSource, Rows, tensor_cores};
use crate::error::Result;
use model_factory_dtypes::DType;
use model_factory_engine::error::Error;
use model_factory_kernels::Int8Rule;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are copied at a time: more than any cache holds.
const COPIED: usize = 1 << 30;

/// Threads of a block in both kernels.
const THREADS: usize = 256;

/// Launches that are timed together, after as many that are not.
const LAUNCHES: usize = 10;

impl CudaDevice {
    /// Bytes a second of copies on the GPU, read and written bytes together.
    ///
    /// # Errors
    /// `Memory` when there is no room for the copies; errors of the driver.
    pub fn copy_rate(&self) -> Result<f64> {
        let (_lock, gpu) = (self.lock(), &self.gpu);
        let [from, to] = [Buffer::new(gpu, "the source of a copy", COPIED)?, Buffer::new(gpu, "the copy", COPIED)?];
        let given = Copy16 { from: from.address, to: to.address, lines: (COPIED / 16) as u64 };
        let function = gpu.function(Module::Steps, "copy")?;
        let seconds = timed(&to, || gpu.start(function, copy_shape(gpu), &given))?;
        Ok(2.0 * COPIED as f64 / seconds)
    }

    /// Multiplications and additions a second of the GPU's tensor cores, with the operands that matrices of `dtype`
    /// are multiplied by and the instructions that the kernels use; `None` where the kernels use none.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn matrix_rate(&self, dtype: DType) -> Result<Option<f64>> {
        const COUNT: usize = 4096;
        let (_lock, gpu) = (self.lock(), &self.gpu);
        let Some(kind) = kind(dtype).filter(|_| tensor_cores(gpu, dtype)) else { return Ok(None) };
        let blocks = gpu.processors * 8;
        let out = Buffer::new(gpu, "the sums of a measurement", blocks * THREADS * 4)?;
        let given = Rate { out: out.address, count: COUNT as i32, unused: 0 };
        let function = gpu.function(Module::Matrix(dtype), "rate")?;
        let seconds = timed(&out, || gpu.start(function, LaunchShape::new([blocks, 1, 1], THREADS), &given))?;
        // Eight products of 16 by 8 by 16 floats, or 32 bytes, a warp each time.
        let inputs = if kind == Kind::Halves { 16 } else { 32 };
        let each = 2 * 16 * 8 * inputs * 8 * COUNT;
        Ok(Some((each * blocks * THREADS / 32) as f64 / seconds))
    }

    /// Times products of `tokens` rows with a matrix `[outputs, inputs]` of `dtype` that no cache holds.
    ///
    /// # Errors
    /// `Memory` when there is no room for a gigabyte of matrices; errors of compiling and of the driver.
    pub fn product_seconds(&self, dtype: DType, shape: [usize; 2], tokens: usize) -> Result<ProductSeconds, Error> {
        let _lock = self.lock();
        product_seconds(&self.gpu, dtype, shape, tokens, 1 << 30)
    }
}

pub(super) fn copy_shape(gpu: &Gpu) -> LaunchShape {
    LaunchShape::new([gpu.processors * 16, 1, 1], THREADS)
}

/// Seconds of a product, and the seconds of preparing its activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductSeconds {
    /// Preparing and multiplying.
    pub product: f64,
    /// Only preparing the activations.
    pub prepare: f64,
}

/// Times products of `tokens` rows with a matrix `[outputs, inputs]` of `dtype`, launched as a graph, as steps of
/// generation are. Takes copies of the matrix in turn, `bytes` in all, so that no cache holds them.
pub(super) fn product_seconds(
    gpu: &Arc<Gpu>,
    dtype: DType,
    [outputs, inputs]: [usize; 2],
    tokens: usize,
    bytes: usize,
) -> Result<ProductSeconds, Error> {
    let row_bytes = inputs / dtype.block_len() * dtype.block_bytes();
    // Each copy begins at a multiple of 256, and 16 bytes after it may be read.
    let apart = (outputs * row_bytes + 16).next_multiple_of(256);
    let copies = bytes.div_ceil(apart).clamp(1, 256);
    let buffer = |bytes| Buffer::new(gpu, "a measurement", bytes);
    let (weights, scales) = (buffer(copies * apart)?, buffer(4 * outputs)?);
    let (x, y) = (buffer(4 * tokens * inputs)?, buffer(4 * tokens * outputs)?);
    let scratch = [buffer(4 * tokens * inputs)?, buffer(tokens * inputs.div_ceil(32) * 8)?, buffer(16 * tokens)?];
    for filled in [&weights, &scales, &x] {
        fill(filled)?;
    }
    let [prepared, steps, extents] = scratch.each_ref().map(|buffer| buffer.address);
    let prepare = gpu.function(Module::Steps, "prepare")?;
    let multiplier = Multiplier { gpu: Arc::clone(gpu), prepare, prepared, steps, extents };
    let kernels = MatrixKernels::load(gpu, dtype)?;
    let rule = (dtype == DType::I8).then_some(Int8Rule::Token { symmetric: true });
    let matrix = |copy: usize| DeviceMatrix {
        kernels,
        dtype,
        rule,
        part: MatrixArguments {
            weight: weights.address + (copy * apart) as u64,
            scales: scales.address,
            scales_a_row: 1,
            group: inputs as i32,
            rows: outputs as i32,
            ..MatrixArguments::default()
        },
        outputs,
        inputs,
        row_bytes,
    };
    let rows = Rows { source: RowSource::Plain, address: x.address, stride: inputs, gather: 0, count: tokens };
    let target = ProductTarget { address: y.address, width: outputs, add: false };
    let each = |launches: &mut dyn FnMut(usize) -> Result<()>| -> Result<f64, Error> {
        // The first launches are not recorded, so that all kernels are loaded.
        launches(0)?;
        let recording = gpu.record(&mut || Ok((0..copies).try_for_each(&mut *launches)?))?;
        // SAFETY: all buffers outlive the recording.
        Ok(timed(&y, || unsafe { recording.replay() })? / copies as f64)
    };
    let prepare = |copy| multiplier.prepare(rows, matrix(copy).form(tokens), inputs);
    // Floats may be read where they are, without preparing.
    let prepares = prepare(0)? != rows.address;
    Ok(ProductSeconds {
        product: each(&mut |copy| multiplier.multiply(rows, &[&matrix(copy)], target))?,
        prepare: if prepares { each(&mut |copy| prepare(copy).map(drop))? } else { 0.0 },
    })
}

/// Fills a buffer with bytes of no pattern: zeros would take less power, and so run at higher clocks.
fn fill(buffer: &Buffer) -> Result<()> {
    let mut state = 0x9e37_79b9u32;
    let random = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // Read as floats of any width these are numbers of moderate size.
        state as u8 & 0x3f
    };
    let bytes: Vec<u8> = std::iter::repeat_with(random).take(buffer.bytes().min(1 << 20)).collect();
    (0..buffer.bytes()).step_by(bytes.len()).try_for_each(|at| {
        let now = bytes.len().min(buffer.bytes() - at);
        buffer.upload(at, &bytes[..now])
    })
}

/// Seconds of one of the things that `launch` starts. `written` is waited for.
fn timed(written: &Buffer, launch: impl Fn() -> Result<()>) -> Result<f64> {
    let run = || -> Result<f64> {
        let start = Instant::now();
        (0..LAUNCHES).try_for_each(|_| launch())?;
        written.download(0, &mut [0; 4])?;
        Ok(start.elapsed().as_secs_f64() / LAUNCHES as f64)
    };
    run()?;
    run()
}
