//! Bytes as a safetensors file: parsed, and judged with a sound config when they parse.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use model_diagnostics::error::{Error, IncompleteKind};
use model_diagnostics::header::Metadata;
use model_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_diagnostics::header::safetensors::SafetensorsFile;
use model_diagnostics::source::Format;
use std::path::Path;

const CONFIG: &[u8] = include_bytes!("../../fixtures/models/llama-3.1/bf16/config.json");

fuzz_target!(|bytes: &[u8]| {
    let parse = |len| SafetensorsFile::parse(Path::new("x.safetensors"), 0, len, bytes);
    let mut len = bytes.len() as u64;
    let mut parsed = parse(len);
    // A header alone stands for the file that it begins, so that inputs stay small.
    if let Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { need, .. }, .. }) = &parsed {
        len = *need;
        parsed = parse(len);
    }
    match parsed {
        Ok(file) => {
            assert!(file.tensors.values().all(|tensor| tensor.offset + tensor.bytes <= len));
            let Ok(config) = JsonFile::parse(Path::new("config.json"), CONFIG) else { return };
            let metadata = Metadata::Config(Box::new(ConfigFiles::alone(config)));
            common::judge(&common::header(Format::Safetensors, "x.safetensors", len, file.tensors, metadata));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
