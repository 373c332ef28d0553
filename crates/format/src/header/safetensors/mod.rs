//! safetensors, single and sharded, with a check of the index -> Header.

mod parse;

pub use parse::SafetensorsFile;

use super::config::sentence_transformers::DENSE_WEIGHTS;
use super::config::{ConfigFiles, present};
use super::{Header, Metadata, TensorInfo, TensorTable, refuse_adapter};
use crate::error::{Error, IncompleteKind, Result};
use crate::source::folder::file_name;
use crate::source::index::ShardIndex;
use crate::source::{ModelSource, SourceFile, content};
use std::collections::HashMap;
use std::sync::OnceLock;

pub(super) fn read(mut source: ModelSource) -> Result<Header> {
    let parsed = || {
        source.files.iter().enumerate().map(|(index, shard)| {
            let (file, len) = content::open(&shard.path)?;
            SafetensorsFile::parse(&shard.path, index, len, file)
        })
    };
    let config = ConfigFiles::read(&source.folder);
    if let Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }) = &config {
        // An adapter has no config.json of its own; other faults of the shards are reported after a missing file.
        parsed().flatten().try_for_each(|shard| refuse_adapter(&source, &shard.tensors))?;
    }
    let config = config?;
    let mut bytes_read = config.bytes();
    let mut warnings = source.notes.clone();
    let mut shards = Vec::with_capacity(source.files.len());
    for shard in parsed() {
        let SafetensorsFile { tensors, bytes_read: bytes } = shard?;
        bytes_read += bytes;
        shards.push(tensors);
    }
    let mut tensors = match &source.index {
        Some(path) => {
            let index = ShardIndex::read(path)?;
            bytes_read += index.bytes;
            audit(&source, &index, shards, &mut warnings)?
        }
        None => unite(&source, shards)?,
    };
    refuse_adapter(&source, &tensors)?;
    bytes_read += add_dense(&mut source, &config, &mut tensors)?;
    Ok(Header {
        source,
        tensors,
        projector: None,
        metadata: Metadata::Config(Box::new(config)),
        bytes_read,
        warnings,
        tokenizer: OnceLock::new(),
    })
}

/// Adds the tensors of the dense layers after the pooling, each named after its folder: `2_Dense/linear.weight`. Returns the bytes
/// that were read.
fn add_dense(source: &mut ModelSource, config: &ConfigFiles, tensors: &mut TensorTable) -> Result<u64> {
    let mut bytes_read = 0;
    for (folder, _) in config.sentence_transformers.iter().flat_map(|files| &files.dense) {
        let Some(path) = present(&source.folder.join(folder), DENSE_WEIGHTS)? else { continue };
        let (file, bytes) = content::open(&path)?;
        let parsed = SafetensorsFile::parse(&path, source.files.len(), bytes, file)?;
        source.files.push(SourceFile { path, bytes });
        bytes_read += parsed.bytes_read;
        tensors.extend(parsed.tensors.into_values().map(|tensor| {
            let name = format!("{folder}/{}", tensor.name);
            (name.clone(), TensorInfo { name, ..tensor })
        }));
    }
    Ok(bytes_read)
}

/// The tensors of shards without an index; a tensor in two shards is a contradiction.
fn unite(source: &ModelSource, shards: Vec<TensorTable>) -> Result<TensorTable> {
    let mut all = TensorTable::new();
    for (name, tensor) in shards.into_iter().flatten() {
        if let Some(other) = all.get(&name) {
            let (one, other) = (file_name(&source.files[other.file].path), file_name(&source.files[tensor.file].path));
            let one = format!("{one} holds tensor {name}");
            let other = format!("{other} holds it too, and no index says which one counts; download the model again");
            return Err(Error::contradiction(&source.folder, one, other));
        }
        all.insert(name, tensor);
    }
    Ok(all)
}

/// Compares the index with the shards. A tensor that is not where the index says is an error; a tensor that only a
/// shard has is used, like in transformers, with a warning.
fn audit(
    source: &ModelSource,
    index: &ShardIndex,
    shards: Vec<TensorTable>,
    warnings: &mut Vec<String>,
) -> Result<TensorTable> {
    let numbers: HashMap<String, usize> = source.files.iter().map(|file| file_name(&file.path)).zip(0..).collect();
    let placed = index.tensors.iter().map(|(name, file)| (name, &index.files[*file]));
    let mut wrong =
        placed.filter(|(name, file)| !numbers.get(*file).is_some_and(|number| shards[*number].contains_key(*name)));
    if let Some((name, file)) = wrong.next() {
        let elsewhere = shards.iter().position(|shard| shard.contains_key(name));
        let more = match wrong.count() {
            0 => String::new(),
            more => format!(" (and {more} more like it)"),
        };
        let one = format!("it places tensor {name} in {file}{more}");
        let remedy = "the index is stale or a shard is of another model: download index and shards again";
        let other = match elsewhere {
            Some(number) => format!("{} holds it; {remedy}", file_name(&source.files[number].path)),
            None => format!("no shard holds it; {remedy}"),
        };
        return Err(Error::contradiction(&index.path, one, other));
    }
    let mut all = TensorTable::new();
    let mut unlisted = Vec::new();
    for (name, tensor) in shards.into_iter().flatten() {
        match index.tensors.get(&name) {
            Some(file) if numbers.get(&index.files[*file]) == Some(&tensor.file) => {}
            Some(file) => {
                let (other, file) = (file_name(&source.files[tensor.file].path), &index.files[*file]);
                warnings.push(format!("{other} holds another {name}; the one in {file} is used, as the index says"));
                continue;
            }
            None if all.contains_key(&name) => {
                let one = format!("several shards hold tensor {name}");
                let other = "the index does not say which one counts; download the model again";
                return Err(Error::contradiction(&index.path, one, other));
            }
            None => unlisted.push(name.clone()),
        }
        all.insert(name, tensor);
    }
    if let Some(first) = unlisted.first() {
        let count = unlisted.len();
        warnings.push(format!("{count} tensors are in the shards but not in the index, the first is {first}"));
    }
    Ok(all)
}
