//! Errors between this process and a GPU.

use model_factory_dtypes::LOWEST_CUDA;
use model_factory_engine::Error;
use std::sync::Arc;

/// A result of this crate.
pub(crate) type Result<T, E = CudaError> = std::result::Result<T, E>;

/// A GPU, its driver or its compiler is missing, or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the variants' docs say what the fields are
pub enum CudaError {
    /// The driver's library cannot be loaded (exit code 13).
    #[error("there is no NVIDIA driver library on this machine; install the driver, or choose the CPU")]
    NoDriver,
    /// None of the `count` GPUs that the driver knows is the one `asked` for (exit code 13).
    #[error("the driver has {count} GPUs and none is {asked}; CUDA_VISIBLE_DEVICES may hide it")]
    NoGpu { asked: String, count: usize },
    /// The compiler of kernels cannot be loaded by any of the names `tried` (exit code 13).
    #[error(
        "there is no NVRTC library to compile kernels with: tried {}; install the CUDA toolkit's cuda-nvrtc package, or \
         name the library in {NVRTC_VARIABLE}",
        tried.join(", ")
    )]
    NoCompiler { tried: Vec<String> },
    /// The compiler of this `version` knows no GPU of this compute `capability` (exit code 13).
    #[error(
        "NVRTC {}.{} compiles for no GPU of compute capability {}.{}; install a version that does",
        version.0, version.1, capability.0, capability.1
    )]
    Capability { version: (i32, i32), capability: (u32, u32) },
    /// The CUDA version of the `driver` is older than the compiler's `version` (exit code 13).
    #[error(
        "the driver is of CUDA {}.{} and does not load what NVRTC {}.{} compiles; update the driver, or name a library of CUDA \
         {} in {NVRTC_VARIABLE}",
        driver.0, driver.1, version.0, version.1, driver.0
    )]
    CompilerTooNew { version: (i32, i32), driver: (i32, i32) },
    /// The driver is of the CUDA version `found` and lacks functions (exit code 13).
    #[error(
        "the driver is of CUDA {}.{}, the engine needs {}.{}; update it, or choose the CPU",
        found.0, found.1, LOWEST_CUDA.0, LOWEST_CUDA.1
    )]
    DriverTooOld { found: (i32, i32) },
    /// The kernels' file `module` does not compile for `architecture`; the compiler's `log` says why. A fault of this
    /// library (exit code 1).
    #[error("NVRTC does not compile {module} for {architecture}: {log}")]
    Compile { module: String, architecture: String, log: String },
    /// The GPU has `free` bytes free, and `what` takes `bytes` (exit code 14).
    #[error("the GPU has {free} bytes free and {what} takes {bytes}; ask for a smaller context, or choose the CPU")]
    Memory { what: &'static str, bytes: usize, free: usize },
    /// The driver refused a `step` with an error's number, its `code`, and `text` (exit code 1).
    #[error("{step}: the driver answers {code}, {text}")]
    Driver { step: &'static str, code: u32, text: String },
}

/// The environment variable that names the NVRTC library.
pub const NVRTC_VARIABLE: &str = "MODEL_FACTORY_NVRTC";

impl CudaError {
    /// The exit code of the contract.
    pub fn code(&self) -> u8 {
        match self {
            CudaError::NoDriver
            | CudaError::NoGpu { .. }
            | CudaError::NoCompiler { .. }
            | CudaError::CompilerTooNew { .. }
            | CudaError::DriverTooOld { .. }
            | CudaError::Capability { .. } => 13,
            CudaError::Memory { .. } => 14,
            CudaError::Compile { .. } | CudaError::Driver { .. } => 1,
        }
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Error {
        Error::Device { code: error.code(), error: Arc::new(error) }
    }
}
