//! Bytes as a `tokenizer.json` and, after a zero byte, a prompt: diagnosed, built, the prompt encoded and decoded.
//! Mutations change the file's steps and values, so that most of them are files that can be read.

use crate::common::random::Random;
use crate::common::{Bytes, any_bytes, json, steps};
use model_factory::tokenizer::Tokenizer;
use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_factory_diagnostics::header::{Metadata, TensorTable};
use model_factory_diagnostics::source::Format;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use std::io::Write;
use std::path::Path;

const CONFIG: &[u8] = include_bytes!("../../../fixtures/models/llama-3.1/bf16/config.json");

pub fn run(bytes: &[u8]) {
    let (file, prompt) = parts(bytes);
    let prompt = String::from_utf8_lossy(prompt);
    let Ok(mut written) = tempfile::NamedTempFile::new() else { return };
    if written.write_all(file).is_err() {
        return;
    }
    let Ok(config) = JsonFile::parse(Path::new("config.json"), CONFIG) else { return };
    let files = ConfigFiles { tokenizer: Some(written.path().into()), ..ConfigFiles::alone(config) };
    let metadata = Metadata::Config(Box::new(files));
    let header = crate::common::header(Format::Safetensors, "x.safetensors", 0, TensorTable::new(), metadata);
    let built = TokenizerSpec::from_header(&header)
        .map_err(model_factory::Error::from)
        .and_then(|spec| Ok(Tokenizer::from_header(&header, &spec)?));
    match built {
        Ok(tokenizer) => crate::common::round_trip(&tokenizer, &prompt),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub fn mutate(input: &[u8], longest: usize, random: &mut Random, bytes: &mut Bytes) -> Vec<u8> {
    let (file, prompt) = parts(input);
    let changed = match random.below(6) {
        0 => None,
        1 | 2 => Some([file, b"\0", steps::prompt(random).as_bytes()].concat()),
        _ => json::mutate(file, random).map(|file| [&file, b"\0".as_slice(), prompt].concat()),
    };
    let changed = changed.filter(|changed| changed.len() <= longest);
    changed.unwrap_or_else(|| any_bytes(input, longest, random, bytes))
}

/// The file, and the prompt after the first zero byte.
fn parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    // JSON has no zero byte, a prompt may.
    match bytes.iter().position(|byte| *byte == 0) {
        Some(zero) => (&bytes[..zero], &bytes[zero + 1..]),
        None => (bytes, b""),
    }
}
