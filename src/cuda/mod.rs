//! Models on NVIDIA cards: weights as stored bytes, kernels of our own that are compiled for the card when a model is loaded.
//!
//! The driver and NVRTC are loaded at run time: a build with this feature needs neither a card nor a toolkit, and starts
//! without a driver. What differs from the processor is below the table-driven block: [`Decoder`] launches kernels where
//! the processor's runs operations. Kernels are started through a seam, so that tests run the same sources, the same
//! launches and the same decoder in an emulator.

#![allow(unsafe_code)]

mod arguments;
mod batch;
mod cache;
mod card;
mod decoder;
mod gpu;
mod modules;
mod nvrtc;
mod peak;
mod product;
mod sizes;
#[cfg(test)]
mod tests;
mod weights;

pub use crate::error::{CudaError, NVRTC_VARIABLE};
pub use cache::Cache;
pub use decoder::Decoder;
pub use modules::dtypes;
pub use peak::ProductSeconds;
pub use sizes::weight_bytes;
