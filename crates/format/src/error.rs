//! What can be wrong with a model's files: typed to the leaf, located, with the next move. Reading them, finding out what
//! model they are, and judging it share this one error.

mod remedy;

use model_factory_dtypes::DType;
use std::path::{Path, PathBuf};

/// A result of reading or understanding a model's files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why files are no model that is understood here. Each variant has one exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused (exit code 1).
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what a reader of its format accepts (exit code 10).
    #[error("{}{}: {kind}", file.display(), at(*offset))]
    Format {
        /// The file.
        file: PathBuf,
        /// Bytes from the start of the file, where one place is to blame.
        offset: Option<u64>,
        /// What is wrong there.
        kind: FormatErrorKind,
    },
    /// The model is well formed but of a kind that nothing here runs (exit code 11).
    #[error("{}: {kind}", file.display())]
    Architecture {
        /// The file that says so.
        file: PathBuf,
        /// What was found and what would run.
        kind: ArchitectureErrorKind,
    },
    /// The weights are quantised in a way that would need a cast here (exit code 12).
    #[error("{}: {scheme} is not supported: {why}", file.display())]
    Quantization {
        /// The file that says so.
        file: PathBuf,
        /// The scheme's name in words.
        scheme: String,
        /// What running it would need.
        why: String,
    },
    /// Tensors are stored that may change the result, and nothing here knows how (exit code 12).
    #[error("{}: {}", file.display(), unknown(names, family))]
    UnknownTensors {
        /// The file of the first.
        file: PathBuf,
        /// The family whose tables do not know them.
        family: &'static str,
        /// All of their names.
        names: Vec<String>,
    },
    /// Parts are missing or contradict each other (exit code 15).
    #[error("{}: {kind}", file.display())]
    Incomplete {
        /// The file that shows it.
        file: PathBuf,
        /// What is missing or contradicts what.
        kind: IncompleteKind,
    },
    /// The path holds several models (exit code 16).
    #[error("{} holds {} models; name one of them: {}", path.display(), candidates.len(), list(candidates))]
    Ambiguous {
        /// The path asked for.
        path: PathBuf,
        /// The models in it.
        candidates: Vec<PathBuf>,
    },
}

