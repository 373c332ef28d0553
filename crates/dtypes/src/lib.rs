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
