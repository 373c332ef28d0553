#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! [`CudaDevice`] launches a kernel or two for each operation of the decoder.

#![warn(missing_debug_implementations)]
#![allow(unsafe_code)]

mod arguments;
mod attention;
mod batch;
mod buffer;
mod device;
mod driver;
mod error;
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
