//! Models on NVIDIA GPUs: weights as stored bytes, kernels of our own that are compiled for the GPU when a model is loaded.
//!
//! The driver and NVRTC are loaded at run time: a build with this feature needs neither a GPU nor a toolkit, and starts
//! without a driver. [`CudaDevice`] is the decoder's device: it launches a kernel or two for each operation. Kernels are started
//! through a seam, so that tests let any of them fail.

#![allow(unsafe_code)]

mod arguments;
mod attention;
mod batch;
mod device;
mod driver;
mod gpu;
mod modules;
mod nvrtc;
mod peak;
mod product;
#[cfg(test)]
mod tests;
mod weights;

pub use crate::error::{CudaError, NVRTC_VARIABLE};
pub use device::CudaDevice;
pub use modules::dtypes;
pub use peak::ProductSeconds;
