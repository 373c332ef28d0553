//! NVRTC, the compiler of kernels, loaded at run time: any version from 11.2 on, through the few functions used
//! here. Compiled code is kept for the process: several models share kernels.

use super::modules::Module;
use crate::error::{CudaError, NVRTC_VARIABLE, Result};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the library, the newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
};

type Program = *mut c_void;
type Texts = *const *const c_char;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// Declares [`Functions`].
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[derive(Debug)]
        #[allow(non_snake_case)] // NVRTC's names
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            fn load(library: &Library) -> Result<Functions, libloading::Error> {
                // SAFETY: the signatures are those of NVRTC's documentation.
                Ok(unsafe { Functions { $($name: *library.get(stringify!($name))?,)* } })
            }
        }
    };
}

functions! {
    nvrtcVersion(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs(*mut c_int);
    nvrtcGetSupportedArchs(*mut c_int);
    nvrtcCreateProgram(*mut Program, *const c_char, *const c_char, c_int, Texts, Texts);
    nvrtcCompileProgram(Program, c_int, Texts);
    nvrtcDestroyProgram(*mut Program);
    nvrtcGetProgramLogSize(Program, *mut usize);
    nvrtcGetProgramLog(Program, *mut c_char);
    nvrtcGetPTXSize(Program, *mut usize);
    nvrtcGetPTX(Program, *mut c_char);
    nvrtcGetCUBINSize(Program, *mut usize);
    nvrtcGetCUBIN(Program, *mut c_char);
}

/// The compiler of this process, once it is loaded.
static LOADED: Mutex<Option<Arc<Nvrtc>>> = Mutex::new(None);

#[derive(Debug)]
pub(super) struct Nvrtc {
    functions: Functions,
    /// The library that has the functions.
    _library: Library,
    images: Mutex<HashMap<Compiled, Arc<Image>>>,
}

/// A source and the options, including the architecture.
type Compiled = (String, [String; 3]);

/// Machine code for one kind of GPU, or PTX that the driver translates, with a zero after it.
#[derive(Debug)]
pub(super) struct Image(pub(super) Vec<u8>);

impl Nvrtc {
    /// Loads the library, or returns the loaded one: the library that [`NVRTC_VARIABLE`] names, or else the first
    /// of the usual names whose code a driver of this CUDA version loads. Drivers load code of an earlier major
    /// version.
    ///
    /// # Errors
    /// `NoCompiler` when none can be loaded, `CompilerTooNew` when the driver is older than every one found, `Driver`
    /// when the loaded library is not NVRTC or does not answer.
    pub(super) fn load(driver: Option<(i32, i32)>) -> Result<Arc<Nvrtc>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvrtc) = &*loaded {
            return Ok(Arc::clone(nvrtc));
        }
        let nvrtc = Nvrtc::first_of(Nvrtc::names(), driver)?;
        Ok(Arc::clone(loaded.insert(Arc::new(nvrtc))))
    }

    pub(super) fn names() -> Vec<String> {
        let given = std::env::var(NVRTC_VARIABLE).ok().filter(|path| !path.is_empty());
        given.map_or_else(|| NAMES.iter().map(|name| (*name).to_owned()).collect(), |path| vec![path])
    }

    /// The first of `tried` that can be used with a driver of this CUDA version.
    pub(super) fn first_of(tried: Vec<String>, driver: Option<(i32, i32)>) -> Result<Nvrtc> {
        let (mut too_new, mut unsound) = (None, None);
        for name in &tried {
            // SAFETY: loading NVRTC runs nothing but its own initialization.
            let Ok(library) = (unsafe { Library::new(name) }) else { continue };
            let lookup = |error: libloading::Error| CudaError::Driver {
                step: "looking up a function of NVRTC",
                code: 0,
                text: error.to_string(),
            };
            let nvrtc = Functions::load(&library).map_err(lookup).and_then(|functions| {
                let nvrtc = Nvrtc { functions, _library: library, images: Mutex::default() };
                Ok((nvrtc.version()?, nvrtc))
            });
            match (nvrtc, driver) {
                (Err(error), _) => unsound = Some(error),
                (Ok((version, _)), Some(driver)) if driver.0 < version.0 => {
                    too_new = Some(CudaError::CompilerTooNew { version, driver });
                }
                (Ok((_, nvrtc)), _) => return Ok(nvrtc),
            }
        }
        Err(too_new.or(unsound).unwrap_or(CudaError::NoCompiler { tried }))
    }

    pub(super) fn version(&self) -> Result<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are valid for writing.
        answer("the version of NVRTC", unsafe { (self.functions.nvrtcVersion)(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// The compute capabilities it compiles for, as `10 * major + minor`.
    pub(super) fn architectures(&self) -> Result<Vec<i32>> {
        let (mut count, step) = (0, "the architectures of NVRTC");
        // SAFETY: it is valid for writing.
        answer(step, unsafe { (self.functions.nvrtcGetNumSupportedArchs)(&mut count) })?;
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as it has just said.
        answer(step, unsafe { (self.functions.nvrtcGetSupportedArchs)(architectures.as_mut_ptr()) })?;
        Ok(architectures)
    }

    /// Compiles `module` for GPUs of `capability`: to machine code where this version knows them, else to PTX for the
    /// nearest older ones. What was compiled before is returned again.
    pub(super) fn compile(&self, module: Module, capability: (u32, u32)) -> Result<Arc<Image>> {
        let wanted = (10 * capability.0 + capability.1) as i32;
        let known = self.architectures()?;
        let nearest = known.iter().copied().filter(|architecture| *architecture <= wanted).max();
        let architecture = match nearest {
            Some(same) if same == wanted => format!("sm_{same}"),
            Some(older) => format!("compute_{older}"),
            None => return Err(CudaError::Capability { version: self.version()?, capability }),
        };
        self.compile_for(module, &architecture)
    }

    /// Like [`compile`](Self::compile), to PTX for `compute_NN` and to machine code for `sm_NN`.
    pub(super) fn compile_for(&self, module: Module, architecture: &str) -> Result<Arc<Image>> {
        // Sums and products are rounded as written: kernels ask for fused ones by name.
        let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "--fmad=false".into()];
        let key: Compiled = (module.source(), options);
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = images.get(&key) {
            return Ok(Arc::clone(image));
        }
        let image = Arc::new(self.compile_uncached(module, architecture, &key)?);
        images.insert(key, Arc::clone(&image));
        Ok(image)
    }

    fn compile_uncached(&self, module: Module, architecture: &str, (source, options): &Compiled) -> Result<Image> {
        let (source, name) = (text(source.clone()), text(module.name()));
        let options = options.clone().map(text);
        let pointers = options.each_ref().map(|option| option.as_ptr());
        let (functions, mut program) = (&self.functions, std::ptr::null_mut());
        let create = functions.nvrtcCreateProgram;
        // SAFETY: both texts end with a zero and outlive the program; there are no headers.
        let code = unsafe { create(&mut program, source.as_ptr(), name.as_ptr(), 0, null(), null()) };
        answer("creating a program", code)?;
        let program = Owned { functions, program };
        let (compile, count) = (functions.nvrtcCompileProgram, pointers.len() as c_int);
        // SAFETY: the program was created above; the options end with zeros.
        if unsafe { compile(program.program, count, pointers.as_ptr()) } != 0 {
            let log = program.bytes(functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog)?;
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
            return Err(CudaError::Compile { module: module.name(), architecture: architecture.to_owned(), log });
        }
        let mut image = if architecture.starts_with("sm_") {
            program.bytes(functions.nvrtcGetCUBINSize, functions.nvrtcGetCUBIN)?
        } else {
            program.bytes(functions.nvrtcGetPTXSize, functions.nvrtcGetPTX)?
        };
        image.push(0);
        Ok(Image(image))
    }
}

struct Owned<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Owned<'_> {
    /// The bytes that `get` writes; `size` gives their length.
    fn bytes(&self, size: Size, get: Text) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is alive; the length is valid for writing.
        answer("the size of a result", unsafe { size(self.program, &mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes as it has just said.
        answer("a result", unsafe { get(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is alive, and this is the last use of it.
        unsafe { (self.functions.nvrtcDestroyProgram)(&mut self.program) };
    }
}

/// The text with a zero at its end. It holds no other: sources and options are ours.
fn text(text: String) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

fn answer(step: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(CudaError::Driver { step, code: code.unsigned_abs(), text: "an error of NVRTC".into() }),
    }
}
