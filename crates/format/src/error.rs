//! What can be wrong with a model's files: typed, located, with a remedy. Reading the files, finding out which model
//! they are, and judging it all use this one error.

mod remedy;

use model_factory_dtypes::DType;
use std::path::{Path, PathBuf};

/// A result of reading or understanding a model's files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why files are no supported model. Each variant has one exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum Error {
    /// The operating system returned an error (exit code 1).
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A file is not what a reader of its format accepts (exit code 10). The offset, in bytes from the start of the
    /// file, is given where the error is at one place.
    #[error("{}{}: {kind}", file.display(), at(*offset))]
    Format { file: PathBuf, offset: Option<u64>, kind: FormatErrorKind },
    /// The model is well formed but of an unsupported kind (exit code 11).
    #[error("{}: {kind}", file.display())]
    Architecture { file: PathBuf, kind: ArchitectureErrorKind },
    /// The weights are quantized in a way that would need a cast (exit code 12).
    #[error("{}: {scheme} is not supported: {why}", file.display())]
    Quantization { file: PathBuf, scheme: String, why: String },
    /// The model stores tensors that may change the result and that are not known (exit code 12).
    #[error("{}: {}", file.display(), unknown(names, family))]
    UnknownTensors { file: PathBuf, family: &'static str, names: Vec<String> },
    /// Parts are missing or contradict each other (exit code 15).
    #[error("{}: {kind}", file.display())]
    Incomplete { file: PathBuf, kind: IncompleteKind },
    /// The path holds several models (exit code 16).
    #[error("{} holds {} models; name one of them: {}", path.display(), candidates.len(), list(candidates))]
    Ambiguous { path: PathBuf, candidates: Vec<PathBuf> },
    /// Several files may hold the vision tower of a GGUF model (exit code 16).
    #[error(
        "{} files beside {} are named like its vision tower; name one by .mmproj(path) or --mmproj FILE: {}",
        candidates.len(), path.display(), list(candidates)
    )]
    AmbiguousProjector { path: PathBuf, candidates: Vec<PathBuf> },
}

