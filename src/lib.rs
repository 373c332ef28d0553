#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! The pipeline is [`UnifiedModelFactory`]; its stages left of the weights are the crate [`diagnostics`]. What is loaded is a [`Model`]; a sequence on it is a [`Session`].

pub mod chat;
mod compute;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod decoder;
pub mod error;
mod factory;
pub mod generate;
pub mod kernels;
pub mod linear;
mod model;
mod session;
pub mod threads;
pub mod tokenizer;
pub mod weights;

pub use candle_core;
pub use chat::{ChatOptions, Message};
pub use error::{Error, Result};
pub use factory::{Builder, MAX_THREADS, UnifiedModelFactory};
pub use generate::{FinishReason, GenerateOptions, Generation, LogProbs, Piece, SamplingOptions};
pub use model::Model;
pub use model_diagnostics as diagnostics;
pub use model_diagnostics::plan::KvDtype;
pub use model_diagnostics::{DType, DeviceChoice, DtypePolicy, Hardware, Report, Verdict};
pub use session::Session;
