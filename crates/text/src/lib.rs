#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod answer;
pub mod chat;
pub mod constraint;
pub mod error;
pub mod grammar;
pub mod tokenizer;
pub mod tools;

pub use chat::{ChatOptions, ChatTemplate, LocalTime, Message, RenderedChat};
pub use error::{ChatError, EncodeError, Error, GrammarError, Result, ToolError};
pub use grammar::Grammar;
pub use tokenizer::Tokenizer;
pub use tools::{ToolCall, ToolChoice};
