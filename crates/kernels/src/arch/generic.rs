//! Code that is written once for the vectors of several instruction sets.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod codes;
pub(crate) mod floats;
pub(crate) mod panel;
pub(crate) mod prefetch;
pub(crate) mod simd;
pub(crate) mod tiles;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod wide;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod wide_panel;
