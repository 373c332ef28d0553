//! The kind of a GGUF file by its first keys, and files next to a model that are not models.

use super::{content, names};
use crate::bytes::Reader;
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::gguf::{Value, read_pair};
use crate::{json, limits};
use std::io::Read;
use std::path::Path;

/// Bytes from the start of a file in which writers put `general.architecture` and `general.type`.
const BYTES: u64 = 16 << 10;

/// The content of a GGUF file's first keys. A malformed file gives nothing here: its reader reports the error.
#[derive(Debug, Default)]
pub(super) struct About {
    architecture: Option<String>,
    kind: Option<String>,
    /// The number of tensors; 0 for a vocabulary without weights.
    pub(super) tensors: Option<u64>,
}

/// Reads the first keys of the GGUF file `path`.
pub(super) fn about(path: &Path) -> Result<About> {
    let (file, len) = content::open(path)?;
    let len = len.min(BYTES);
    let mut about = About::default();
    match general_keys(&mut Reader::new(path, len, len, file.take(len))?, &mut about) {
        Err(error @ Error::Io { .. }) => Err(error),
        // The keys are cut off by our own limit, or malformed.
        _ => Ok(about),
    }
}

/// Reads the keys while they are single values under `general.`.
fn general_keys<R: Read>(reader: &mut Reader<R>, about: &mut About) -> Result<()> {
    const WHAT: &str = "the first keys";
    if reader.take(WHAT)? != *b"GGUF" || !(2..=3).contains(&reader.u32(WHAT)?) {
        return Ok(());
    }
    about.tensors = Some(reader.u64(WHAT)?);
    for _ in 0..reader.u64(WHAT)? {
        let (key, value) = read_pair(reader)?;
        if !key.starts_with("general.") || matches!(value, Value::Array(_)) {
            return Ok(());
        }
        let Value::Text(text) = value else { continue };
        let text = String::from_utf8_lossy(&text).into_owned();
        match key.as_str() {
            "general.architecture" => about.architecture = Some(text),
            "general.type" => about.kind = Some(text),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a GGUF file that is not a language model by its own keys.
pub(super) fn refuse(path: &Path) -> Result<()> {
    about(path)?.refusal(path).map_or(Ok(()), Err)
}

/// How an adapter is used.
pub(crate) const WITH_BASE: &str = "give the base model, and this by load_adapter or --lora";

impl About {
    /// The error for a file that is not a language model by its own keys.
    pub(super) fn refusal(&self, path: &Path) -> Option<Error> {
        refusal(path, self.kind.as_deref(), self.architecture.as_deref())
    }
}

/// The error for a file that is not a language model by its `general.type` and `general.architecture`.
pub fn refusal(path: &Path, kind: Option<&str>, architecture: Option<&str>) -> Option<Error> {
    let (what, remedy) = match (kind, architecture) {
        (Some("mmproj"), _) | (_, Some("clip")) => {
            ("a multimodal projector (mmproj)", "give the language model's GGUF from the same repository")
        }
        (Some("adapter"), _) => ("a LoRA adapter", WITH_BASE),
        (Some("imatrix"), _) => ("an importance matrix for quantising", "give the model it was made for"),
        _ => return None,
    };
    Some(not_a_model(path, what, remedy))
}

/// The error for a PEFT adapter, with `path` its folder or a file of it. Its `adapter_config.json` names kind and base.
pub(super) fn adapter(path: &Path) -> Error {
    let folder = if path.is_dir() { path.into() } else { names::folder_of(path) };
    let file = folder.join("adapter_config.json");
    let config = content::read(&file, limits::JSON_BYTES).and_then(|bytes| json::value(&file, &bytes)).ok();
    let text = |key| config.as_ref().and_then(|config| config.get(key)?.as_str());
    let what = match text("peft_type") {
        None | Some("LORA") => "a LoRA adapter".to_owned(),
        Some(kind) => format!("a PEFT adapter ({})", short(kind)),
    };
    let base = match text("base_model_name_or_path") {
        Some(base) if !base.is_empty() => format!("the base model ({})", short(base)),
        _ => "the base model".into(),
    };
    not_a_model(path, &what, &format!("give {base}, and this by load_adapter or --lora"))
}

/// The beginning of a text from a file, short enough for an error message.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

pub(crate) fn not_a_model(path: &Path, what: &str, remedy: &str) -> Error {
    let kind = ArchitectureErrorKind::NotAModel { what: what.into(), remedy: remedy.into() };
    Error::Architecture { file: path.into(), kind }
}
