//! Bytes as a folder: each section, begun by a separator and a number, is the content of one file. The whole of
//! `diagnose` runs on it.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use model_diagnostics::error::{Error, IncompleteKind};
use model_diagnostics::family::REGISTRY;
use model_diagnostics::hardware::profiles::PROFILES;
use model_diagnostics::{Policy, diagnose_with};
use std::fs::{self, OpenOptions};

/// What begins a section; the number of its file in [`NAMES`] follows.
const SEPARATOR: &[u8] = b"\0FILE";

const NAMES: [&str; 19] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.gguf",
    "part-00001-of-00002.gguf",
    "part-00002-of-00002.gguf",
    "adapter_config.json",
    "nameless",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
];

/// Longest sparse file that a header may ask for.
const LONGEST: u64 = 1 << 40;

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let mut rest = bytes;
    while let Some(start) = find(rest) {
        let section = &rest[start + SEPARATOR.len()..];
        let end = find(section).unwrap_or(section.len());
        if let Some((number, content)) = section[..end].split_first() {
            let name = NAMES[usize::from(*number) % NAMES.len()];
            if fs::write(folder.path().join(name), content).is_err() {
                return;
            }
        }
        rest = &section[end..];
    }
    // A header alone stands for the file that it begins: it grows, sparse, to the length it asks for.
    for _ in 0..=NAMES.len() {
        let machine = PROFILES[0].hardware();
        let diagnosis = diagnose_with(REGISTRY, folder.path(), &machine, &Policy::default());
        common::render(&diagnosis.report);
        assert_eq!(diagnosis.ready.is_some(), diagnosis.report.verdict.runs());
        match diagnosis.error {
            Some(Error::Incomplete { file, kind: IncompleteKind::DataTruncated { need, .. } }) if need <= LONGEST => {
                let grown = OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(need));
                if grown.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
});

fn find(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(zero) = bytes[from..].iter().position(|byte| *byte == 0) {
        if bytes[from + zero..].starts_with(SEPARATOR) {
            return Some(from + zero);
        }
        from += zero + 1;
    }
    None
}