/// Why a file is malformed, or of a kind that is not supported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum FormatErrorKind {
    /// A known key has a value of another type.
    #[error("key {key} is {found}, expected {expected}")]
    KeyType { key: String, found: String, expected: &'static str },
    /// A known key has an unsupported value.
    #[error("key {key} is {found}, expected {expected}")]
    KeyValue { key: String, found: String, expected: String },
    /// A key is absent and cannot be derived.
    #[error("key {key} is missing; {needed_for}")]
    KeyMissing { key: String, needed_for: &'static str },
    /// A known kind of file that holds no supported model.
    #[error("this is {what}, not a GGUF or safetensors file; {remedy}")]
    UnsupportedFile { what: &'static str, remedy: &'static str },
    /// A `tokenizer.model` whose bytes are no SentencePiece model.
    #[error("this is no SentencePiece model: {what}; get another copy of the file, or the model's tokenizer.json")]
    SentencePiece { what: &'static str },
    /// A vocabulary in an unsupported form.
    #[error("this is {what}; {remedy}")]
    OtherTokenizer { what: &'static str, remedy: &'static str },
    /// Bytes that no known format begins with: in hexadecimal, and also as text if they are text.
    #[error("not recognised: the file begins with {found}; expected a GGUF or safetensors file")]
    Unrecognised { found: String },
    /// An empty file.
    #[error("the file is empty; download it again")]
    EmptyFile,
    /// A device, pipe or socket.
    #[error("this is neither a regular file nor a folder; give a model file or its folder")]
    NotAFile,
    /// A folder without model files.
    #[error("no model in this folder ({found}); expected a .gguf file, or config.json with .safetensors files")]
    NoModel { found: String },
    /// A folder whose only weights are in an unsupported format.
    #[error("the only weights here are {what} ({name}); {remedy}")]
    OtherWeights { what: &'static str, name: String, remedy: &'static str },
    /// An unsupported GGUF version.
    #[error("GGUF version {found} is not supported, expected 2 or 3; {remedy}")]
    Version { found: u32, remedy: &'static str },
    /// A GGUF file of the other byte order; the version has its bytes reversed.
    #[error(
        "this GGUF file (version {version}) is big-endian, expected little-endian; convert the model again without --bigendian"
    )]
    BigEndian { version: u32 },
    /// Two GGUF files in one.
    #[error(
        "a second GGUF begins here: parts were joined with `cat`; keep the parts as separate files, or join them with `llama-gguf-split --merge`"
    )]
    Concatenated,
    /// A number that exceeds what any valid file has, or what fits.
    #[error("{what} is {found}, at most {limit} can be valid here; the file is damaged")]
    TooMany { what: &'static str, found: u64, limit: u64 },
    /// An empty key or tensor name.
    #[error("{what} is empty, expected a name; the file is damaged")]
    EmptyName { what: &'static str },
    /// A key or name that is not UTF-8; invalid bytes are shown as replacement characters.
    #[error("{what} {found:?} is not valid UTF-8; the file is damaged")]
    NotUtf8 { what: &'static str, found: String },
    /// A key that appears twice.
    #[error("key {key} appears twice, expected once; correct the file or get another copy")]
    DuplicateKey { key: String },
    /// A tensor that appears twice.
    #[error("tensor {name} appears twice, expected once; get another copy of the file")]
    DuplicateTensor { name: String },
    /// A GGUF value type outside the specification.
    #[error("key {key} has value type {found}, expected 0 to 12; the file is damaged or newer than this reader")]
    ValueType { key: String, found: u32 },
    /// An array of arrays.
    #[error("key {key} is an array of arrays, expected an array of plain values")]
    NestedArray { key: String },
    /// A tensor with too many dimensions.
    #[error("tensor {name} has {found} dimensions, expected at most {limit}")]
    Dimensions { name: String, found: usize, limit: usize },
    /// A tensor whose size is not a whole number of bytes; its shape is outermost first.
    #[error("tensor {name} of {dtype} with shape {shape:?} has no size in whole bytes below 2^63")]
    TensorSize { name: String, dtype: DType, shape: Vec<u64> },
    /// A row with a number of elements that is not a whole number of blocks.
    #[error("tensor {name} has rows of {row} elements, {dtype} needs a multiple of {}", dtype.block_len())]
    RowLength { name: String, row: u64, dtype: DType },
    /// A tensor that does not begin where the one before it ends, in bytes from the start of the data section.
    #[error(
        "tensor {name} begins at {found} of the data section, expected {expected}: tensors are stored without gap or overlap"
    )]
    TensorOffset { name: String, found: u64, expected: u64 },
    /// A byte range, from the start of the data section, that does not match dtype and shape.
    #[error("tensor {name} has data_offsets [{begin}, {end}], expected {expected} bytes from its dtype and shape")]
    TensorRange { name: String, begin: u64, end: u64, expected: u64 },
    /// Data after the last tensor.
    #[error("{bytes} bytes follow the last tensor, expected none; get another copy of the file")]
    TrailingBytes { bytes: u64 },
    /// JSON that does not parse, or has another structure than expected.
    #[error("unexpected JSON: {message}")]
    Json { message: String },
    /// A number that JSON does not allow.
    #[error("{token} is not JSON; replace it by a number or null")]
    NotANumber { token: &'static str },
}

/// Why an architecture is not supported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum ArchitectureErrorKind {
    /// The architecture has no table. The hint gives the kind of model and the nearest alternative, if it is a known
    /// one.
    #[error("architecture {found:?} is not supported{}; supported: {supported}", hint.map(|h| format!(" ({h})")).unwrap_or_default())]
    Unknown { found: String, supported: String, hint: Option<&'static str> },
    /// A known architecture uses a feature that its block does not support here.
    #[error("{feature} (from {key}) is not supported; expected {expected}")]
    Feature { feature: String, key: String, expected: String },
    /// The head that predicts further tokens was requested, and the model has none.
    #[error("there is no multi-token prediction head: {missing}; load the model without it")]
    NoPredictor { missing: String },
    /// The tower that sees images was requested, and the model has none that is known.
    #[error("there is no vision tower to load: {missing}; load the model without it")]
    NoTower { missing: String },
    /// Not a language model at all: an adapter, a projector, a vocabulary.
    #[error("this is {what}, not a language model; {remedy}")]
    NotAModel { what: String, remedy: String },
}

/// What is missing or contradictory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum IncompleteKind {
    /// A tensor the model needs is absent.
    #[error("tensor {name} is missing{}", nearest_list(nearest))]
    TensorMissing { name: String, nearest: Vec<String> },
    /// A tensor of an adapter for what is no linear layer of the model, or one whose products are not computed by themselves.
    #[error(
        "tensor {tensor} is for {module}, which is no linear layer of the model that takes adapters{}",
        nearest_list(nearest)
    )]
    NoSuchLayer { tensor: String, module: String, nearest: Vec<String> },
    /// A tensor's shape contradicts the model's sizes; both shapes are outermost first, and `because` names the
    /// quantities that the expected one is computed from.
    #[error("tensor {name} has shape {found:?}, expected {expected:?} ({because})")]
    TensorShape { name: String, found: Vec<u64>, expected: Vec<u64>, because: String },
    /// A tensor has a dtype that its role never has.
    #[error("tensor {name} is {found}, expected {expected}")]
    TensorDType { name: String, found: DType, expected: &'static str },
    /// A number in a tensor, at an index in stored order, is one that no sound model has there.
    #[error("tensor {name} has {found} at index {index}, expected {expected}; the file is damaged")]
    TensorValue { name: String, index: usize, found: f32, expected: &'static str },
    /// Two statements about the model, each with its source, that contradict each other.
    #[error("{one}, but {other}")]
    Contradiction { one: String, other: String },
    /// A missing file that belongs to the model, or that another file names.
    #[error("{name} is missing: {why}")]
    FileMissing { name: String, why: String },
    /// A file that ends within its header.
    #[error(
        "the file ends at byte {have}, within its header ({what} at byte {at}); the download is incomplete: fetch the file again"
    )]
    HeaderTruncated { what: &'static str, at: u64, have: u64 },
    /// A file that ends before its last tensor does; the name is the one of the first tensor past the end.
    #[error(
        "the download is incomplete: {have} of {need} bytes ({}%), {} bytes are missing from tensor {name} on; fetch the file again",
        percent(*have, *need),
        need.saturating_sub(*have)
    )]
    DataTruncated { name: String, have: u64, need: u64 },
    /// A link whose target does not exist.
    #[error("this link leads nowhere ({target}); download the file again")]
    BrokenLink { target: String },
    /// A file that a download tool has not finished.
    #[error("this is an unfinished download; finish it, or download the file again")]
    Unfinished,
}

