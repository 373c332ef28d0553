//! Kernels for aarch64.

pub(crate) mod neon;
pub(crate) mod prefetch;
