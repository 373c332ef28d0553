//! Anthropic's Messages API: its request becomes a [`CompletionRequest`](crate::CompletionRequest), and the chunks of the answer
//! become its events or its message.

mod events;
mod request;

pub use events::{MessageBuilder, error};
pub use request::request;
