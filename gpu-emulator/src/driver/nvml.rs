//! The functions of NVML by which a program finds GPUs: this library is also `libnvidia-ml.so.1`, by a link of that name.
#![allow(clippy::missing_safety_doc, non_snake_case)] // NVML's documentation has each function

use super::calls::{answer, spell};
use super::code::{Code, Result};
use super::driver;
use super::settings::{NAME, Settings, UUID};
use std::ffi::{c_char, c_int, c_uint, c_void};

const DONE: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const UNKNOWN: c_int = 999;

/// The layout of `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryFigures {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Declares the functions. A body gets the settings of the emulated GPU, and returns any error as an invalid argument.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) |$settings:pat_param| $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of NVML.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            let Ok($settings) = Settings::of_environment() else { return UNKNOWN };
            let run = || -> Result { $body };
            run().map_or(INVALID_ARGUMENT, |()| DONE)
        }
    )*};
}

functions! {
    nvmlInit_v2() |_| { Ok(()) }
    nvmlShutdown() |_| { Ok(()) }

    nvmlSystemGetDriverVersion(version: *mut c_char, bytes: c_uint) |_| {
        // SAFETY: the caller guarantees it.
        unsafe { spell("emulated", version, bytes as usize) }
    }

    nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) |settings| {
        // SAFETY: the caller guarantees it.
        unsafe { answer(version, (1000 * settings.cuda.0 + 10 * settings.cuda.1) as c_int) }
    }

    nvmlDeviceGetCount_v2(count: *mut c_uint) |_| {
        // SAFETY: the caller guarantees it.
        unsafe { answer(count, 1) }
    }

    nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut *mut c_void) |_| {
        if index != 0 {
            return Err(Code::INVALID_DEVICE);
        }
        // SAFETY: the caller guarantees it. Any pointer but null would do.
        unsafe { answer(handle, std::ptr::without_provenance_mut(1)) }
    }

    nvmlDeviceGetName(_device: *mut c_void, name: *mut c_char, bytes: c_uint) |_| {
        // SAFETY: the caller guarantees it.
        unsafe { spell(NAME, name, bytes as usize) }
    }

    nvmlDeviceGetUUID(_device: *mut c_void, uuid: *mut c_char, bytes: c_uint) |_| {
        let [a, b, c, d, e] = [(96, 8), (80, 4), (64, 4), (48, 4), (0, 12)].map(|(shift, digits)| {
            let bits = u128::from_be_bytes(UUID) >> shift & ((1 << (4 * digits)) - 1);
            format!("{bits:0digits$x}")
        });
        // SAFETY: the caller guarantees it.
        unsafe { spell(&format!("GPU-{a}-{b}-{c}-{d}-{e}"), uuid, bytes as usize) }
    }

    nvmlDeviceGetCudaComputeCapability(_device: *mut c_void, major: *mut c_int, minor: *mut c_int) |settings| {
        // SAFETY: the caller guarantees it.
        unsafe { answer(major, settings.capability.0 as c_int) }?;
        // SAFETY: the reason above holds here too.
        unsafe { answer(minor, settings.capability.1 as c_int) }
    }

    nvmlDeviceGetMemoryInfo_v2(_device: *mut c_void, memory: *mut MemoryFigures) |settings| {
        let (free, total) = driver().free_memory().unwrap_or((settings.memory, settings.memory));
        // SAFETY: the caller guarantees it; the version is the caller's own.
        let version = unsafe { memory.as_ref() }.ok_or(Code::INVALID_VALUE)?.version;
        // SAFETY: the reason above holds here too.
        unsafe { answer(memory, MemoryFigures { version, total, reserved: 0, free, used: total - free }) }
    }
}

/// `nvmlDeviceGetMigMode` of NVML.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(_device: *mut c_void, _current: *mut c_uint, _pending: *mut c_uint) -> c_int {
    NOT_SUPPORTED
}
