//! The functions of NVML that a program asks for GPUs by: this library is `libnvidia-ml.so.1` too, under a link of that name.
#![allow(clippy::missing_safety_doc, non_snake_case)] // NVML's documentation has each function

use super::calls::spell;
use super::driver;
use super::settings::{NAME, Settings, UUID};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt::Write;

const DONE: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const UNKNOWN: c_int = 999;

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryFigures {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Runs `tell` with what is emulated.
fn with_settings(tell: impl FnOnce(&Settings) -> Option<()>) -> c_int {
    let Ok(settings) = Settings::of_environment() else { return UNKNOWN };
    tell(&settings).map_or(INVALID_ARGUMENT, |()| DONE)
}

/// # Safety
/// `to` is null or valid for writing.
unsafe fn give<T>(to: *mut T, value: T) -> Option<()> {
    // SAFETY: the caller's.
    (!to.is_null()).then(|| unsafe { to.write(value) })
}

/// The one device; any pointer but null would do.
fn device() -> *mut c_void {
    std::ptr::without_provenance_mut(1)
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of NVML.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int $body
    )*};
}

functions! {
    nvmlInit_v2() {
        with_settings(|_| Some(()))
    }

    nvmlShutdown() {
        DONE
    }

    nvmlSystemGetDriverVersion(version: *mut c_char, bytes: c_uint) {
        // SAFETY: the caller's.
        unsafe { spell("emulated", version, bytes as usize) }.map_or(INVALID_ARGUMENT, |()| DONE)
    }

    nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) {
        // SAFETY: the caller's.
        with_settings(|settings| unsafe { give(version, (1000 * settings.cuda.0 + 10 * settings.cuda.1) as c_int) })
    }

    nvmlDeviceGetCount_v2(count: *mut c_uint) {
        // SAFETY: the caller's.
        with_settings(|_| unsafe { give(count, 1) })
    }

    nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut *mut c_void) {
        // SAFETY: the caller's.
        with_settings(|_| unsafe { (index == 0).then(|| give(handle, device())).flatten() })
    }

    nvmlDeviceGetName(_device: *mut c_void, name: *mut c_char, bytes: c_uint) {
        // SAFETY: the caller's.
        unsafe { spell(NAME, name, bytes as usize) }.map_or(INVALID_ARGUMENT, |()| DONE)
    }

    nvmlDeviceGetUUID(_device: *mut c_void, uuid: *mut c_char, bytes: c_uint) {
        // SAFETY: the caller's.
        unsafe { spell(&spelled(), uuid, bytes as usize) }.map_or(INVALID_ARGUMENT, |()| DONE)
    }

    nvmlDeviceGetCudaComputeCapability(_device: *mut c_void, major: *mut c_int, minor: *mut c_int) {
        with_settings(|settings| {
            // SAFETY: the caller's.
            unsafe { give(major, settings.capability.0 as c_int) }?;
            // SAFETY: as above.
            unsafe { give(minor, settings.capability.1 as c_int) }
        })
    }

    nvmlDeviceGetMemoryInfo_v2(_device: *mut c_void, memory: *mut MemoryFigures) {
        with_settings(|settings| {
            let (free, total) = driver().free_memory().unwrap_or((settings.memory, settings.memory));
            // SAFETY: the caller's; the version is the caller's own.
            let version = unsafe { memory.as_ref() }?.version;
            // SAFETY: as above.
            unsafe { give(memory, MemoryFigures { version, total, reserved: 0, free, used: total - free }) }
        })
    }

    nvmlDeviceGetMigMode(_device: *mut c_void, _current: *mut c_uint, _pending: *mut c_uint) {
        NOT_SUPPORTED
    }
}

/// The UUID as NVML writes it.
fn spelled() -> String {
    let mut text = String::from("GPU");
    for (index, byte) in UUID.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}
