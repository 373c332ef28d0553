//! GGUF adapters, as `convert_lora_to_gguf.py` of llama.cpp writes them.

use super::{Pair, Stored, finite, open, pairs, shortened, source};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use crate::header::Fields;
use crate::header::gguf::GgufFile;
use crate::source::Format;
use crate::spec::ModelSpec;
use std::path::Path;

const ENDS: [&str; 2] = [".weight.lora_a", ".weight.lora_b"];

/// Reads the adapter at `path`, which must be of the architecture of `model`.
pub(super) fn read(path: &Path, model: &ModelSpec) -> Result<Stored> {
    let (file, bytes) = open(path)?;
    let GgufFile { metadata, tensors, .. } = GgufFile::parse(path, 0, bytes, file)?;
    let text = |key: &str, expected: &str| match metadata.text(key)? {
        Some(found) if found == expected => Ok(()),
        None => Err(Error::key_missing(path, key, "it says that the file is an adapter, and of which models")),
        Some(found) => {
            let found: String = found.chars().take(80).collect();
            Err(Error::key_value(path, key, crate::error::escaped(&found), expected))
        }
    };
    text("general.type", "adapter")?;
    text("adapter.type", "lora")?;
    let architecture = metadata.text("general.architecture")?.unwrap_or("nothing");
    if architecture != model.architecture {
        let one = format!("general.architecture is {}", crate::error::escaped(architecture));
        return Err(Error::contradiction(path, one, format!("the model is {}", model.architecture)));
    }
    const TOKENS: &str = "adapter.alora.invocation_tokens";
    if metadata.has(TOKENS) {
        let feature = "an adapter that begins at certain tokens (aLoRA)".to_owned();
        let kind = ArchitectureErrorKind::Feature { feature, key: TOKENS.into(), expected: "no such key".into() };
        return Err(Error::Architecture { file: path.into(), kind });
    }
    const ALPHA: &str = "adapter.lora.alpha";
    let alpha = metadata.number(ALPHA)?;
    let alpha = alpha.ok_or_else(|| Error::key_missing(path, ALPHA, "it scales what the adapter adds"))?;
    let pairs = pairs(
        path,
        tensors,
        |name| side(path, name),
        ENDS,
        |_, sides| {
            // A matrix of one row has one dimension in GGUF.
            let [a, b] = sides.map(|mut side| {
                if side.shape.len() == 1 {
                    side.shape.insert(0, 1);
                }
                side
            });
            let rank = b.shape.last().copied().unwrap_or_default();
            // llama.cpp's `get_scale`: without an alpha nothing is divided.
            let scale = if alpha == 0.0 { 1.0 } else { alpha / (rank as f64).max(1.0) };
            let scale = finite(path, ALPHA, alpha, scale)?;
            Ok(Pair { a, b, rank: None, scale })
        },
    )?;
    if pairs.is_empty() {
        let name = format!("blk.0..{}", ENDS[0]);
        return Err(Error::incomplete(path, IncompleteKind::TensorMissing { name, nearest: Vec::new() }));
    }
    let base = ["general.base_model.0.repo_url", "general.base_model.0.name"];
    let base = base.into_iter().find_map(|key| metadata.text(key).transpose()).transpose()?.map(shortened);
    Ok(Stored { source: source(path, Format::Gguf, path, bytes, None), base, pairs })
}

/// The layer of a tensor, and whether it is `B`.
fn side(file: &Path, name: &str) -> Result<(String, bool)> {
    let found = (0..2).find_map(|side| Some((name.strip_suffix(ENDS[side])?.to_owned(), side == 1)));
    found.ok_or_else(|| {
        let feature = format!("tensor {name}");
        let expected = format!("only tensors ..{} and ..{}", ENDS[0], ENDS[1]);
        let kind = ArchitectureErrorKind::Feature { feature, key: "the adapter's tensors".into(), expected };
        Error::Architecture { file: file.into(), kind }
    })
}
