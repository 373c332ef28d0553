#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod anthropic;
mod chunks;
mod embedding;
mod error;
mod fields;
mod format;
pub mod llama_cpp;
mod messages;
pub mod ollama;
mod outline;
mod parts;
mod request;
mod rerank;
pub mod responses;
mod tokens;
mod tools;

pub use chunks::{ChunkBuilder, append, keep_best};
pub use embedding::EmbeddingRequest;
pub use error::{ApiError, RequestError};
pub use outline::{Outline, model_of};
pub use request::{CompletionInput, CompletionRequest, PromptPart};
pub use rerank::RerankRequest;
pub use tokens::{DetokenizeRequest, TemplateRequest, TokenizeRequest};
