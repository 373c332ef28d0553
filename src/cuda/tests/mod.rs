//! What can be known without a GPU: that every kernel compiles, and that the same sources, launched by the same decoder,
//! compute what the processor's kernels do. With `TEST_DEVICE=cuda` the same is asked of the first GPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // tests say what they skip

use super::driver::DriverGpu;
use super::gpu::Launcher;
use std::sync::Arc;

mod attention;
mod compile;
mod emulator;
mod models;
mod overflow;
mod peak;
mod plan;
mod planted;
mod products;
mod recordings;
mod steps;
mod upload;

/// The first GPU where `TEST_DEVICE=cuda` asks for one, else an emulated one, with kernels chosen as for `capability`. Prints
/// why and returns `None` where nothing can be emulated.
fn gpu(capability: (u32, u32)) -> Option<Arc<dyn Launcher>> {
    if std::env::var_os("TEST_DEVICE").is_some_and(|device| device == "cuda") {
        let gpu = DriverGpu::open(None, 0).unwrap_or_else(|error| panic!("TEST_DEVICE=cuda: {error}"));
        return Some(Arc::new(gpu.acting_as(capability)));
    }
    emulator::gpu(capability)
}
