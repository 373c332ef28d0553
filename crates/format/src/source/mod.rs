//! Path -> ModelSource: the kind of what is there, by content first and by extension last.

mod cache;
pub(crate) mod content;
pub(crate) mod folder;
pub(crate) mod index;
pub(crate) mod names;
mod projector;
pub(crate) mod sidecar;

use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use content::Content;
use folder::{Folder, Wanted};
use std::path::{Path, PathBuf};

pub use content::{open, read};
pub use sidecar::refusal;

/// A container format. Complete, like [`Metadata`](crate::header::Metadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GGUF, single or split.
    Gguf,
    /// safetensors, single or sharded, with a `config.json`.
    Safetensors,
}

/// One model's files.
#[derive(Clone, Debug)]
pub struct ModelSource {
    /// The path as the user gave it.
    pub path: PathBuf,
    /// The container format.
    pub format: Format,
    /// The folder of the model's companions.
    pub folder: PathBuf,
    /// The weight files in part order.
    pub files: Vec<SourceFile>,
    /// The shard index that names `files`.
    pub index: Option<PathBuf>,
    /// Which of `files` holds the vision tower of a GGUF model, where there is one: its `mmproj`, the last of them.
    pub projector: Option<usize>,
    /// Oddities of the folder that do no harm.
    pub notes: Vec<String>,
}

/// One weight file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
}

impl SourceFile {
    fn at(path: &Path) -> Result<SourceFile> {
        Ok(SourceFile { path: path.into(), bytes: content::regular_file(path)? })
    }
}

/// Finds the one model at `path`.
///
/// # Errors
/// `Io` when the path cannot be read, `Format` when its content is not a model format, `Architecture` for adapters and
/// projectors, `Incomplete` for missing parts, `Ambiguous` for several models.
pub fn probe(path: &Path) -> Result<ModelSource> {
    let metadata =
        std::fs::metadata(path).map_err(|error| content::dead_link(path).unwrap_or_else(|| Error::io(path, error)))?;
    if metadata.is_dir() {
        return Folder::probe(path);
    }
    let name = folder::file_name(path);
    if names::is_unfinished(&name) {
        return Err(Error::incomplete(path, IncompleteKind::Unfinished));
    }
    let (content, prefix, len) = content::identify(path)?;
    let folder = names::folder_of(path);
    match content {
        Content::Gguf => folder::gguf(path, &folder, path),
        Content::Safetensors => folder::safetensors(path, &folder, &name),
        _ if len == 0 => Err(Error::format(path, FormatErrorKind::EmptyFile)),
        _ => by_name(path, &folder, &name, content, &prefix, len),
    }
}

/// Decides by the file's name where its first bytes do not.
fn by_name(path: &Path, folder: &Path, name: &str, content: Content, prefix: &[u8], len: u64) -> Result<ModelSource> {
    let lower = name.to_ascii_lowercase();
    let json = matches!(content, Content::UnsupportedFile(..)) && prefix.trim_ascii_start().starts_with(b"{");
    if lower.ends_with(".index.json") && lower.contains("safetensors") {
        return folder::indexed(path, folder, path);
    }
    if lower == "config.json" {
        return Folder::read(path, folder)?.choose(Wanted::Safetensors);
    }
    if lower == "adapter_config.json" {
        return Err(sidecar::adapter(path));
    }
    // A cut-off safetensors file can be too short to be recognized; its own reader reports what is wrong.
    if lower.ends_with(".safetensors") && !json && content == Content::Unknown {
        return folder::safetensors(path, folder, name);
    }
    Err(content::refuse(path, prefix, len))
}
