//! ModelSource -> Header: the files' descriptions of the model, with every tensor located. No weight byte is read.

pub mod config;
pub mod gguf;
pub mod repository;
pub mod safetensors;

use crate::error::Result;
use crate::source::{Format, ModelSource, sidecar};
use crate::tokenizer::TokenizerFiles;
use model_factory_dtypes::DType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// The stored element type.
    pub dtype: DType,
    /// Dimensions, outermost first; a linear weight is `[outputs, inputs]`. Empty is a scalar.
    pub shape: Vec<u64>,
    /// The file, as an index into [`ModelSource::files`].
    pub file: usize,
    /// The first byte, from the start of that file.
    pub offset: u64,
    /// Length in bytes; `offset + bytes` lies within the file.
    pub bytes: u64,
}

/// Every tensor of a model by name, over all of its files.
pub type TensorTable = BTreeMap<String, TensorInfo>;

/// The parsed header of one model, whatever its format and number of files.
#[derive(Debug)]
pub struct Header {
    /// The files that the header was read from.
    pub source: ModelSource,
    /// Every tensor by name.
    pub tensors: TensorTable,
    /// The model's own description.
    pub metadata: Metadata,
    /// What the file of a GGUF model's vision tower says, where the source has one.
    pub projector: Option<Projector>,
    /// Bytes read from all files for this.
    pub bytes_read: u64,
    /// Oddities of the files that do no harm.
    pub warnings: Vec<String>,
    /// The files of the tokenizer, once they were read. They are kept for building it.
    pub tokenizer: OnceLock<TokenizerFiles>,
}

/// The keys and tensors of the file that holds the vision tower of a GGUF model.
#[derive(Debug)]
pub struct Projector {
    /// Its keys.
    pub metadata: gguf::GgufMetadata,
    /// Its tensors by name, none of which the language model has.
    pub tensors: TensorTable,
}

/// Where a model's description comes from. Complete: code that uses a header has to handle each case.
#[derive(Debug)]
pub enum Metadata {
    /// The key-value section of the (first) GGUF file.
    Gguf(gguf::GgufMetadata),
    /// `config.json` and its companions in a safetensors folder.
    Config(Box<config::ConfigFiles>),
}

/// Typed access to named values; a value of the wrong type is an error that names file and key, an absent value (or a
/// JSON `null`) is `None`.
pub trait Fields {
    /// The file of the values.
    fn file(&self) -> &Path;
    /// Whether the key is present and not `null`.
    fn has(&self, key: &str) -> bool;
    /// A non-negative whole number.
    fn unsigned(&self, key: &str) -> Result<Option<u64>>;
    /// A finite number, integers included.
    fn number(&self, key: &str) -> Result<Option<f64>>;
    /// A boolean.
    fn boolean(&self, key: &str) -> Result<Option<bool>>;
    /// A text.
    fn text(&self, key: &str) -> Result<Option<&str>>;
}

impl Header {
    /// Reads the headers of `source`.
    ///
    /// # Errors
    /// Any [`Error`](crate::Error) but `Architecture`: the files cannot be read, are malformed, or contradict each
    /// other (a stale index, a missing part, a tensor past the end of its file).
    pub fn read(source: ModelSource) -> Result<Header> {
        match source.format {
            Format::Gguf => gguf::read(source),
            Format::Safetensors => safetensors::read(source),
        }
    }

    /// The paths of all files, including those that errors name.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let ModelSource { path, folder, files, index, .. } = &mut self.source;
        let (gguf, config) = match &mut self.metadata {
            Metadata::Gguf(metadata) => (Some(&mut metadata.file), None),
            Metadata::Config(files) => (None, Some(files.paths())),
        };
        let source = [path, folder].into_iter().chain(index).chain(files.iter_mut().map(|file| &mut file.path));
        let projector = self.projector.iter_mut().map(|projector| &mut projector.metadata.file);
        let tokenizer = self.tokenizer.get_mut().into_iter().flat_map(TokenizerFiles::paths);
        source.chain(gguf).chain(projector).chain(config.into_iter().flatten()).chain(tokenizer)
    }
}

/// Bytes of a tensor; `None` where they are not a whole number below 2^63.
fn stored_bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    let elements = shape.iter().try_fold(1_u64, |product, dimension| product.checked_mul(*dimension))?;
    dtype.bytes_of(elements).filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// Refuses the tensors of a LoRA, by themselves or next to the weights that they were never merged into.
fn refuse_adapter(source: &ModelSource, tensors: &TensorTable) -> Result<()> {
    let of_lora = |name: &str| {
        let name = name.to_ascii_lowercase();
        let ends =
            [".lora_a", ".lora_b", ".lora_down.weight", ".lora_up.weight", ".lora_embedding_a", ".lora_embedding_b"];
        ends.iter().any(|end| name.ends_with(end)) || [".lora_a.", ".lora_b."].iter().any(|part| name.contains(part))
    };
    let Some(tensor) = tensors.values().find(|tensor| of_lora(&tensor.name)) else { return Ok(()) };
    let (what, remedy) = match tensors.keys().all(|name| of_lora(name)) {
        true => (format!("a LoRA adapter (tensor {})", tensor.name), sidecar::WITH_BASE),
        false => {
            let what = format!("a model with a LoRA adapter that is not merged (tensor {})", tensor.name);
            (what, "give the base model, or merge the adapter into it")
        }
    };
    Err(sidecar::not_a_model(&source.files[tensor.file].path, &what, remedy))
}
