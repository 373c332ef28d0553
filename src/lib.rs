//! Loads language models in the dtypes they are stored in, or refuses with a report.

pub mod error;
pub mod generate;
pub mod kernels;
pub mod threads;
pub mod tokenizer;

pub use error::{Error, Result};
