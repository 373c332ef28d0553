//! The driver's functions, as far as programs that compile by NVRTC need them. Work of a stream is done when the stream
//! is waited for, so a program that reads too early gets old bytes. A kernel's error is returned by the wait and every later call,
//! as it breaks the context. What CUDA leaves open is decided strictly: no address is given twice, memory is all ones
//! at first, kernels are loaded when they are first started.
//!
//! | variable | value |
//! |---|---|
//! | `GPU_EMULATOR_CAPABILITY` | compute capability (`9.0`) |
//! | `GPU_EMULATOR_MEMORY` | bytes of memory (8 GiB) |
//! | `GPU_EMULATOR_PROCESSORS` | multiprocessors (4) |
//! | `GPU_EMULATOR_CUDA` | the CUDA version of the driver (`13.0`) |
//! | `GPU_EMULATOR_SCHEDULE` | `forward`, `reverse` or `random:SEED`: the order of blocks, warps and lanes that run at once (`forward`) |
//! | `GPU_EMULATOR_PLANT` | `TEXT=>OTHER`: a defect, planted into the sources of kernels that have the text |
//! | `GPU_EMULATOR_FAIL` | `FUNCTION:CALLS:CODE`: after so many calls of the function, or of any for `*`, the next returns the code |
//! | `GPU_EMULATOR_REPORT` | not empty: what was left is printed at the end of the process |

#![allow(unsafe_code)] // a C interface

mod calls;
mod code;
mod control;
mod failure;
mod memory;
mod nvml;
mod settings;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use calls::*;
pub use code::Code;
pub use control::*;
pub use nvml::*;

use state::Driver;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);

fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}
