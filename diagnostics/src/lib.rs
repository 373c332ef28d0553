//! Tells from headers alone what a language-model file or folder is and whether a machine can run it.
//!
//! ```text
//! path ─probe─▶ Source ─read─▶ Header ─inspect─▶ ModelSpec ─assess(Hardware, Policy)─▶ Report
//! ```

mod bytes;
pub mod capability;
pub mod dtype;
pub mod error;
pub mod hardware;
pub mod header;
mod json;
pub mod limits;
pub mod source;
pub mod spec;
pub mod tokenizer;

pub use dtype::DType;
pub use error::{Error, Result};
