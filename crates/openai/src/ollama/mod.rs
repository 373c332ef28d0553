//! Ollama's API: requests of `chat` and `generate` become a [`CompletionRequest`](crate::CompletionRequest), and the chunks of the
//! answer become its lines; those of `embed` and `embeddings` are embedded.

mod embed;
mod lines;
mod request;

pub use embed::EmbedRequest;
pub use lines::{LineBuilder, error, time};
pub use request::{chat, generate, show};
