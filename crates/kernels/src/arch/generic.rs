//! Code that is written once for the vectors of several instruction sets.

pub(crate) mod floats;
pub(crate) mod panel;
pub(crate) mod prefetch;
pub(crate) mod simd;
pub(crate) mod wide;
pub(crate) mod wide_panel;
