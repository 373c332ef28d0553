//! Path -> Source: what lies there, told by content first and by extension last.

use crate::error::Result;
use std::path::{Path, PathBuf};

/// A container format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GGUF, single or split.
    Gguf,
    /// safetensors, single or sharded, with a `config.json`.
    Safetensors,
}

/// One model's files.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as the user gave it.
    pub path: PathBuf,
    /// The container format.
    pub format: Format,
    /// The folder the model's companions lie in.
    pub folder: PathBuf,
    /// The weight files in part order.
    pub files: Vec<SourceFile>,
}

/// One weight file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Finds the one model at `path`.
///
/// # Errors
/// `Io` when the path cannot be read, `Format` when its content is no model format, `Architecture` for adapters and
/// projectors, `Incomplete` for missing parts, `Ambiguous` for several models.
pub fn probe(path: &Path) -> Result<Source> {
    todo!("{}", path.display())
}
