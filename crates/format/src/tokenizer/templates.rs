//! Header -> chat templates by name, with the place of each, by the precedence of transformers.

use super::added;
use crate::error::{Error, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, JsonFile, wrong_type};
use crate::header::gguf::GgufMetadata;
use crate::limits;
use crate::source::content;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the template that is used by default.
pub const DEFAULT: &str = "default";

/// The name of the template for chats with tools, where a model has one of that name, as in transformers.
pub const TOOL_USE: &str = "tool_use";

/// One chat template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplateSource {
    /// The Jinja text.
    pub text: String,
    /// The place where it was found.
    pub place: TemplatePlace,
}

/// Where a chat template was found: a file, or a key of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplatePlace {
    /// The file.
    pub file: PathBuf,
    /// The key within it; `None` when the template is the whole file.
    pub key: Option<String>,
}

impl fmt::Display for TemplatePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.key.as_ref().map_or(Ok(()), |key| write!(f, ", {key}"))
    }
}

type Templates = BTreeMap<String, ChatTemplateSource>;

fn source(text: &str, file: &Path, key: Option<String>) -> ChatTemplateSource {
    ChatTemplateSource { text: text.into(), place: TemplatePlace { file: file.into(), key } }
}

/// Template files (`chat_template.jinja` is the default one, those in `additional_chat_templates` have their own names)
/// take precedence over `tokenizer_config.json`. `chat_template.json`, which transformers reads only for processors, is
/// used where there is nothing else.
pub(super) fn of_folder(files: &ConfigFiles) -> Result<Templates> {
    let mut found = Templates::new();
    let additional = files.additional_chat_templates.iter().map(|(name, path)| (name.as_str(), path));
    for (name, path) in files.chat_template.iter().map(|path| (DEFAULT, path)).chain(additional) {
        found.insert(name.into(), source(&template_file(path)?, path, None));
    }
    if let (true, Some(config)) = (found.is_empty(), &files.tokenizer_config) {
        found = in_json(config)?;
    }
    if let (true, Some(path)) = (found.is_empty(), &files.chat_template_json) {
        found = in_json(&JsonFile::read(path)?)?;
    }
    Ok(found)
}

fn template_file(path: &Path) -> Result<String> {
    let bytes = content::read(path, limits::CHAT_TEMPLATE_BYTES)?;
    String::from_utf8(bytes).map_err(|error| {
        let key = path.file_name().unwrap_or_default().to_string_lossy();
        let found = format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to());
        Error::key_value(path, &key, found, "UTF-8")
    })
}

/// Reads `chat_template`: one template, or a list of named ones.
fn in_json(file: &JsonFile) -> Result<Templates> {
    const KEY: &str = "chat_template";
    let expected = "a template, or a list of objects with name and template";
    let wrong = |found: &Value| wrong_type(file.file(), KEY, found, expected);
    let place = |text: &str, key: String| source(text, file.file(), Some(key));
    match file.object().get(KEY) {
        None | Some(Value::Null) => Ok(Templates::new()),
        Some(Value::String(text)) => Ok(Templates::from([(DEFAULT.into(), place(text, KEY.into()))])),
        Some(Value::Array(named)) => {
            let entry = |(index, entry): (usize, &Value)| {
                let field = |key: &str| entry.get(key).and_then(Value::as_str).ok_or_else(|| wrong(entry));
                Ok((field("name")?.to_owned(), place(field("template")?, format!("{KEY}[{index}]"))))
            };
            named.iter().enumerate().map(entry).collect()
        }
        Some(other) => Err(wrong(other)),
    }
}

/// `tokenizer.chat_template` is the default one, `tokenizer.chat_template.NAME` are the others, as llama.cpp reads and
/// its converter writes them. Returns second the names that `tokenizer.chat_templates` lists and no key has.
pub(super) fn of_gguf(metadata: &GgufMetadata) -> Result<(Templates, Vec<String>)> {
    const KEY: &str = "tokenizer.chat_template";
    const LIST: &str = "tokenizer.chat_templates";
    let named = metadata.keys().filter_map(|key| {
        let name = key.strip_prefix(KEY)?.strip_prefix('.')?;
        (!name.is_empty()).then_some((name, key))
    });
    let mut found = Templates::new();
    for (name, key) in named.chain([(DEFAULT, KEY)]) {
        if let Some(text) = metadata.text(key)? {
            found.insert(name.into(), source(text, metadata.file(), Some(key.into())));
        }
    }
    let listed = metadata.strings(LIST)?.into_iter().flat_map(|names| names.iter());
    let listed = listed.map(String::from_utf8_lossy).filter(|name| !found.contains_key(name.as_ref()));
    let lost = listed.map(|name| format!("{LIST} lists {name:?}, which no key has: ignored")).take(16).collect();
    Ok((found, lost))
}

/// Texts of special tokens other than BOS and EOS, by their names in templates (`pad_token`): every `.._token` of
/// `tokenizer_config.json`, those that its `extra_special_tokens` names, and those that `special_tokens_map.json` adds
/// of the standard names.
pub(super) fn tokens_of_folder(files: &ConfigFiles) -> BTreeMap<String, String> {
    let config = files.tokenizer_config.as_ref().map(JsonFile::object);
    let tokens = config.into_iter().flatten().filter(|(key, _)| key.ends_with("_token"));
    let extra = config.and_then(|config| config.get("extra_special_tokens")).and_then(Value::as_object);
    let map = files.special_tokens_map.as_ref().map(JsonFile::object).into_iter().flatten();
    let map = map.filter(|(key, _)| STANDARD.iter().any(|(name, _)| name == key));
    let mut found = BTreeMap::new();
    for (key, value) in tokens.chain(extra.into_iter().flatten()).chain(map) {
        if let (false, Some(text)) = (["bos_token", "eos_token"].contains(&key.as_str()), added::text(value)) {
            found.entry(key.to_owned()).or_insert_with(|| text.to_owned());
        }
    }
    found
}

/// The other names that every tokenizer of transformers has, and the keys of their ids in a GGUF.
const STANDARD: [(&str, &str); 5] = [
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    // GGUF spells the key like this.
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("cls_token", "tokenizer.ggml.cls_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// Like [`tokens_of_folder`], for the ids that the file names; `text` returns the text of an id.
pub(super) fn tokens_of_gguf(
    metadata: &GgufMetadata,
    text: impl Fn(u32) -> Option<String>,
) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (name, key) in STANDARD {
        let id = metadata.unsigned(key)?.and_then(|id| u32::try_from(id).ok());
        found.extend(id.and_then(&text).map(|text| (name.to_owned(), text)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
