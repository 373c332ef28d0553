//! The files of sentence-transformers next to `config.json`: the modules after the model, and their settings.

use super::{JsonFile, present};
use crate::error::{Error, FormatErrorKind, Result};
use crate::source::content;
use crate::{json, limits};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file that lists the modules.
pub(crate) const MODULES: &str = "modules.json";

/// The file with the prompts.
pub(crate) const CONFIG: &str = "config_sentence_transformers.json";

/// The file with the longest length of texts.
pub(crate) const TRANSFORMER: &str = "sentence_bert_config.json";

/// The most modules of a model. Published ones have up to four.
const MOST_MODULES: usize = 16;

/// The files of sentence-transformers next to `config.json`.
#[derive(Debug)]
pub struct SentenceFiles {
    /// The modules, in order.
    pub modules: Vec<Module>,
    /// The `config.json` of the pooling module, with its name within the folder.
    pub pooling: Option<(String, JsonFile)>,
    /// The `config.json` of each dense layer, with the name of its folder.
    pub dense: Vec<(String, JsonFile)>,
    /// `config_sentence_transformers.json`.
    pub config: Option<JsonFile>,
    /// `sentence_bert_config.json`.
    pub transformer: Option<JsonFile>,
    /// Bytes read from all of these files.
    pub(super) bytes: u64,
}

/// One entry of `modules.json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Module {
    #[serde(rename = "type")]
    class: String,
    #[serde(rename = "path")]
    folder: String,
}

impl Module {
    /// The class without its Python modules: `Pooling`.
    pub fn kind(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or_default()
    }
}

/// The file of a dense layer's weights.
pub(crate) const DENSE_WEIGHTS: &str = "model.safetensors";

/// Whether `name` is the `config.json` of a module: `1_Pooling/config.json`.
pub(crate) fn is_module_config(name: &str) -> bool {
    let of_module = |folder: &str| is_folder(folder) && ["_Pooling", "_Dense"].iter().any(|end| folder.ends_with(end));
    name.strip_suffix("/config.json").is_some_and(of_module)
}

/// Whether `name` is the file of a dense layer's weights: `2_Dense/model.safetensors`.
pub fn is_dense_weights(name: &str) -> bool {
    let folder = name.strip_suffix(DENSE_WEIGHTS).and_then(|folder| folder.strip_suffix('/'));
    folder.is_some_and(|folder| is_folder(folder) && folder.ends_with("_Dense"))
}

/// Whether `name` names a single folder, and leads nowhere else.
fn is_folder(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':'])
}

impl SentenceFiles {
    /// Reads the files in `folder`; `None` without a `modules.json`.
    ///
    /// # Errors
    /// `Format` when a file is malformed, `Io` when one cannot be read.
    pub(super) fn read(folder: &Path) -> Result<Option<SentenceFiles>> {
        let Some(path) = present(folder, MODULES)? else { return Ok(None) };
        let bytes = content::read(&path, limits::JSON_BYTES)?;
        let modules = modules(&path, &bytes)?;
        let of_kind = |kind| modules.iter().filter(move |module| module.kind() == kind).map(|module| &module.folder);
        let read = |name: &String| JsonFile::optional(&folder.join(name), "config.json");
        let pooling = match of_kind("Pooling").next() {
            None => None,
            Some(name) => read(name)?.map(|file| (format!("{name}/config.json"), file)),
        };
        let dense = of_kind("Dense").filter_map(|name| Some(read(name).transpose()?.map(|file| (name.clone(), file))));
        let dense: Vec<_> = dense.collect::<Result<_>>()?;
        let config = JsonFile::optional(folder, CONFIG)?;
        let transformer = JsonFile::optional(folder, TRANSFORMER)?;
        let files = pooling.iter().chain(&dense).map(|(_, file)| file).chain(&config).chain(&transformer);
        let bytes = bytes.len() as u64 + files.map(|file| file.bytes).sum::<u64>();
        Ok(Some(SentenceFiles { modules, pooling, dense, config, transformer, bytes }))
    }

    /// The paths of all files that errors name.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let modules = self.pooling.iter_mut().chain(&mut self.dense).map(|(_, file)| file);
        modules.chain(&mut self.config).chain(&mut self.transformer).map(|file| &mut file.path)
    }
}

fn modules(path: &Path, bytes: &[u8]) -> Result<Vec<Module>> {
    let value = json::value(path, bytes).map_err(|error| content::unsupported(path, bytes).unwrap_or(error))?;
    let modules: Vec<Module> = serde_json::from_value(value)
        .map_err(|error| Error::format(path, FormatErrorKind::Json { message: error.to_string() }))?;
    if modules.len() > MOST_MODULES {
        let expected = format!("at most {MOST_MODULES}");
        return Err(Error::key_value(path, "(the whole file)", format!("{} modules", modules.len()), expected));
    }
    // The model itself is in the folder.
    match modules.iter().find(|module| !module.folder.is_empty() && !is_folder(&module.folder)) {
        Some(Module { folder, .. }) => {
            Err(Error::key_value(path, "path", format!("{folder:?}"), "the name of a folder next to this file"))
        }
        None => Ok(modules),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_by_their_class_and_lie_in_the_folder() {
        let read = |text: &str| modules(Path::new(MODULES), text.as_bytes());
        let found = read(
            r#"[{"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "path": "1_Pooling"}]"#,
        );
        let found = found.unwrap();
        assert_eq!(found.iter().map(Module::kind).collect::<Vec<_>>(), ["Transformer", "Pooling"]);
        for damaged in [
            "{}",
            "[1]",
            r#"[{"type": "Pooling"}]"#,
            r#"[{"type": "Pooling", "path": "../1_Pooling"}]"#,
            r#"[{"type": "Pooling", "path": "/tmp"}]"#,
            r#"[{"type": "Pooling", "path": ".."}]"#,
        ] {
            assert!(matches!(read(damaged), Err(Error::Format { .. })), "{damaged}");
        }
        assert!(is_module_config("1_Pooling/config.json") && is_dense_weights("2_Dense/model.safetensors"));
        assert!(!is_dense_weights("model.safetensors") && !is_dense_weights("../2_Dense/model.safetensors"));
        for name in ["config.json", "a/1_Pooling/config.json", "../config.json", "onnx/config.json"] {
            assert!(!is_module_config(name), "{name}");
        }
    }
}
