//! Generations of several callers at the same time.

mod admission;
#[path = "../common/mod.rs"]
mod common;
mod prefixes;
mod prompt_logprobs;
#[cfg(feature = "async")]
mod scheduling;
#[cfg(feature = "async")]
mod streams;