/// What makes a file malformed, or one of a kind that is not read here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// A known key has a value of another type.
    #[error("key {key} is {found}, expected {expected}")]
    KeyType {
        /// The metadata or JSON key.
        key: String,
        /// The type or value found.
        found: String,
        /// The type expected.
        expected: &'static str,
    },
    /// A known key has a value that no rule covers.
    #[error("key {key} is {found}, expected {expected}")]
    KeyValue {
        /// The metadata or JSON key.
        key: String,
        /// The value found.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A key that no rule can derive is absent.
    #[error("key {key} is missing; {needed_for}")]
    KeyMissing {
        /// The metadata or JSON key.
        key: String,
        /// What cannot be known without it.
        needed_for: &'static str,
    },
    /// A known kind of file that holds no model a reader here understands.
    #[error("this is {what}, not a GGUF or safetensors file; {remedy}")]
    UnsupportedFile {
        /// What it is.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A `tokenizer.model` whose bytes are no SentencePiece model.
    #[error("this is no SentencePiece model: {what}; get another copy of the file, or the model's tokenizer.json")]
    SentencePiece {
        /// What is wrong at that place.
        what: &'static str,
    },
    /// A vocabulary in a form that is not read here.
    #[error("this is {what}; {remedy}")]
    OtherTokenizer {
        /// What it is.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Bytes that no known format begins with.
    #[error("not recognised: the file begins with {found}; expected a GGUF or safetensors file")]
    Unrecognised {
        /// The first bytes in hexadecimal, and as text where they are text.
        found: String,
    },
    /// A file of no bytes.
    #[error("the file is empty; download it again")]
    EmptyFile,
    /// A device, pipe or socket.
    #[error("this is neither a regular file nor a folder; give a model file or its folder")]
    NotAFile,
    /// A folder without model files.
    #[error("no model in this folder ({found}); expected a .gguf file, or config.json with .safetensors files")]
    NoModel {
        /// What lies there instead.
        found: String,
    },
    /// A folder whose only weights are in a format that is not read here.
    #[error("the only weights here are {what} ({name}); {remedy}")]
    OtherWeights {
        /// What they are.
        what: &'static str,
        /// One of the files.
        name: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A GGUF version that is not read here.
    #[error("GGUF version {found} is not supported, expected 2 or 3; {remedy}")]
    Version {
        /// The version found.
        found: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// A GGUF file of the other byte order.
    #[error(
        "this GGUF file (version {version}) is big-endian, expected little-endian; convert the model again without --bigendian"
    )]
    BigEndian {
        /// The version, its bytes turned round.
        version: u32,
    },
    /// Two GGUF files in one.
    #[error(
        "a second GGUF begins here: parts were joined with `cat`; keep the parts as separate files, or join them with `llama-gguf-split --merge`"
    )]
    Concatenated,
    /// A number that exceeds what any sound file has, or what could fit.
    #[error("{what} is {found}, at most {limit} can be valid here; the file is damaged")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The number claimed.
        found: u64,
        /// The largest number accepted.
        limit: u64,
    },
    /// A key or tensor name of no bytes.
    #[error("{what} is empty, expected a name; the file is damaged")]
    EmptyName {
        /// What should have a name.
        what: &'static str,
    },
    /// A key or name that is no UTF-8.
    #[error("{what} {found:?} is not valid UTF-8; the file is damaged")]
    NotUtf8 {
        /// What should be UTF-8.
        what: &'static str,
        /// The bytes, with replacement characters.
        found: String,
    },
    /// A key that appears twice.
    #[error("key {key} appears twice, expected once; correct the file or get another copy")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A tensor that appears twice.
    #[error("tensor {name} appears twice, expected once; get another copy of the file")]
    DuplicateTensor {
        /// The tensor.
        name: String,
    },
    /// A GGUF value type outside the specification.
    #[error("key {key} has value type {found}, expected 0 to 12; the file is damaged or newer than this reader")]
    ValueType {
        /// The key.
        key: String,
        /// The type id found.
        found: u32,
    },
    /// An array of arrays.
    #[error("key {key} is an array of arrays, expected an array of plain values")]
    NestedArray {
        /// The key.
        key: String,
    },
    /// A tensor with too many dimensions.
    #[error("tensor {name} has {found} dimensions, expected at most {limit}")]
    Dimensions {
        /// The tensor.
        name: String,
        /// The number found.
        found: usize,
        /// The largest number accepted.
        limit: usize,
    },
    /// A tensor whose size is no number of bytes.
    #[error("tensor {name} of {dtype} with shape {shape:?} has no size in whole bytes below 2^63")]
    TensorSize {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: DType,
        /// Its shape, outermost first.
        shape: Vec<u64>,
    },
    /// A row that is no whole number of blocks.
    #[error("tensor {name} has rows of {row} elements, {dtype} needs a multiple of {}", dtype.block_len())]
    RowLength {
        /// The tensor.
        name: String,
        /// Elements of a row.
        row: u64,
        /// Its dtype.
        dtype: DType,
    },
    /// A tensor that begins elsewhere than where the one before it ends.
    #[error(
        "tensor {name} begins at {found} of the data section, expected {expected}: tensors are stored without gap or overlap"
    )]
    TensorOffset {
        /// The tensor.
        name: String,
        /// The offset found, from the start of the data section.
        found: u64,
        /// The offset that follows from the tensors before it.
        expected: u64,
    },
    /// A byte range that does not fit dtype and shape.
    #[error("tensor {name} has data_offsets [{begin}, {end}], expected {expected} bytes from its dtype and shape")]
    TensorRange {
        /// The tensor.
        name: String,
        /// First byte, from the start of the data section.
        begin: u64,
        /// First byte after it.
        end: u64,
        /// Bytes that dtype and shape need.
        expected: u64,
    },
    /// Data after the last tensor.
    #[error("{bytes} bytes follow the last tensor, expected none; get another copy of the file")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// JSON that does not parse, or not into what is expected.
    #[error("unexpected JSON: {message}")]
    Json {
        /// What the parser says.
        message: String,
    },
    /// A number that JSON does not have.
    #[error("{token} is not JSON; replace it by a number or null")]
    NotANumber {
        /// The word found.
        token: &'static str,
    },
}

