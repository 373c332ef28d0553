//! A stand-in for `libcuda`, NVIDIA's driver library: the PTX that a program hands to the driver runs on the
//! processor, every access checked. For tests of programs that have no GPU.
//!
//! - [`ptx`]: PTX -> a launch's effects on memory, or the [`ptx::Fault`] that ends it.
//! - [`driver`]: the driver's functions, on top of it.
//! - [`nvrtc`]: NVRTC's functions, passed on to the real one; they return PTX where machine code is asked for.
//!
//! A program uses it as follows; nothing in the program knows of it.
//!
//! | variable | value |
//! |---|---|
//! | `LD_LIBRARY_PATH` | the folder of this library, so that it is found as `libcuda.so` |
//! | `MODEL_FACTORY_NVRTC` | this library too: NVRTC's functions are in it |
//! | [`nvrtc::COMPILER_VARIABLE`] | the real `libnvrtc.so` |

pub mod driver;
pub mod nvrtc;
pub mod ptx;
