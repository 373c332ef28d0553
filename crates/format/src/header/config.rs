//! `config.json` and its companions, as written by transformers 4 and 5.

pub mod sentence_transformers;

use super::Fields;
use crate::error::{Error, FormatErrorKind, Result};
use crate::source::content;
use crate::{json, limits};
use sentence_transformers::SentenceFiles;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files next to `config.json` that say how the weights are quantized: (name, the section that describes it, the method
/// where the section has no `quant_method`).
pub const QUANTIZATION_FILES: &[(&str, Option<&str>, &str)] = &[
    ("quantize_config.json", None, "GPTQ"),
    ("quant_config.json", None, "AWQ"),
    ("hf_quant_config.json", Some("quantization"), "ModelOpt"),
    ("quantization_config.json", None, "quantization"),
    ("quanto_qmap.json", None, "quanto"),
];

/// The JSON files that describe a safetensors model.
#[derive(Debug, Default)]
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
    /// The vocabulary in another form, where there is no `tokenizer.json`.
    pub vocabulary: Option<VocabularyFiles>,
    /// `added_tokens.json`, where there is no `tokenizer.json`.
    pub added_tokens: Option<JsonFile>,
    /// The path of `chat_template.jinja`.
    pub chat_template: Option<PathBuf>,
    /// The paths of `additional_chat_templates/NAME.jinja`, by name.
    pub additional_chat_templates: BTreeMap<String, PathBuf>,
    /// The path of `chat_template.json`.
    pub chat_template_json: Option<PathBuf>,
    /// The first file next to `config.json` that says how the weights are quantized.
    pub quantization: Option<JsonFile>,
    /// The files of sentence-transformers.
    pub sentence_transformers: Option<SentenceFiles>,
}

/// The files of a vocabulary without a `tokenizer.json`; their content is large and read on demand. Complete.
#[derive(Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum VocabularyFiles {
    /// Byte-level BPE in `vocab.json` and `merges.txt`.
    Merges { vocab: PathBuf, merges: Option<PathBuf> },
    /// A SentencePiece model in `tokenizer.model`.
    SentencePiece(PathBuf),
    /// The SentencePiece model of DeBERTa 2 and 3 in `spm.model`.
    Deberta(PathBuf),
    /// A WordPiece vocabulary in `vocab.txt`, one token a line.
    WordPiece(PathBuf),
    /// A tiktoken vocabulary in `tiktoken.model` or `qwen.tiktoken`.
    Tiktoken(PathBuf),
}

/// One JSON file whose root is an object.
#[derive(Debug, Default)]
pub struct JsonFile {
    path: PathBuf,
    object: Map<String, Value>,
    bytes: u64,
}

/// A nested object of a [`JsonFile`]; keys in errors carry its name (`rope_scaling.factor`).
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    file: &'a Path,
    parent: Option<&'a Section<'a>>,
    name: &'a str,
    object: &'a Map<String, Value>,
}

impl ConfigFiles {
    /// `config.json` without companions.
    pub fn alone(config: JsonFile) -> ConfigFiles {
        ConfigFiles { config, ..ConfigFiles::default() }
    }

    /// The paths of all files, including those that errors name.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let json = [&mut self.generation, &mut self.tokenizer_config, &mut self.special_tokens_map];
        let json = json.into_iter().chain([&mut self.added_tokens, &mut self.quantization]).flatten();
        let json = [&mut self.config].into_iter().chain(json).map(|file| &mut file.path);
        let vocabulary = self.vocabulary.iter_mut().flat_map(|files| match files {
            VocabularyFiles::Merges { vocab, merges } => [Some(vocab), merges.as_mut()],
            VocabularyFiles::SentencePiece(file)
            | VocabularyFiles::Deberta(file)
            | VocabularyFiles::WordPiece(file)
            | VocabularyFiles::Tiktoken(file) => [Some(file), None],
        });
        let templates = [&mut self.chat_template, &mut self.chat_template_json].into_iter().flatten();
        let templates = templates.chain(self.additional_chat_templates.values_mut());
        let sentences = self.sentence_transformers.iter_mut().flat_map(SentenceFiles::paths);
        json.chain(vocabulary.flatten()).chain(templates).chain(&mut self.tokenizer).chain(sentences)
    }

    /// Reads `config.json` and its companions in `folder`.
    ///
    /// # Errors
    /// `Incomplete` when `config.json` is missing or a companion is a broken link, `Format` when one is malformed.
    pub fn read(folder: &Path) -> Result<ConfigFiles> {
        let config = JsonFile::optional(folder, "config.json")?.ok_or_else(|| {
            let why = "it says what the tensors mean; download it from the model's repository into this folder";
            Error::file_missing(folder, "config.json", why)
        })?;
        let tokenizer = present(folder, "tokenizer.json")?;
        let (vocabulary, added_tokens) = match tokenizer {
            Some(_) => (None, None),
            None => (VocabularyFiles::find(folder)?, JsonFile::optional(folder, "added_tokens.json")?),
        };
        Ok(ConfigFiles {
            generation: JsonFile::optional(folder, "generation_config.json")?,
            tokenizer_config: JsonFile::optional(folder, "tokenizer_config.json")?,
            special_tokens_map: JsonFile::optional(folder, "special_tokens_map.json")?,
            vocabulary,
            added_tokens,
            tokenizer,
            chat_template: present(folder, "chat_template.jinja")?,
            additional_chat_templates: additional_chat_templates(&folder.join("additional_chat_templates"))?,
            chat_template_json: present(folder, "chat_template.json")?,
            sentence_transformers: SentenceFiles::read(folder)?,
            quantization: QUANTIZATION_FILES
                .iter()
                .find_map(|(name, ..)| JsonFile::optional(folder, name).transpose())
                .transpose()?,
            ..ConfigFiles::alone(config)
        })
    }

    /// Bytes read from all of these files.
    pub fn bytes(&self) -> u64 {
        let companions = [&self.generation, &self.tokenizer_config, &self.special_tokens_map];
        let companions = companions.into_iter().chain([&self.added_tokens, &self.quantization]).flatten();
        let sentences = self.sentence_transformers.as_ref().map_or(0, |files| files.bytes);
        self.config.bytes + companions.map(|file| file.bytes).sum::<u64>() + sentences
    }
}

