#![doc = include_str!("../README.md")]

pub mod cancel;

pub use cancel::{CancellationToken, Cancelled};
