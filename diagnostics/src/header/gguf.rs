//! GGUF v2 and v3, single and split -> Header.

use super::{Fields, Header};
use crate::error::Result;
use crate::source::Source;
use std::path::{Path, PathBuf};

/// The key-value section of a GGUF file.
#[derive(Debug)]
pub struct GgufMetadata {
    file: PathBuf,
}

/// An array of byte strings stored without an allocation each.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `index`; `None` past the end. Not necessarily UTF-8.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        self.bytes.get(start..*self.ends.get(index)?)
    }

    /// All strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl GgufMetadata {
    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        todo!("{key} {:?}", self.file)
    }

    /// An array of floats (integers are accepted where they are exact).
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        todo!("{key} {:?}", self.file)
    }

    /// An array of integers.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>> {
        todo!("{key} {:?}", self.file)
    }

    /// Whether the value is an array (`head_count` may be one number or one a layer).
    pub fn is_array(&self, key: &str) -> bool {
        todo!("{key} {:?}", self.file)
    }

    /// The keys in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
}

impl Fields for GgufMetadata {
    fn file(&self) -> &Path {
        &self.file
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

pub(super) fn read(source: Source) -> Result<Header> {
    todo!("{source:?}")
}