impl VocabularyFiles {
    fn find(folder: &Path) -> Result<Option<VocabularyFiles>> {
        if let Some(vocab) = present(folder, "vocab.json")? {
            return Ok(Some(VocabularyFiles::Merges { vocab, merges: present(folder, "merges.txt")? }));
        }
        type Form = fn(PathBuf) -> VocabularyFiles;
        let forms: [(&str, Form); 5] = [
            ("tokenizer.model", VocabularyFiles::SentencePiece),
            ("spm.model", VocabularyFiles::Deberta),
            ("tiktoken.model", VocabularyFiles::Tiktoken),
            ("vocab.txt", VocabularyFiles::WordPiece),
            ("qwen.tiktoken", VocabularyFiles::Tiktoken),
        ];
        forms.iter().find_map(|(name, form)| Some(present(folder, name).transpose()?.map(form))).transpose()
    }
}

/// The path of `name` in `folder` if it is there.
pub(super) fn present(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let path = folder.join(name);
    Ok(content::length_if_there(&path)?.map(|_| path))
}

/// The files `NAME.jinja` in `folder` by name; none where there is no such folder.
fn additional_chat_templates(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(Error::io(folder, error)),
    };
    let mut found = BTreeMap::new();
    for entry in entries.take(limits::FOLDER_ENTRIES) {
        let path = entry.map_err(|error| Error::io(folder, error))?.path();
        let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".jinja"));
        if let Some(name) = name.map(str::to_owned) {
            content::regular_file(&path)?;
            found.insert(name, path);
        }
        if found.len() > limits::CHAT_TEMPLATES {
            let (what, found, limit) = ("templates in this folder", found.len() as u64, limits::CHAT_TEMPLATES as u64);
            return Err(Error::format(folder, FormatErrorKind::TooMany { what, found, limit }));
        }
    }
    Ok(found)
}

impl JsonFile {
    /// Reads the JSON file at `path`.
    ///
    /// # Errors
    /// `Io` when it cannot be read, `Format` when it is too long, not JSON, not an object, or has a key twice.
    pub fn read(path: &Path) -> Result<JsonFile> {
        JsonFile::parse(path, &content::read(path, limits::JSON_BYTES)?)
    }

    /// Parses `bytes` as the content of the file `path`.
    ///
    /// # Errors
    /// `Format`, as in [`JsonFile::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<JsonFile> {
        let value = json::value(path, bytes).map_err(|error| content::unsupported(path, bytes).unwrap_or(error))?;
        match value {
            Value::Object(object) => Ok(JsonFile { path: path.into(), object, bytes: bytes.len() as u64 }),
            other => Err(key_type(path, "(the whole file)".into(), &other, "an object")),
        }
    }

    /// Reads the JSON file `name` in `folder` if it is there.
    ///
    /// # Errors
    /// As in [`JsonFile::read`], and `Incomplete` for a broken link.
    pub fn optional(folder: &Path, name: &str) -> Result<Option<JsonFile>> {
        present(folder, name)?.map(|path| JsonFile::read(&path)).transpose()
    }

    /// The raw object.
    pub fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// The nested object under `key`; `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is not an object.
    pub fn section<'a>(&'a self, key: &'a str) -> Result<Option<Section<'a>>> {
        self.whole().of(key)
    }
}

