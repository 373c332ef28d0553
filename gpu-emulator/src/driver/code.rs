//! The codes that the driver's functions return, and their texts.

use crate::ptx::{Cause, Fault, Space};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{LazyLock, Mutex, PoisonError};

/// `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Code(pub u32);

pub(super) type Result<T = (), E = Code> = std::result::Result<T, E>;

macro_rules! codes {
    ($($name:ident = $code:literal, $kept:literal, $text:literal;)*) => {
        impl Code {
            $(
                #[doc = concat!("`CUDA_ERROR_", stringify!($name), "`.")]
                pub const $name: Code = Code($code);
            )*

            fn known(self) -> Option<(bool, &'static CStr)> {
                match self.0 {
                    0 => Some((false, c"no error")),
                    $($code => Some(($kept, $text)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, false, c"invalid argument";
    OUT_OF_MEMORY = 2, false, c"out of memory";
    NOT_INITIALIZED = 3, false, c"initialization error";
    NO_DEVICE = 100, false, c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, false, c"invalid device ordinal";
    INVALID_IMAGE = 200, false, c"device kernel image is invalid";
    INVALID_CONTEXT = 201, false, c"invalid device context";
    NO_BINARY_FOR_GPU = 209, false, c"no kernel image is available for execution on the device";
    INVALID_PTX = 218, false, c"a PTX JIT compilation failed";
    INVALID_HANDLE = 400, false, c"invalid resource handle";
    NOT_FOUND = 500, false, c"named symbol not found";
    ILLEGAL_ADDRESS = 700, true, c"an illegal memory access was encountered";
    OUT_OF_RESOURCES = 701, false, c"too many resources requested for launch";
    CONTEXT_IS_DESTROYED = 709, false, c"context is destroyed";
    MISALIGNED_ADDRESS = 716, true, c"misaligned address";
    LAUNCH_FAILED = 719, true, c"unspecified launch failure";
    NOT_SUPPORTED = 801, false, c"operation not supported";
    CAPTURE_UNSUPPORTED = 900, false, c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, false, c"operation failed due to a previous error during capture";
    CAPTURE_UNMATCHED = 903, false, c"the capture was not initiated in this stream";
    CAPTURE_WRONG_THREAD = 908, false, c"attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, true, c"unknown error";
}

/// The latest detail for the text of each code. Texts that were returned live for ever, like those of a driver.
static DETAILS: LazyLock<Mutex<HashMap<Code, &'static CStr>>> = LazyLock::new(Mutex::default);

impl Code {
    /// Whether every later call of the context returns it too.
    pub fn stays(self) -> bool {
        self.known().is_some_and(|(stays, _)| stays)
    }

    /// The text, with the latest detail. `None` for an unknown code.
    pub fn text(self) -> Option<&'static CStr> {
        let (_, plain) = self.known()?;
        let details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
        Some(details.get(&self).copied().unwrap_or(plain))
    }

    /// The code; its text says `detail` from now on.
    pub(super) fn because(self, detail: impl std::fmt::Display) -> Code {
        let plain = self.known().map_or("", |(_, text)| text.to_str().unwrap_or(""));
        let text = CString::new(format!("{plain}: {detail}").replace('\0', " ")).unwrap_or_default();
        let mut details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
        if details.get(&self).is_none_or(|known| *known != text.as_c_str()) {
            details.insert(self, Box::leak(text.into_boxed_c_str()));
        }
        self
    }
}

impl From<&Fault> for Code {
    fn from(fault: &Fault) -> Code {
        let code = match fault.cause {
            Cause::OutOfBounds { space: Space::Global, .. } => Code::ILLEGAL_ADDRESS,
            Cause::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
            _ => Code::LAUNCH_FAILED,
        };
        code.because(fault)
    }
}
