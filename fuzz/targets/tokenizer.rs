//! Bytes as a `tokenizer.json` and, after a zero byte, a prompt: diagnosed, built, the prompt encoded and decoded.
//! Mutations change the file's steps and values, so that most of them are files that can be read.
#![no_main]

mod common;

use common::random::Random;
use common::{json, steps};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use model_factory::tokenizer::Tokenizer;
use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use model_factory_diagnostics::header::{Metadata, TensorTable};
use model_factory_diagnostics::source::Format;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use std::io::Write;
use std::path::Path;

const CONFIG: &[u8] = include_bytes!("../../fixtures/models/llama-3.1/bf16/config.json");

fuzz_target!(|bytes: &[u8]| {
    let (file, prompt) = parts(bytes);
    let prompt = String::from_utf8_lossy(prompt);
    let Ok(mut written) = tempfile::NamedTempFile::new() else { return };
    if written.write_all(file).is_err() {
        return;
    }
    let Ok(config) = JsonFile::parse(Path::new("config.json"), CONFIG) else { return };
    let files = ConfigFiles { tokenizer: Some(written.path().into()), ..ConfigFiles::alone(config) };
    let metadata = Metadata::Config(Box::new(files));
    let header = common::header(Format::Safetensors, "x.safetensors", 0, TensorTable::new(), metadata);
    let built = TokenizerSpec::from_header(&header)
        .map_err(model_factory::Error::from)
        .and_then(|spec| Ok(Tokenizer::from_header(&header, &spec)?));
    match built {
        Ok(tokenizer) => common::round_trip(&tokenizer, &prompt),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random::new(seed);
    let (file, prompt) = parts(&data[..size]);
    let changed = match random.below(6) {
        0 => None,
        1 | 2 => Some([file, b"\0", steps::prompt(&mut random).as_bytes()].concat()),
        _ => json::mutate(file, &mut random).map(|file| [&file, b"\0".as_slice(), prompt].concat()),
    };
    match changed {
        Some(changed) if changed.len() <= max_size => {
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
});

/// The file, and the prompt after the first zero byte.
fn parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    // JSON has no zero byte, a prompt may.
    match bytes.iter().position(|byte| *byte == 0) {
        Some(zero) => (&bytes[..zero], &bytes[zero + 1..]),
        None => (bytes, b""),
    }
}
