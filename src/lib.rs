#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! A [`Model`] is where to start reading. [`UnifiedModelFactory`] and [`ModelBuilder`] load one; what they do before a weight is
//! read is the crate [`diagnostics`]. A sequence on a model is a [`Session`], and what goes on with it a [`Generation`].

#![warn(missing_debug_implementations)]

/// The code of the guides, compiled and run with the doctests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/constrained.md")]
    struct Constrained;
    #[doc = include_str!("../docs/embeddings.md")]
    struct Embeddings;
    #[doc = include_str!("../docs/library.md")]
    struct Library;
    #[doc = include_str!("../docs/sessions.md")]
    struct Sessions;
    #[doc = include_str!("../docs/batch.md")]
    struct Batch;
    #[doc = include_str!("../docs/tools.md")]
    struct Tools;
    #[doc = include_str!("../docs/speculation.md")]
    struct Speculation;
}

mod answers;
#[cfg(feature = "candle")]
mod candle;
mod classify;
mod embed;
pub mod error;
mod extract;
mod factory;
mod fingerprint;
mod fit;
pub mod generate;
pub mod hub;
mod logits;
mod model;
mod progress;
mod prompt;
mod rank;
mod saved;
mod score;
mod session;
#[cfg(feature = "async")]
mod stream;
mod text_model;

pub use answers::MAX_ANSWERS;
#[cfg(feature = "candle")]
pub use candle_core;
pub use chat::{ChatOptions, LocalTime, Message, RenderedChat};
pub use embed::{EmbedOptions, Embeddings};
pub use error::{
    ChatError, DraftError, EmbedError, EncodeError, EngineError, Error, ErrorKind, GrammarError, Result,
    SessionFileError, ToolError,
};
pub use factory::{MAX_THREADS, ModelBuilder, UnifiedModelFactory};
pub use fingerprint::WeightsDigest;
pub use generate::{
    Answer, AnswerDelta, AnswerReader, FinishReason, GenerateOptions, Generation, LogProbs, Piece, SamplingOptions,
    Speculation,
};
pub use grammar::Grammar;
pub use logits::Logits;
pub use model::Model;
#[cfg(feature = "cuda")]
pub use model_factory_cuda as cuda;
pub use model_factory_diagnostics as diagnostics;
pub use model_factory_diagnostics::plan::{KvDtype, WeightStorage};
pub use model_factory_diagnostics::spec::Pooling;
pub use model_factory_diagnostics::{DType, DeviceChoice, DtypePolicy, Hardware, Report, Verdict};
// Hidden modules are public for the benches and tests of this repository, and no part of the API.
#[doc(hidden)]
pub use model_factory_engine::{cache_budget, cpu, decoder, weights};
use model_factory_engine::{predictor, scheduler};
pub use model_factory_format::CancellationToken;
use model_factory_format::cancel;
pub use model_factory_kernels::Isa;
use model_factory_kernels::memory;
#[doc(hidden)]
pub use model_factory_kernels::{self as kernels, threads};
pub use model_factory_text::{chat, tokenizer};
use model_factory_text::{grammar, tools};
pub use progress::{Progress, Stage};
pub use prompt::{IntoGenerationError, Prompt};
pub use rank::Reranker;
pub use scheduler::admission::Admission;
pub use schemars;
pub use score::Score;
pub use session::{CacheUsage, Session};
#[cfg(feature = "async")]
pub use stream::GenerationStream;
pub use text_model::{TextGeneration, TextModel};
pub use tools::{ToolCall, ToolChoice};

/// The guide's programs are compiled and run.
#[cfg(all(doctest, feature = "async"))]
#[doc = include_str!("../docs/streaming.md")]
struct StreamingGuide;
