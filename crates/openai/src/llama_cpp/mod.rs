//! The API of llama.cpp's server: requests of `completion` and `infill` become a [`CompletionRequest`](crate::CompletionRequest), and
//! the chunks of the answer become its events; those of `embedding` are embedded.

mod embed;
mod events;
pub(super) mod gbnf;
pub(super) mod prompt;
mod request;
mod sampling;

pub use embed::VectorsRequest;
pub use events::{CompletionBuilder, error};
pub use request::{completion, infill};
pub(super) use sampling::sampling;
