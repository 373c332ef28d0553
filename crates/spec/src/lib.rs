#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod adapter;
pub mod block;
pub mod family;
pub mod plan;
mod quantization;
pub mod spec;
pub mod vision;

pub use model_factory_format::{Error, Result};
pub use plan::Plan;
pub use spec::{ModelSpec, inspect};

use model_factory_format::{error, header, source, tokenizer};
