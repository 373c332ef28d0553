//! What can go wrong between this process and a GPU.

use model_factory_dtypes::LOWEST_CUDA;
use model_factory_engine::Error;
use std::sync::Arc;

/// A GPU, its driver or its compiler is not there, or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library cannot be loaded (exit code 13).
    #[error("there is no NVIDIA driver library on this machine; install the driver, or choose the CPU")]
    NoDriver,
    /// The driver knows no such GPU (exit code 13).
    #[error("the driver has {count} GPUs and none is {asked}; CUDA_VISIBLE_DEVICES may hide it")]
    NoGpu {
        /// The GPU asked for.
        asked: String,
        /// The GPUs there are.
        count: usize,
    },
    /// The compiler of kernels cannot be loaded (exit code 13).
    #[error(
        "there is no NVRTC library to compile kernels with: tried {}; install the CUDA toolkit's cuda-nvrtc package, or \
         name the library in {NVRTC_VARIABLE}",
        tried.join(", ")
    )]
    NoCompiler {
        /// The names tried.
        tried: Vec<String>,
    },
    /// The compiler knows no such GPU (exit code 13).
    #[error(
        "NVRTC {}.{} compiles for no GPU of compute capability {}.{}; install a version that does",
        version.0, version.1, capability.0, capability.1
    )]
    Capability {
        /// The compiler's version.
        version: (i32, i32),
        /// The GPU's compute capability.
        capability: (u32, u32),
    },
    /// The driver is older than the compiler (exit code 13).
    #[error(
        "the driver is of CUDA {}.{} and does not load what NVRTC {}.{} compiles; update the driver, or name a library of CUDA \
         {} in {NVRTC_VARIABLE}",
        driver.0, driver.1, version.0, version.1, driver.0
    )]
    CompilerTooNew {
        /// The compiler's version.
        version: (i32, i32),
        /// The CUDA version that the driver is of.
        driver: (i32, i32),
    },
    /// The driver lacks functions (exit code 13).
    #[error(
        "the driver is of CUDA {}.{}, the engine needs {}.{}; update it, or choose the CPU",
        found.0, found.1, LOWEST_CUDA.0, LOWEST_CUDA.1
    )]
    DriverTooOld {
        /// The CUDA version that the driver is of.
        found: (i32, i32),
    },
    /// A kernel does not compile, a fault of this library (exit code 1).
    #[error("NVRTC does not compile {module} for {architecture}: {log}")]
    Compile {
        /// The kernels' file.
        module: String,
        /// What for.
        architecture: String,
        /// What the compiler says.
        log: String,
    },
    /// The GPU has too little memory (exit code 14).
    #[error("the GPU has {free} bytes free and {what} takes {bytes}; ask for a smaller context, or choose the CPU")]
    Memory {
        /// What was to be allocated.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The bytes that are free.
        free: usize,
    },
    /// The driver refused (exit code 1).
    #[error("{step}: the driver answers {code}, {text}")]
    Driver {
        /// What was asked of it.
        step: &'static str,
        /// Its error number.
        code: u32,
        /// Its words.
        text: String,
    },
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
