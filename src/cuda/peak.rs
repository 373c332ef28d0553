//! What a card can do, measured with kernels that do nothing else: what speeds are compared with.

use super::arguments::{Copy16, Rate};
use super::error::CudaError;
use super::gpu::{Arguments, Buffer, Function, Gpu, Shape};
use super::modules::{Kind, Module, kind};
use super::product::tensor_cores;
use model_diagnostics::DType;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are copied at a time: more than any cache holds.
const COPIED: usize = 1 << 30;

/// Threads of a block in both kernels.
const THREADS: usize = 256;

/// Launches that are timed together, after as many that are not.
const LAUNCHES: usize = 10;

/// Bytes a second, read and written together.
pub(super) fn copy_rate(gpu: &Arc<dyn Gpu>) -> Result<f64, CudaError> {
    let [from, to] = [Buffer::new(gpu, "the source of a copy", COPIED)?, Buffer::new(gpu, "the copy", COPIED)?];
    let given = Copy16 { from: from.address(), to: to.address(), lines: (COPIED / 16) as u64 };
    let function = gpu.function(Module::Steps, "copy")?;
    let shape = Shape::new([gpu.processors() * 16, 1, 1], THREADS);
    let seconds = timed(&**gpu, function, shape, &given, &to)?;
    Ok(2.0 * COPIED as f64 / seconds)
}

/// Multiplications and additions a second by tensor cores; `None` where the kernels of `dtype` use none.
pub(super) fn matrix_rate(gpu: &Arc<dyn Gpu>, dtype: DType) -> Result<Option<f64>, CudaError> {
    const COUNT: usize = 4096;
    let Some(kind) = kind(dtype).filter(|_| tensor_cores(&**gpu, dtype)) else { return Ok(None) };
    let blocks = gpu.processors() * 8;
    let out = Buffer::new(gpu, "the sums of a measurement", blocks * THREADS * 4)?;
    let given = Rate { out: out.address(), count: COUNT as i32, unused: 0 };
    let function = gpu.function(Module::Matrix(dtype), "rate")?;
    let seconds = timed(&**gpu, function, Shape::new([blocks, 1, 1], THREADS), &given, &out)?;
    // Eight products of 16 by 8 by 16 floats, or 32 bytes, a warp each time.
    let inputs = if kind == Kind::Halves { 16 } else { 32 };
    let each = 2 * 16 * 8 * inputs * 8 * COUNT;
    Ok(Some((each * blocks * THREADS / 32) as f64 / seconds))
}

/// Seconds of one launch. `written` is waited for.
fn timed<A: Arguments>(
    gpu: &dyn Gpu,
    function: Function,
    shape: Shape,
    given: &A,
    written: &Buffer,
) -> Result<f64, CudaError> {
    let run = || -> Result<f64, CudaError> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the callers' buffers are as long as the arguments say, and `Arguments` promises the layout.
            unsafe { gpu.launch(function, shape, std::ptr::from_ref(given).cast(), size_of::<A>())? };
        }
        written.download(0, &mut [0; 4])?;
        Ok(start.elapsed().as_secs_f64() / LAUNCHES as f64)
    };
    run()?;
    run()
}
