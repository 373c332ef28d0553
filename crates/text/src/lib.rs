#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

pub mod error;

pub use error::{ChatError, EncodeError, Error, GrammarError, Result, ToolError};
