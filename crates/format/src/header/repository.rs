//! The file names in a model repository -> the role of each file, before any of them is read.

pub use super::config::sentence_transformers::is_dense_weights;
use super::config::sentence_transformers::{CONFIG, MODULES, TRANSFORMER, is_module_config};
use super::config::{PREPROCESSOR_FILE, PROCESSOR_FILE, QUANTIZATION_FILES};
use crate::error::Result;
use crate::limits;
use crate::source::index::ShardIndex;
use crate::source::names;
use std::path::Path;

/// The most bytes that are read from the file `name` of a safetensors folder, other than weights; `None` for a file
/// that is not read.
pub fn companion(name: &str) -> Option<u64> {
    if name
        .strip_prefix("additional_chat_templates/")
        .is_some_and(|name| !name.contains('/') && name.ends_with(".jinja"))
    {
        return Some(limits::CHAT_TEMPLATE_BYTES);
    }
    let side_file = QUANTIZATION_FILES.iter().any(|file| file.0 == name);
    match name {
        "chat_template.jinja" => Some(limits::CHAT_TEMPLATE_BYTES),
        "tokenizer.json" => Some(limits::TOKENIZER_JSON_BYTES),
        "vocab.json" | "merges.txt" | "vocab.txt" => Some(limits::VOCABULARY_BYTES),
        "tokenizer.model" | "spm.model" | "tiktoken.model" | "qwen.tiktoken" => Some(limits::SENTENCE_PIECE_BYTES),
        "config.json"
        | "generation_config.json"
        | "tokenizer_config.json"
        | "special_tokens_map.json"
        | "added_tokens.json"
        | "chat_template.json"
        | "adapter_config.json"
        | PROCESSOR_FILE
        | PREPROCESSOR_FILE
        | MODULES
        | CONFIG
        | TRANSFORMER => Some(limits::JSON_BYTES),
        name if is_module_config(name) => Some(limits::JSON_BYTES),
        name if name.ends_with(".safetensors.index.json") && !name.contains('/') => Some(limits::INDEX_BYTES),
        _ if side_file => Some(limits::JSON_BYTES),
        _ => None,
    }
}

/// Whether `name` is read only where there is no `tokenizer.json`.
pub fn is_other_vocabulary(name: &str) -> bool {
    matches!(
        name,
        "vocab.json"
            | "merges.txt"
            | "tokenizer.model"
            | "spm.model"
            | "vocab.txt"
            | "tiktoken.model"
            | "qwen.tiktoken"
            | "added_tokens.json"
    )
}

/// Whether `name` is a safetensors file of weights that can be part of a folder's model.
pub fn is_safetensors(name: &str) -> bool {
    let plain = !name.contains('/') && names::has_extension(name, "safetensors");
    plain && !name.starts_with("consolidated") && !name.starts_with("adapter_model")
}

/// Whether `name` is a GGUF file.
pub fn is_gguf(name: &str) -> bool {
    names::has_extension(name, "gguf")
}

/// Whether two file names are parts of one split model.
pub fn same_split(one: &str, other: &str) -> bool {
    match (names::SplitName::parse(one, "gguf"), names::SplitName::parse(other, "gguf")) {
        (Some(one), Some(other)) => one.same_model(&other),
        _ => false,
    }
}

/// `name` without its extension, and without its number when it is a part.
pub fn stem(name: &str) -> String {
    match names::SplitName::parse(name, "gguf") {
        Some(part) => part.stem,
        None => name.rsplit_once('.').map_or(name, |(stem, _)| stem).into(),
    }
}

/// The shards that the index at `path` names.
///
/// # Errors
/// `Io` when it cannot be read, `Format` when it is not an index or names a file outside of its folder.
pub fn shards(path: &Path) -> Result<Vec<String>> {
    Ok(ShardIndex::read(path)?.files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_is_bounded_and_anything_else_is_none() {
        assert_eq!(companion("config.json"), Some(limits::JSON_BYTES));
        assert_eq!(companion("quantize_config.json"), Some(limits::JSON_BYTES));
        assert_eq!(companion("modules.json"), Some(limits::JSON_BYTES));
        assert_eq!(companion("1_Pooling/config.json"), Some(limits::JSON_BYTES));
        assert_eq!(companion("additional_chat_templates/rag.jinja"), Some(limits::CHAT_TEMPLATE_BYTES));
        assert_eq!(companion("model.safetensors.index.json"), Some(limits::INDEX_BYTES));
        for name in ["README.md", "pytorch_model.bin", "a/config.json", "additional_chat_templates/a/b.jinja", "x.json"]
        {
            assert_eq!(companion(name), None, "{name}");
        }
    }

    #[test]
    fn parts_belong_together_and_have_one_stem() {
        assert!(same_split("a-q8_0-00001-of-00002.gguf", "a-q8_0-00002-of-00002.gguf"));
        assert!(!same_split("a-q8_0-00001-of-00002.gguf", "a-q4_0-00002-of-00002.gguf"));
        assert!(!same_split("a.gguf", "a.gguf"));
        assert_eq!(stem("a-q8_0-00001-of-00002.gguf"), "a-q8_0");
        assert_eq!(stem("a.q8_0.gguf"), "a.q8_0");
    }
}
