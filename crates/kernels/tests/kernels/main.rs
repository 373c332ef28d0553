//! Products by every kernel, attention and the delta rule, through the public interface: each is compiled once, for the library.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // tests say what they skip

mod attention;
mod attention_q8_0;
mod columns;
mod delta;
mod e4m3;
mod every;
mod references;
mod scaled;
mod tables;
/// The numbers and the oracle of the unit tests.
#[path = "../../src/testing.rs"]
mod testing;
mod transposed;

use model_factory_dtypes::DType;
use model_factory_kernels::{BlockScales, Floats, Form, Input, Isa, Kernel, RunScales};

/// Bits of an element of a dtype whose elements have as many each.
fn bits(dtype: DType) -> usize {
    8 * dtype.block_bytes() / dtype.block_len()
}
