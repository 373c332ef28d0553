//! `model.safetensors.index.json`: which shard holds which tensor.

use super::content;
use crate::error::{Error, FormatErrorKind, Result};
use crate::json::{self, Pairs};
use crate::limits;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct ShardIndex {
    pub(crate) path: PathBuf,
    /// The shards' file names, sorted; all are in the index's own folder.
    pub(crate) files: Vec<String>,
    /// The position in `files` of each tensor's shard.
    pub(crate) tensors: BTreeMap<String, usize>,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default, rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    weight_map: Pairs,
}

impl ShardIndex {
    pub(crate) fn read(path: &Path) -> Result<ShardIndex> {
        let bytes = content::read(path, limits::INDEX_BYTES)?;
        let text: Text =
            json::typed(path, 0, &bytes).map_err(|error| content::unsupported(path, &bytes).unwrap_or(error))?;
        let pairs = text.weight_map.0;
        if let Some((tensor, file)) = pairs.iter().find(|(_, file)| !is_plain_name(file)) {
            let (key, expected) = (format!("weight_map.{tensor}"), "a file name in the index's folder");
            return Err(Error::key_value(path, &key, format!("{file:?}"), expected));
        }
        let files: BTreeSet<&String> = pairs.iter().map(|(_, file)| file).collect();
        let files: Vec<String> = files.into_iter().cloned().collect();
        if files.is_empty() {
            let expected = "a file name for every tensor; download the index again";
            return Err(Error::key_value(path, "weight_map", "empty", expected));
        }
        let numbers: HashMap<&str, usize> = files.iter().map(String::as_str).zip(0..).collect();
        let mut tensors = BTreeMap::new();
        for (tensor, file) in pairs {
            if tensors.contains_key(&tensor) {
                let key = format!("weight_map.{tensor}");
                return Err(Error::format(path, FormatErrorKind::DuplicateKey { key }));
            }
            tensors.insert(tensor, numbers[file.as_str()]);
        }
        Ok(ShardIndex { path: path.into(), files, tensors, bytes: bytes.len() as u64 })
    }
}

/// Whether `name` can only be a file in the same folder, on every system.
fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(|c: char| matches!(c, '/' | '\\' | ':') || c.is_control())
}
