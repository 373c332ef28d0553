//! What can be tested without a GPU: that every kernel compiles, if there is NVRTC. With `TEST_DEVICE=cuda` also that
//! the first GPU, or the stand-in for its driver (`.ci/cuda`), computes what the processor's kernels do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // tests say what they skip

use super::driver::Gpu;
use model_factory_dtypes::DType;
use model_factory_kernels::{BlockScales, Floats, Form, Input, Isa, Kernel, RunScales};
use std::sync::Arc;

#[path = "../../../../tests/common/archives.rs"]
#[allow(dead_code)] // the tests of the facade use more of it
mod archives;
mod attention;
mod compile;
mod models;
mod overflow;
mod peak;
mod plan;
mod planted;
mod products;
mod recordings;
mod steps;
/// The numbers and the oracle of the kernels' own tests.
#[allow(dead_code)]
#[path = "../../../kernels/src/testing.rs"]
mod testing;
mod upload;

use models::fixtures;
pub(super) use recordings::{RECORD, REPLAY, Watch};

/// The first GPU, with kernels chosen for `capability`. Prints why and returns `None` unless `TEST_DEVICE=cuda` asks
/// for one.
fn driver(capability: (u32, u32)) -> Option<Gpu> {
    if std::env::var_os("TEST_DEVICE").is_none_or(|device| device != "cuda") {
        println!("skipped: TEST_DEVICE=cuda asks for a GPU, or .ci/cuda for the stand-in");
        return None;
    }
    let gpu = Gpu::open(None, 0).unwrap_or_else(|error| panic!("TEST_DEVICE=cuda: {error}"));
    Some(gpu.acting_as(capability))
}

fn gpu(capability: (u32, u32)) -> Option<Arc<Gpu>> {
    Some(Arc::new(driver(capability)?))
}