impl Error {
    /// An [`Error::Io`] at `path`.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// An [`Error::Format`] without an offset.
    pub fn format(file: &Path, kind: FormatErrorKind) -> Self {
        Error::Format { file: file.into(), offset: None, kind }
    }

    /// An [`Error::Format`] for an unsupported value.
    pub fn key_value(file: &Path, key: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let (key, found, expected) = (key.into(), found.into(), expected.into());
        Error::format(file, FormatErrorKind::KeyValue { key, found, expected })
    }

    /// An [`Error::Format`] for a missing key.
    pub fn key_missing(file: &Path, key: &str, needed_for: &'static str) -> Self {
        Error::format(file, FormatErrorKind::KeyMissing { key: key.into(), needed_for })
    }

    /// An [`Error::Incomplete`] found in `file`.
    pub fn incomplete(file: &Path, kind: IncompleteKind) -> Self {
        Error::Incomplete { file: file.into(), kind }
    }

    /// An [`Error::Incomplete`] for two statements, each with its source, that contradict each other.
    pub fn contradiction(file: &Path, one: impl Into<String>, other: impl Into<String>) -> Self {
        Error::incomplete(file, IncompleteKind::Contradiction { one: one.into(), other: other.into() })
    }

    /// An [`Error::Incomplete`] for a missing file, with what names it or needs it.
    pub fn file_missing(shown_by: &Path, name: impl Into<String>, why: impl Into<String>) -> Self {
        Error::incomplete(shown_by, IncompleteKind::FileMissing { name: name.into(), why: why.into() })
    }
}

fn at(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

fn percent(have: u64, need: u64) -> u64 {
    u64::try_from(u128::from(have) * 100 / u128::from(need.max(1))).unwrap_or(100)
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The first `shown` names, and how many more there are.
pub fn some_of(names: &[String], shown: usize) -> String {
    let first = names.iter().take(shown).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > shown { format!("{first} and {} more", names.len() - shown) } else { first }
}

fn unknown(names: &[String], family: &str) -> String {
    let known = format!("known in models of the family {family}, and may change the result");
    match names {
        [name] => format!("the stored tensor {name} is not {known}"),
        _ => format!("{} stored tensors are not {known}: {}", names.len(), some_of(names, 3)),
    }
}

fn nearest_list(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; the nearest names here: {}", names.join(", ")) }
}

/// `text` with control characters and characters that change the direction of text escaped.
pub fn escaped(text: &str) -> String {
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if acts(c) {
            line.extend(c.escape_unicode())
        } else {
            line.push(c)
        }
        line
    })
}
