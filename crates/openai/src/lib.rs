#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api_error;
mod chunks;
mod embedding;
mod error;
mod fields;
mod messages;
mod outline;
mod request;

pub use api_error::ApiError;
pub use chunks::{ChunkBuilder, append};
pub use embedding::EmbeddingRequest;
pub use error::RequestError;
pub use outline::Outline;
pub use request::{CompletionInput, CompletionRequest};
