//! Code for instruction sets: intrinsics and assembly are in no other module.

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod generic;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
