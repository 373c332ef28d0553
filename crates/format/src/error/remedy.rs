//! What the user can do about an error, in addition to its message.

use super::{Error, FormatErrorKind, IncompleteKind};
use crate::source::names::is_part;
use std::ffi::os_str::Display;
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
            Error::Ambiguous { .. } | Error::AmbiguousProjector { .. } => 16,
        }
    }

    /// What the user can do about the error, in addition to the message; `None` where the message says it.
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
            Error::Incomplete { file, kind } => again(file, kind)
                .filter(|_| !is_part(file))
                .unwrap_or_else(|| "fetch the model's files again, all from one revision".into()),
            Error::Ambiguous { candidates, .. } => {
                format!("give the path of one model, such as {}", candidates.first()?.display())
            }
            Error::AmbiguousProjector { candidates, .. } => {
                format!("name one by .mmproj(path) or --mmproj FILE, such as {}", candidates.first()?.display())
            }
        })
    }
}

fn file_name(file: &Path) -> Display<'_> {
    file.file_name().unwrap_or(file.as_os_str()).display()
}

/// What the user can do about a file that is incomplete by itself, so that another copy of it would help.
fn again(file: &Path, kind: &IncompleteKind) -> Option<String> {
    let name = file_name(file);
    Some(match kind {
        IncompleteKind::DataTruncated { have, need, .. } => {
            let missing = need.saturating_sub(*have);
            format!("fetch {name} again, or continue its download: {missing} of {need} bytes are missing")
        }
        IncompleteKind::HeaderTruncated { have, .. } => {
            format!("fetch {name} again, or continue its download: it ends within its header, at byte {have}")
        }
        IncompleteKind::BrokenLink { .. } | IncompleteKind::Unfinished => {
            format!("finish the download of {name}, or fetch it again")
        }
        _ => return None,
    })
}

/// What the user can do about a malformed file; `None` where the message says it.
fn format_remedy(file: &Path, kind: &FormatErrorKind) -> Option<String> {
    use FormatErrorKind as Kind;
    let name = file_name(file);
    Some(match kind {
        // The message may already give the remedy: "LlamaTokenizer next to it; save tokenizer.json for another".
        Kind::KeyValue { expected, .. } if expected.contains("; ") => return None,
        Kind::KeyMissing { needed_for, .. } if needed_for.contains("; ") => return None,
        Kind::KeyType { key, .. } | Kind::KeyValue { key, .. } => {
            format!("correct the key {key} in {name}, or get another copy of the file")
        }
        Kind::KeyMissing { key, .. } => format!("add the key {key} to {name}, or get another copy of the file"),
        Kind::Json { .. } => format!("correct the JSON of {name}, or get another copy of the file"),
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
            "if this is meant to be a model, fetch the file again and compare its size with the source's".into()
        }
        _ => return None,
    })
}
