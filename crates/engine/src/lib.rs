#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! [`weights`] are the bytes of a model's files. A [`Decoder`] computes with them on a [`Device`](decoder::Device),
//! such as [`CpuDevice`]; a [`Scheduler`](scheduler::Scheduler) computes sequences together. [`predictor`] is a head
//! that guesses tokens, and [`cache_budget`] what KV caches take together.

#![warn(missing_debug_implementations)]

pub mod adapter;
pub mod cache_budget;
pub mod cpu;
#[allow(missing_debug_implementations)]
pub mod decoder;
pub mod error;
pub mod input;
pub mod predictor;
pub mod scheduler;
pub mod weights;

pub use cpu::CpuDevice;
pub use decoder::{Compute, Decoder, Logits, OutputRows, PassOptions, Segment, Tower};
pub use error::{Error, Result};
pub use input::{Input, Rows, SoftTokens, SoftTokensError, Span};
pub use weights::Weights;

use model_factory_format::cancel;
use model_factory_kernels::{self as kernels, memory, threads};
