#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod dtype;
mod generation;
mod level;
pub mod memory;
mod tier;

pub use dtype::{DType, removed_ggml_type};
pub use generation::{Generation, UNKNOWN_GENERATION, generation};
pub use level::{cpu_level, cpu_level_features};
pub use tier::Tier;

/// The dimension of a matrix along which a word of 32 bits holds consecutive integers, where words lie by columns. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedDim {
    /// Inputs, in a stream of fields for each output, the first in the lowest bits: `[inputs * bits / 32, outputs]` (GPTQ).
    Inputs,
    /// Eight outputs, of 4 bits, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits: `[inputs, outputs / 8]` (AWQ).
    Outputs,
}

/// The largest number of inputs of an I8 matrix: with so many products of a weight, -128 to 127, and an activation less
/// its zero point, -255 to 255, every sum fits 32 bits.
pub const I8_MAX_INPUTS: u64 = 65_793;

/// The most bytes that a thread keeps besides the buffers of a step while it multiplies rows of `inputs` elements of any dtype with
/// up to `tokens` tokens: weights as unpacked or widened, arranged activations, and scales and zero points of a task.
pub const fn thread_bytes(inputs: usize, tokens: usize) -> u64 {
    const FIXED: u64 = 1536 << 10;
    FIXED.saturating_add((inputs as u64).saturating_mul(80)).saturating_add((tokens as u64).saturating_mul(16))
}

/// The most elements of a head for which the GPU kernels have registers.
pub const GPU_MOST_HEAD_DIM: usize = 256;

/// The lowest CUDA version of a driver: the lowest whose driver interface the engine is written for. NVIDIA's
/// drivers have it from 525 on.
pub const LOWEST_CUDA: (u32, u32) = (12, 0);
