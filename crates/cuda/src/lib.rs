#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! [`CudaDevice`] launches a kernel or two for each operation of the decoder. Kernels are started through a trait, so
//! that tests let any of them fail.

#![warn(missing_debug_implementations)]
#![allow(unsafe_code)]

mod arguments;
mod attention;
mod batch;
mod device;
mod driver;
mod error;
mod gpu;
mod modules;
mod nvrtc;
mod peak;
mod product;
#[cfg(test)]
mod tests;
mod weights;

pub use device::CudaDevice;
pub use error::{CudaError, NVRTC_VARIABLE};
pub use modules::dtypes;
pub use peak::ProductSeconds;
pub use weights::Uploaded;