impl<'a> Section<'a> {
    /// The raw object.
    pub fn object(&self) -> &'a Map<String, Value> {
        self.object
    }

    /// The object nested in this one under `key`; `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is not an object.
    pub fn section(&'a self, key: &'a str) -> Result<Option<Section<'a>>> {
        Section { parent: Some(self), ..*self }.of(key)
    }

    /// The object under `key` of this one, which must be the file's root; `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is not an object.
    pub fn of(self, key: &'a str) -> Result<Option<Section<'a>>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Section { name: key, object, ..self }))
    }

    /// The object of the file's root that contains this one, or is this one.
    pub fn root(&self) -> &'a Map<String, Value> {
        self.parent.map_or(self.object, |parent| parent.root())
    }

    /// The path of this object from the root of the file: `quantization_config.config_groups`.
    pub fn path(&self) -> String {
        self.parent.map_or_else(|| self.name.to_owned(), |parent| parent.dotted(self.name))
    }

    /// The path of `key` in this object.
    pub fn dotted(&self, key: &str) -> String {
        let key = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        self.parent.map_or(key.clone(), |parent| parent.dotted(&key))
    }

    /// The list of strings under `key`; an entry that is no string is an error. `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is not such a list.
    pub fn strings(self, key: &str) -> Result<Option<impl Iterator<Item = Result<&'a str>>>> {
        let wrong = move |found: &Value| wrong_type(self.file, &self.dotted(key), found, "a list of strings");
        let Some(list) = self.get(key) else { return Ok(None) };
        let list = list.as_array().ok_or_else(|| wrong(list))?;
        Ok(Some(list.iter().map(move |entry| entry.as_str().ok_or_else(|| wrong(entry)))))
    }

    /// The list of whole numbers under `key`; `None` when absent or `null`.
    ///
    /// # Errors
    /// `Format` when the value is not such a list.
    pub fn integers(self, key: &str) -> Result<Option<Vec<u64>>> {
        let wrong = |found: &Value| wrong_type(self.file, &self.dotted(key), found, "a list of whole numbers");
        let Some(list) = self.get(key) else { return Ok(None) };
        let list = list.as_array().ok_or_else(|| wrong(list))?;
        list.iter().map(|entry| whole_number(entry).ok_or_else(|| wrong(entry))).collect::<Result<_>>().map(Some)
    }

    /// The value under `key`, or where that is `outer.inner`, in the object nested in this one.
    fn get(&self, key: &str) -> Option<&'a Value> {
        let nested = || key.split_once('.').and_then(|(outer, inner)| self.object.get(outer)?.as_object()?.get(inner));
        self.object.get(key).or_else(nested).filter(|value| !value.is_null())
    }

    fn typed<T>(&self, key: &str, expected: &'static str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| key_type(self.file, self.dotted(key), value, expected))
    }
}

/// Accepts `4096`, or `4096.0` as some writers have it; not `1.5`, and no float beyond the integers it represents exactly.
fn whole_number(value: &Value) -> Option<u64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=EXACT).contains(number));
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

fn key_type(file: &Path, key: String, found: &Value, expected: &'static str) -> Error {
    Error::format(file, FormatErrorKind::KeyType { key, found: describe(found), expected })
}

/// The error for `key` with the wrong value `found`, whose beginning is quoted.
pub fn wrong_type(file: &Path, key: &str, found: &Value, expected: &'static str) -> Error {
    let found = found.to_string().chars().take(60).collect();
    Error::format(file, FormatErrorKind::KeyType { key: key.into(), found, expected })
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("the truth value {value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            format!("the string {short:?}{}", if short.len() < text.len() { " (shortened)" } else { "" })
        }
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(_) => "an object".into(),
    }
}

/// A JSON object of a file, for its [`Fields`].
pub trait JsonObject {
    /// The object; if it is the file's root, it has no name.
    fn whole(&self) -> Section<'_>;
}

impl JsonObject for JsonFile {
    fn whole(&self) -> Section<'_> {
        Section { file: &self.path, parent: None, name: "", object: &self.object }
    }
}

impl JsonObject for Section<'_> {
    fn whole(&self) -> Section<'_> {
        *self
    }
}

impl<O: JsonObject> Fields for O {
    fn file(&self) -> &Path {
        self.whole().file
    }
    fn has(&self, key: &str) -> bool {
        self.whole().get(key).is_some()
    }
    fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        self.whole().typed(key, "a non-negative whole number", whole_number)
    }
    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.whole().typed(key, "a finite number", |value| value.as_f64().filter(|number| number.is_finite()))
    }
    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.whole().typed(key, "true or false", Value::as_bool)
    }
    fn text(&self, key: &str) -> Result<Option<&str>> {
        self.whole().typed(key, "a string", Value::as_str)
    }
}
