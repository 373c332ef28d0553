//! The verdicts, their words and their exit codes.

use crate::error::{Error, FormatErrorKind, IncompleteKind};
use crate::source::names::is_part;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What a diagnosis comes to. Complete; words and exit codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Compatible,
    /// It runs; something is worth knowing.
    CompatibleWithWarnings,
    /// The path could not be read, so that nothing is known of the model.
    Unreadable,
    /// The format is not recognised, or the file is malformed.
    UnsupportedFormat,
    /// Nothing here runs this architecture.
    UnsupportedArchitecture,
    /// Running it would need a cast, or has tensors of which nothing here knows what they do.
    UnsupportedDtype,
    /// The machine or this build lacks what the model needs.
    HardwareInsufficient,
    /// Too little memory.
    DoesNotFit,
    /// Parts are missing or contradict each other.
    IncompleteOrCorrupt,
    /// Several models at the path.
    AmbiguousInput,
}

impl Verdict {
    /// Whether the model runs.
    pub fn runs(self) -> bool {
        self.exit_code() == 0
    }

    /// The exit code of a program that ends with this verdict.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Compatible | Verdict::CompatibleWithWarnings => 0,
            Verdict::Unreadable => 1,
            Verdict::UnsupportedFormat => 10,
            Verdict::UnsupportedArchitecture => 11,
            Verdict::UnsupportedDtype => 12,
            Verdict::HardwareInsufficient => 13,
            Verdict::DoesNotFit => 14,
            Verdict::IncompleteOrCorrupt => 15,
            Verdict::AmbiguousInput => 16,
        }
    }

    /// The word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Compatible => "compatible",
            Verdict::CompatibleWithWarnings => "compatible_with_warnings",
            Verdict::Unreadable => "unreadable",
            Verdict::UnsupportedFormat => "unsupported_format",
            Verdict::UnsupportedArchitecture => "unsupported_architecture",
            Verdict::UnsupportedDtype => "unsupported_dtype",
            Verdict::HardwareInsufficient => "hardware_insufficient",
            Verdict::DoesNotFit => "does_not_fit",
            Verdict::IncompleteOrCorrupt => "incomplete_or_corrupt",
            Verdict::AmbiguousInput => "ambiguous_input",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Error {
    /// The verdict that this error amounts to.
    pub fn verdict(&self) -> Verdict {
        match self {
            Error::Io { .. } => Verdict::Unreadable,
            Error::Format { .. } => Verdict::UnsupportedFormat,
            Error::Architecture { .. } => Verdict::UnsupportedArchitecture,
            Error::Quantization { .. } | Error::UnknownTensors { .. } => Verdict::UnsupportedDtype,
            Error::Incomplete { .. } => Verdict::IncompleteOrCorrupt,
            Error::Ambiguous { .. } => Verdict::AmbiguousInput,
        }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        self.verdict().exit_code()
    }

    /// The check that this error is the failure of.
    pub(crate) fn check_id(&self) -> &'static str {
        match self {
            Error::Io { .. } | Error::Ambiguous { .. } => "input",
            Error::Format { .. } => "format",
            Error::Architecture { .. } => "architecture",
            Error::Quantization { .. } => "dtype",
            Error::UnknownTensors { .. } => "tensors",
            Error::Incomplete { kind, .. } => match kind {
                IncompleteKind::TensorMissing { .. }
                | IncompleteKind::TensorShape { .. }
                | IncompleteKind::TensorDType { .. }
                | IncompleteKind::TensorValue { .. } => "tensors",
                _ => "integrity",
            },
        }
    }

    /// What the user can do about it, beyond what the message says.
    pub(crate) fn remedy(&self) -> Option<String> {
        Some(match self {
            Error::Io { .. } => "check the path and its permissions".into(),
            Error::Format { file, kind, .. } => return format_remedy(file, kind),
            Error::Architecture { .. } => return None,
            Error::Quantization { .. } => {
                "use the original BF16 checkpoint, or a Q8_0 or Q4_K_M GGUF file of it".into()
            }
            Error::UnknownTensors { .. } => {
                "use a file of the model without such tensors: its original checkpoint, or a GGUF file converted from that"
                    .into()
            }
            Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. } => {
                format!("put {name} into the model's folder")
            }
            Error::Incomplete { file, kind } if kind.is_of_the_file() && !is_part(file) => again(file, kind),
            Error::Incomplete { .. } => "fetch the model's files again, all from one revision".into(),
            Error::Ambiguous { candidates, .. } => {
                format!("give the path of one model, such as {}", candidates.first()?.display())
            }
        })
    }
}

/// What the user can do about one file that is not whole.
fn again(file: &Path, kind: &IncompleteKind) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str()).display();
    match kind {
        IncompleteKind::DataTruncated { have, need, .. } => {
            format!(
                "fetch {name} again, or continue its download: {} of {need} bytes are missing",
                need.saturating_sub(*have)
            )
        }
        IncompleteKind::HeaderTruncated { have, .. } => {
            format!("fetch {name} again, or continue its download: it ends within its header, at byte {have}")
        }
        _ => format!("finish the download of {name}, or fetch it again"),
    }
}

/// What the user can do about a malformed file; `None` where the message says it.
fn format_remedy(file: &Path, kind: &FormatErrorKind) -> Option<String> {
    use FormatErrorKind as Kind;
    let name = file.file_name().unwrap_or(file.as_os_str()).display();
    match kind {
        // The message may name another file: "LlamaTokenizer beside it; save tokenizer.json for another".
        Kind::KeyValue { expected, .. } if expected.contains("; ") => None,
        Kind::KeyMissing { needed_for, .. } if needed_for.contains("; ") => None,
        Kind::KeyType { key, .. } | Kind::KeyValue { key, .. } => {
            Some(format!("correct the key {key} in {name}, or get another copy of the file"))
        }
        Kind::KeyMissing { key, .. } => Some(format!("add the key {key} to {name}, or get another copy of the file")),
        Kind::Json { .. } => Some(format!("correct the JSON of {name}, or get another copy of the file")),
        Kind::UnsupportedFile { .. }
        | Kind::SentencePiece { .. }
        | Kind::OtherTokenizer { .. }
        | Kind::EmptyFile
        | Kind::NotAFile
        | Kind::NoModel { .. }
        | Kind::OtherWeights { .. }
        | Kind::Version { .. }
        | Kind::BigEndian { .. }
        | Kind::Concatenated
        | Kind::DuplicateKey { .. }
        | Kind::DuplicateTensor { .. }
        | Kind::TrailingBytes { .. }
        | Kind::NotANumber { .. } => None,
        Kind::Unrecognised { .. }
        | Kind::TooMany { .. }
        | Kind::EmptyName { .. }
        | Kind::NotUtf8 { .. }
        | Kind::ValueType { .. }
        | Kind::NestedArray { .. }
        | Kind::Dimensions { .. }
        | Kind::TensorSize { .. }
        | Kind::RowLength { .. }
        | Kind::TensorOffset { .. }
        | Kind::TensorRange { .. } => {
            Some("if this is meant to be a model, fetch the file again and compare its size with the source's".into())
        }
    }
}
