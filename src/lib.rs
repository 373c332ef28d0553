#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! [`UnifiedModelFactory::load`] is the entry point; [`Model`] is where to start reading. What a load does before a weight is read
//! is the crate [`diagnostics`]. A sequence on a model is a [`Session`], and what continues it is a [`Generation`]. The names that
//! most programs need are here; others are in the modules [`load`], [`chat`], [`generate`], [`session`], [`embed`], [`error`],
//! [`tokenizer`] and [`hub`].
//!
//! # Stability
//!
//! Versions follow Semantic Versioning, with three exceptions, which may change in any version: the details of a model
//! ([`diagnostics::spec`], [`diagnostics::plan`], [`diagnostics::family`], as [`Model::spec`] and [`ModelBuilder::families`] use
//! them), [`generate::Step`] beyond `forward` and `room`, and all that these pages do not show. A type of another crate is in a
//! signature only with the feature of its name (`candle`, `cuda`, `hub`), except for schemars and serde, which are past 1.0.

#![warn(missing_debug_implementations)]

/// The code of the guides, compiled and run with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/adapters.md")]
#[doc = include_str!("../docs/batch.md")]
#[doc = include_str!("../docs/constrained.md")]
#[doc = include_str!("../docs/embeddings.md")]
#[doc = include_str!("../docs/library.md")]
#[doc = include_str!("../docs/sessions.md")]
#[doc = include_str!("../docs/speculation.md")]
#[doc = include_str!("../docs/tools.md")]
#[cfg_attr(feature = "images", doc = include_str!("../docs/vision.md"))]
#[cfg_attr(feature = "async", doc = include_str!("../docs/streaming.md"))]
struct Guides;

mod adapter;
mod answers;
#[cfg(feature = "candle")]
mod candle;
mod classify;
pub mod embed;
pub mod error;
mod extract;
mod factory;
mod fingerprint;
mod fit;
pub mod generate;
pub mod hub;
mod logits;
mod model;
#[cfg(feature = "images")]
mod pictures;
mod progress;
mod prompt;
mod prompt_cache;
mod rank;
mod saved;
mod score;
pub mod session;
#[cfg(feature = "async")]
mod stream;
mod text_model;

/// Options and progress of a load.
pub mod load {
    pub use crate::factory::{MAX_THREADS, ModelBuilder, UnifiedModelFactory};
    pub use crate::progress::{Progress, Stage};
    pub use model_factory_diagnostics::plan::{ActivationDtype, KvDtype, WeightStorage};
    pub use model_factory_diagnostics::{DeviceChoice, DtypePolicy};
    pub use model_factory_engine::scheduler::admission::Admission;
    pub use model_factory_format::CancellationToken;
    pub use model_factory_kernels::Isa;
}

pub use adapter::Adapter;
#[cfg(feature = "candle")]
pub use candle_core;
pub use chat::{ChatOptions, Message};
pub use embed::{ClassifyOptions, EmbedOptions, Embeddings, Pooling, Reranker};
pub use error::{Error, ErrorKind, GrammarError, Result};
pub use generate::{
    Answer, FinishReason, GenerateOptions, Generation, Grammar, Piece, SamplingOptions, Speculation, ToolCall,
    ToolChoice,
};
pub use load::{
    ActivationDtype, Admission, CancellationToken, DeviceChoice, DtypePolicy, KvDtype, ModelBuilder, Progress,
    UnifiedModelFactory, WeightStorage,
};
pub use logits::Logits;
pub use model::Model;
#[cfg(feature = "cuda")]
pub use model_factory_cuda as cuda;
pub use model_factory_diagnostics::{self as diagnostics, Report, Verdict};
// Hidden modules are public for the benches and tests of this repository, and are not part of the API.
pub use model_factory_engine::{Input, Rows, SoftTokens};
#[doc(hidden)]
pub use model_factory_engine::{cache_budget, cpu, decoder, weights};
use model_factory_engine::{input, predictor, scheduler};
pub use model_factory_format::Image;
use model_factory_format::cancel;
#[cfg(feature = "images")]
pub use model_factory_images as images;
use model_factory_kernels::memory;
#[doc(hidden)]
pub use model_factory_kernels::{self as kernels, threads};
pub use model_factory_text::{chat, tokenizer};
use model_factory_text::{grammar, tools};
pub use prompt::Prompt;
pub use prompt_cache::PromptCacheUsage;
pub use schemars;
pub use session::Session;
#[cfg(feature = "async")]
pub use stream::GenerationStream;
pub use text_model::TextModel;
