//! What can be known without a card: that every kernel compiles, and that the same sources, launched by the same decoder,
//! compute what the processor's kernels do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // tests say what they skip

mod compile;
mod emulator;
mod models;
mod plan;
mod products;
mod steps;
mod upload;
