#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bytes;
pub mod cancel;
pub mod error;
pub mod header;
pub mod hub;
mod image;
mod json;
pub mod limits;
pub mod source;
pub mod tokenizer;
pub mod tool_calls;

pub use cancel::{CancellationToken, Cancelled};
pub use error::{Error, Result};
pub use hub::{HubId, HubModel};
pub use image::Image;
