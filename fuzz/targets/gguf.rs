//! Bytes as a GGUF file: parsed, and judged when they parse.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use model_diagnostics::error::{Error, IncompleteKind};
use model_diagnostics::header::Metadata;
use model_diagnostics::header::gguf::GgufFile;
use model_diagnostics::source::Format;
use std::io::Cursor;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let parse = |len| GgufFile::parse(Path::new("x.gguf"), 0, len, Cursor::new(bytes));
    let mut len = bytes.len() as u64;
    let mut parsed = parse(len);
    // A header alone stands for the file that it begins, so that inputs stay small.
    if let Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { need, .. }, .. }) = &parsed {
        len = *need;
        parsed = parse(len);
    }
    match parsed {
        Ok(gguf) => {
            assert!(gguf.tensors.values().all(|tensor| tensor.offset + tensor.bytes <= len));
            common::judge(&common::header(Format::Gguf, "x.gguf", len, gguf.tensors, Metadata::Gguf(gguf.metadata)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
