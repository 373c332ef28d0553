//! Bytes as a safetensors file: parsed, and judged with a sound config when they parse.

use model_factory_diagnostics::header::Metadata;
use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use model_factory_diagnostics::source::Format;
use std::path::Path;

const CONFIG: &[u8] = include_bytes!("../../../fixtures/models/llama-3.1/bf16/config.json");

pub fn run(bytes: &[u8]) {
    let parse = |len| SafetensorsFile::parse(Path::new("x.safetensors"), 0, len, bytes);
    let Some((file, len)) = crate::common::parsed(bytes.len(), parse) else { return };
    let Ok(config) = JsonFile::parse(Path::new("config.json"), CONFIG) else { return };
    let metadata = Metadata::Config(Box::new(ConfigFiles::alone(config)));
    crate::common::judge(&crate::common::header(Format::Safetensors, "x.safetensors", len, file.tensors, metadata));
}
