//! The functions with which a test controls the driver, besides the driver API.
#![allow(clippy::missing_safety_doc)] // each says what its pointers are

use super::calls::spell;
use super::code::Code;
use super::driver;
use std::ffi::{CStr, c_char};

/// After `calls` more calls of `function`, a name that ends with a zero or `*`, the next returns `code`, once; 0 cancels the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpu_emulator_fail(function: *const c_char, calls: u64, code: Code) {
    // SAFETY: the caller guarantees it.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    driver().failures.plan(&function, calls, code);
}

/// Whether the planned failure is still to come.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_emulator_is_planned() -> bool {
    driver().failures.planned.is_some()
}

/// The number of calls of `function`, a name that ends with a zero, or of all functions for `*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpu_emulator_calls(function: *const c_char) -> u64 {
    // SAFETY: the caller guarantees it.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    driver().failures.calls(&function)
}

/// Writes what was left when contexts ended, and what there is in a living one, into `bytes` bytes at `to`; empty for nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpu_emulator_left(to: *mut c_char, bytes: usize) {
    // SAFETY: the caller guarantees it.
    let _ = unsafe { spell(&left(), to, bytes) };
}

fn left() -> String {
    let driver = driver();
    let ended = driver.leaks.iter().map(|leak| format!("a context ended with {leak}"));
    ended.chain(driver.left()).collect::<Vec<_>>().join("\n")
}

#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(target_os = "linux")]
extern "C" fn at_exit() {
    let asked = std::env::var_os("GPU_EMULATOR_REPORT").is_some_and(|value| !value.is_empty());
    let left = if asked { left() } else { String::new() };
    if !left.is_empty() {
        #[allow(clippy::print_stderr)] // the report was asked for and has no other way out
        {
            eprintln!("gpu-emulator: {left}");
        }
    }
}
