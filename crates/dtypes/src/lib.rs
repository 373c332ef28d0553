#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod dtype;
mod level;
pub mod memory;
mod tier;

pub use dtype::{DType, removed_ggml_type};
pub use level::{cpu_level, cpu_level_features};
pub use tier::Tier;

/// Inputs of an I8 matrix at most: so many products of a weight, -128 to 127, and an activation less its zero point, -255
/// to 255, have a sum in 32 bits whatever they are.
pub const I8_MAX_INPUTS: u64 = 65_793;

/// Elements of a head at most that the kernels for GPUs have registers for.
pub const GPU_MOST_HEAD_DIM: usize = 256;

/// CUDA version that a driver must have at least: the lowest whose driver interface the engine is written for. NVIDIA's
/// drivers have it from 525 on.
pub const LOWEST_CUDA: (u32, u32) = (12, 0);
