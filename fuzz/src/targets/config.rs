//! Bytes as `config.json` and, after a zero byte each, its companions: parsed, and judged with sound tensors.

use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use model_factory_diagnostics::header::{Metadata, TensorTable};
use model_factory_diagnostics::source::Format;
use std::path::Path;
use std::sync::LazyLock;

const MODEL: &[u8] = include_bytes!("../../../fixtures/models/llama-3.1/bf16/model.safetensors");

static TENSORS: LazyLock<TensorTable> = LazyLock::new(|| {
    let parsed = SafetensorsFile::parse(Path::new("x.safetensors"), 0, MODEL.len() as u64, MODEL);
    parsed.map(|file| file.tensors).unwrap_or_default()
});

pub fn run(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let mut file = |name: &str| {
        let part = parts.next().filter(|part| !part.is_empty())?;
        JsonFile::parse(Path::new(name), part).ok()
    };
    let Some(config) = file("config.json") else { return };
    let files = ConfigFiles {
        generation: file("generation_config.json"),
        tokenizer_config: file("tokenizer_config.json"),
        special_tokens_map: file("special_tokens_map.json"),
        quantization: file("quantize_config.json"),
        ..ConfigFiles::alone(config)
    };
    let metadata = Metadata::Config(Box::new(files));
    let header =
        crate::common::header(Format::Safetensors, "x.safetensors", MODEL.len() as u64, TENSORS.clone(), metadata);
    crate::common::judge(&header);
}
