//! NVRTC's functions, passed on to the real library, but with PTX for machine code: a program that compiles for `sm_NN` gets
//! the PTX that NVRTC makes on the way there, for `compute_NN`, which the emulated driver runs.
#![allow(unsafe_code)] // a C interface
#![allow(clippy::missing_safety_doc)] // NVRTC's documentation has each function

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The variable that names the real NVRTC.
pub const COMPILER_VARIABLE: &str = "GPU_EMULATOR_NVRTC";

/// The variable of a defect to plant: `TEXT=>OTHER` replaces the text by the other in every source that has it.
pub const PLANT_VARIABLE: &str = "GPU_EMULATOR_PLANT";

/// `NVRTC_ERROR_INTERNAL_ERROR`: there is no real library, or it lacks this function.
const FAILED: c_int = 11;

static REAL: OnceLock<Option<Library>> = OnceLock::new();

fn real() -> Option<&'static Library> {
    // SAFETY: loading NVRTC runs nothing but its own initialization.
    REAL.get_or_init(|| unsafe { Library::new(std::env::var_os(COMPILER_VARIABLE)?) }.ok()).as_ref()
}

/// Declares functions that run the code in braces, then pass their arguments on to the real function of the name given.
macro_rules! passed_on {
    ($($name:ident = $real:literal ($($argument:ident: $kind:ty),*) $({ $($before:tt)* })?;)*) => {$(
        #[doc = concat!("Passed on to `", $real, "`.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)] // NVRTC's names
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            type Real = unsafe extern "C" fn($($kind),*) -> c_int;
            $($($before)*)?
            // SAFETY: the signature is that of NVRTC's documentation.
            let real = real().and_then(|library| unsafe { library.get::<Real>($real) }.ok());
            // SAFETY: the caller guarantees it; NVRTC copies a source.
            real.map_or(FAILED, |real| unsafe { real($($argument),*) })
        }
    )*};
}

passed_on! {
    nvrtcVersion = "nvrtcVersion"(major: *mut c_int, minor: *mut c_int);
    nvrtcGetNumSupportedArchs = "nvrtcGetNumSupportedArchs"(count: *mut c_int);
    nvrtcGetSupportedArchs = "nvrtcGetSupportedArchs"(all: *mut c_int);
    nvrtcCreateProgram = "nvrtcCreateProgram"(
        program: *mut *mut c_void, source: *const c_char, name: *const c_char, count: c_int,
        headers: *const *const c_char, names: *const *const c_char
    ) {
        let plant = std::env::var(PLANT_VARIABLE).ok();
        // SAFETY: a text that ends in a zero, by NVRTC's documentation.
        let planted = plant.and_then(|plant| planted(unsafe { CStr::from_ptr(source) }, &plant));
        let source = planted.as_deref().map_or(source, CStr::as_ptr);
    };
    nvrtcCompileProgram = "nvrtcCompileProgram"(
        program: *mut c_void, count: c_int, options: *const *const c_char
    ) {
        // SAFETY: as many texts that end in zeros, by NVRTC's documentation.
        let given = (0..usize::try_from(count).unwrap_or(0)).map(|index| unsafe { CStr::from_ptr(*options.add(index)) });
        let texts: Vec<CString> = given.map(to_ptx).collect();
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let options = pointers.as_ptr();
    };
    nvrtcDestroyProgram = "nvrtcDestroyProgram"(program: *mut *mut c_void);
    nvrtcGetProgramLogSize = "nvrtcGetProgramLogSize"(program: *mut c_void, bytes: *mut usize);
    nvrtcGetProgramLog = "nvrtcGetProgramLog"(program: *mut c_void, log: *mut c_char);
    nvrtcGetPTXSize = "nvrtcGetPTXSize"(program: *mut c_void, bytes: *mut usize);
    nvrtcGetPTX = "nvrtcGetPTX"(program: *mut c_void, ptx: *mut c_char);
    nvrtcGetCUBINSize = "nvrtcGetPTXSize"(program: *mut c_void, bytes: *mut usize);
    nvrtcGetCUBIN = "nvrtcGetPTX"(program: *mut c_void, ptx: *mut c_char);
}

/// The option, but for PTX where it asks for machine code: the PTX is the same, and assembling it is half of the time.
fn to_ptx(option: &CStr) -> CString {
    let number = option.to_bytes().strip_prefix(b"--gpu-architecture=sm_");
    let ptx = number.and_then(|number| CString::new([b"--gpu-architecture=compute_", number].concat()).ok());
    ptx.unwrap_or_else(|| option.to_owned())
}

/// The source with the defect; `None` if it lacks the text.
fn planted(source: &CStr, plant: &str) -> Option<CString> {
    let (from, to) = plant.split_once("=>")?;
    let source = source.to_str().ok().filter(|source| source.contains(from))?;
    CString::new(source.replace(from, to)).ok()
}
