//! Bytes as a safetensors file: parsed, and judged with a sound config when they parse.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use model_factory_diagnostics::header::Metadata;
use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use model_factory_diagnostics::source::Format;
use std::path::Path;

const CONFIG: &[u8] = include_bytes!("../../fixtures/models/llama-3.1/bf16/config.json");

fuzz_target!(|bytes: &[u8]| {
    let parse = |len| SafetensorsFile::parse(Path::new("x.safetensors"), 0, len, bytes);
    let Some((file, len)) = common::parsed(bytes.len(), parse) else { return };
    let Ok(config) = JsonFile::parse(Path::new("config.json"), CONFIG) else { return };
    let metadata = Metadata::Config(Box::new(ConfigFiles::alone(config)));
    common::judge(&common::header(Format::Safetensors, "x.safetensors", len, file.tensors, metadata));
});
