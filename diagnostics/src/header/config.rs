//! `config.json` and its companions, as transformers 4 and 5 write them.

use super::Fields;
use crate::error::Result;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The JSON files that describe a safetensors model.
#[derive(Debug)]
pub struct ConfigFiles {
    /// `config.json`.
    pub config: JsonFile,
    /// `generation_config.json`.
    pub generation: Option<JsonFile>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<JsonFile>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<JsonFile>,
    /// The path of `tokenizer.json`; its content is large and read on demand.
    pub tokenizer: Option<PathBuf>,
    /// The path of `chat_template.jinja`.
    pub chat_template: Option<PathBuf>,
}

/// One JSON file whose root is an object.
#[derive(Debug)]
pub struct JsonFile {
    path: PathBuf,
    object: Map<String, Value>,
}

/// A nested object of a [`JsonFile`]; keys in errors carry its name (`rope_scaling.factor`).
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    file: &'a Path,
    name: &'a str,
    object: &'a Map<String, Value>,
}

impl JsonFile {
    /// The raw object.
    pub fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// The nested object under `key`; `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is no object.
    pub fn section<'a>(&'a self, key: &'a str) -> Result<Option<Section<'a>>> {
        todo!("{key} {:?}", self.path)
    }
}

impl<'a> Section<'a> {
    /// The raw object.
    pub fn object(&self) -> &'a Map<String, Value> {
        let _ = (self.file, self.name);
        self.object
    }
}

impl Fields for JsonFile {
    fn file(&self) -> &Path {
        &self.path
    }
    fn has(&self, key: &str) -> bool {
        todo!("{key}")
    }
    fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        todo!("{key}")
    }
    fn number(&self, key: &str) -> Result<Option<f64>> {
        todo!("{key}")
    }
    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        todo!("{key}")
    }
    fn text(&self, key: &str) -> Result<Option<&str>> {
        todo!("{key}")
    }
}

impl Fields for Section<'_> {
    fn file(&self) -> &Path {
        self.file
    }
    fn has(&self, key: &str) -> bool {
        todo!("{key}")
    }
    fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        todo!("{key}")
    }
    fn number(&self, key: &str) -> Result<Option<f64>> {
        todo!("{key}")
    }
    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        todo!("{key}")
    }
    fn text(&self, key: &str) -> Result<Option<&str>> {
        todo!("{key}")
    }
}