/// Why an architecture does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureErrorKind {
    /// The architecture has no table here.
    #[error("architecture {found:?} is not supported; supported: {supported}{}", hint.map(|h| format!(" ({h})")).unwrap_or_default())]
    Unknown {
        /// The architecture named by the file.
        found: String,
        /// The architectures that run.
        supported: String,
        /// What kind of model it is and what comes nearest, when it is a known one.
        hint: Option<&'static str>,
    },
    /// A known architecture asks for something its block does not have here.
    #[error("{feature} (from {key}) is not supported; expected {expected}")]
    Feature {
        /// The feature in words.
        feature: String,
        /// The key that asks for it.
        key: String,
        /// What would run.
        expected: String,
    },
    /// The head that predicts further tokens was asked for, and the model has none.
    #[error("there is no multi-token prediction head: {missing}; load the model without it")]
    NoPredictor {
        /// What there would be.
        missing: String,
    },
    /// Not a language model at all: an adapter, a projector, a vocabulary.
    #[error("this is {what}, not a language model; {remedy}")]
    NotAModel {
        /// What it is.
        what: String,
        /// What to give instead.
        remedy: String,
    },
}

/// What is missing or contradictory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IncompleteKind {
    /// A tensor the model needs is absent.
    #[error("tensor {name} is missing{}", nearest_list(nearest))]
    TensorMissing {
        /// The name looked for.
        name: String,
        /// The most similar names present.
        nearest: Vec<String>,
    },
    /// A tensor's shape contradicts the model's sizes.
    #[error("tensor {name} has shape {found:?}, expected {expected:?} ({because})")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The stored shape, outermost first.
        found: Vec<u64>,
        /// The shape that follows from the metadata, outermost first.
        expected: Vec<u64>,
        /// The quantities the expectation is made of.
        because: String,
    },
    /// A tensor has a dtype that its role never has.
    #[error("tensor {name} is {found}, expected {expected}")]
    TensorDType {
        /// The tensor.
        name: String,
        /// The stored dtype.
        found: DType,
        /// The dtypes its role may have.
        expected: &'static str,
    },
    /// A number in a tensor is one that no sound model has there.
    #[error("tensor {name} has {found} at index {index}, expected {expected}; the file is damaged")]
    TensorValue {
        /// The tensor.
        name: String,
        /// Which of its elements, in stored order.
        index: usize,
        /// The number.
        found: f32,
        /// What it may be.
        expected: &'static str,
    },
    /// Two statements about the model exclude each other.
    #[error("{one}, but {other}")]
    Contradiction {
        /// The first statement, with its source.
        one: String,
        /// The second statement, with its source.
        other: String,
    },
    /// A file that belongs to the model is not there.
    #[error("{name} is missing: {why}")]
    FileMissing {
        /// The file's name.
        name: String,
        /// What names it or needs it.
        why: String,
    },
    /// A file that ends within its header.
    #[error(
        "the file ends at byte {have}, within its header ({what} at byte {at}); the download is incomplete: fetch the file again"
    )]
    HeaderTruncated {
        /// What was being read.
        what: &'static str,
        /// Where that begins.
        at: u64,
        /// The length of the file.
        have: u64,
    },
    /// A file that ends before its last tensor does.
    #[error(
        "the download is incomplete: {have} of {need} bytes ({}%), {} bytes are missing from tensor {name} on; fetch the file again",
        percent(*have, *need),
        need.saturating_sub(*have)
    )]
    DataTruncated {
        /// The first tensor past the end.
        name: String,
        /// The length of the file.
        have: u64,
        /// The length that the header asks for.
        need: u64,
    },
    /// A link whose target is gone.
    #[error("this link leads nowhere ({target}); download the file again")]
    BrokenLink {
        /// Where it leads.
        target: String,
    },
    /// A file that a download tool has not finished.
    #[error("this is an unfinished download; finish it, or download the file again")]
    Unfinished,
}

impl IncompleteKind {
    /// Whether the file itself is not whole, which another copy of it would mend.
    fn is_of_the_file(&self) -> bool {
        matches!(
            self,
            IncompleteKind::HeaderTruncated { .. }
                | IncompleteKind::DataTruncated { .. }
                | IncompleteKind::BrokenLink { .. }
                | IncompleteKind::Unfinished
        )
    }
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

    /// An [`Error::Format`] for a value that no rule covers.
    pub fn key_value(file: &Path, key: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let (key, found, expected) = (key.into(), found.into(), expected.into());
        Error::format(file, FormatErrorKind::KeyValue { key, found, expected })
    }

    /// An [`Error::Format`] for a key that is not there.
    pub fn key_missing(file: &Path, key: &str, needed_for: &'static str) -> Self {
        Error::format(file, FormatErrorKind::KeyMissing { key: key.into(), needed_for })
    }

    /// An [`Error::Incomplete`] shown by `file`.
    pub fn incomplete(file: &Path, kind: IncompleteKind) -> Self {
        Error::Incomplete { file: file.into(), kind }
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

/// `text` with control characters and those that turn the direction of text as escapes.
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
