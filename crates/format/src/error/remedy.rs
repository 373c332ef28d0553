//! What the user can do about an error, beyond what its message says.

use super::{Error, FormatErrorKind, IncompleteKind};
use crate::source::names::is_part;
use std::path::Path;

impl Error {
    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Io { .. } => 1,
            Error::Format { .. } => 10,
            Error::Architecture { .. } => 11,
            Error::Quantization { .. } | Error::UnknownTensors { .. } => 12,
            Error::Incomplete { .. } => 15,
            Error::Ambiguous { .. } => 16,
        }
    }

    /// What the user can do about it, beyond what the message says; `None` where that says it all.
    pub fn remedy(&self) -> Option<String> {
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
