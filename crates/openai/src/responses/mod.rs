//! OpenAI's Responses API: its request becomes a [`CompletionRequest`](crate::CompletionRequest), and the chunks of the answer
//! become its events or its response, which may be kept for requests that go on with it.

mod events;
mod items;
mod kept;
mod request;

pub use events::ResponseBuilder;
pub use kept::{KeptResponse, missing, previous};
pub use request::request;
