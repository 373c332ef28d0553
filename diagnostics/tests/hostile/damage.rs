//! Sound fixtures, one of each kind, cut off and bit-flipped at every byte of their headers and descriptions.

use crate::build::{Failures, Tree};
use crate::edit::{Files, Gguf, content};
use crate::table::judge;
use crate::within_two_gibibytes;
use model_factory_diagnostics::header::config::JsonFile;
use model_factory_diagnostics::header::gguf::GgufFile;
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use proptest::prelude::*;
use std::fs::{File, OpenOptions};
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A model, and how many bytes at the beginning of which of its files are damaged.
struct Sample {
    kind: &'static str,
    tree: Tree,
    /// What to diagnose.
    path: PathBuf,
    damaged: Vec<(String, usize)>,
}

fn header_of(file: &str, bytes: &[u8]) -> usize {
    match file.rsplit_once('.') {
        Some((_, "safetensors")) => u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize + 8,
        _ => bytes.len(),
    }
}

fn folder(kind: &'static str, name: &str, damaged: &[&str]) -> Sample {
    let files = Files::fixture(name);
    let tree = files.tree();
    let damaged = damaged.iter().map(|name| ((*name).to_owned(), header_of(name, files.get(name)))).collect();
    Sample { kind, path: tree.path(""), tree, damaged }
}

fn gguf_header(name: &str) -> usize {
    Gguf::fixture(name).marked().1.iter().find(|mark| mark.what == "the end of the header").unwrap().at
}

fn samples() -> Vec<Sample> {
    let single = Tree::new().with("m.gguf", content("tinyllama/q8_0.gguf"));
    let split = Files::fixture("llama-256/split");
    let parts = split.0.iter().map(|(name, _)| (name.clone(), gguf_header(&format!("llama-256/split/{name}"))));
    let parts = parts.collect();
    let split = split.tree();
    vec![
        folder(
            "safetensors",
            "llama-3.1/bf16",
            &["model.safetensors", "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"],
        ),
        folder(
            "sharded safetensors",
            "llama-3.1/f32-sharded",
            &[
                "model.safetensors.index.json",
                "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors",
            ],
        ),
        Sample {
            kind: "gguf",
            path: single.path("m.gguf"),
            tree: single,
            damaged: vec![("m.gguf".into(), gguf_header("tinyllama/q8_0.gguf"))],
        },
        Sample { kind: "split gguf", path: split.path(""), tree: split, damaged: parts },
    ]
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

#[test]
fn no_fixture_cut_off_in_its_header_is_accepted() {
    within_two_gibibytes("damage::no_fixture_cut_off_in_its_header_is_accepted", || {
        let mut failures = Failures::default();
        for Sample { kind, tree, path, damaged } in samples() {
            assert!(judge(&path).verdict.runs(), "{kind}: {}", judge(&path));
            for (name, header) in damaged {
                let bytes = std::fs::read(tree.path(&name)).unwrap();
                let file = open(&tree.path(&name));
                // A description may end in a newline that nobody misses.
                let end = bytes[..header].trim_ascii_end().len();
                for len in (0..end).rev() {
                    file.set_len(len as u64).unwrap();
                    let report = judge(&path);
                    let expected: &[u8] = if name.ends_with(".json") || len == 0 { &[10] } else { &[15] };
                    if !expected.contains(&report.exit_code) || !report.reason.contains(&name) {
                        failures.add(&format!("{kind}, {name} at {len}"), report.first_line());
                    }
                }
                drop(file);
                std::fs::write(tree.path(&name), bytes).unwrap();
            }
        }
    });
}

/// xorshift64 with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn no_flipped_bit_of_a_header_makes_the_diagnosis_panic() {
    within_two_gibibytes("damage::no_flipped_bit_of_a_header_makes_the_diagnosis_panic", || {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut failures = Failures::default();
        let mut flipped = 0;
        for Sample { kind, tree, path, damaged } in samples() {
            for (name, header) in damaged {
                let bytes = std::fs::read(tree.path(&name)).unwrap();
                let mut file = open(&tree.path(&name));
                let mut write = |at: usize, byte: u8| {
                    file.seek(SeekFrom::Start(at as u64)).unwrap();
                    file.write_all(&[byte]).unwrap();
                };
                for (at, byte) in bytes[..header].iter().enumerate() {
                    write(at, byte ^ (1 << random.below(8)));
                    let report = judge(&path);
                    let line = report.first_line();
                    if !matches!(report.exit_code, 0 | 10 | 11 | 12 | 14 | 15 | 16) || line.contains('\n') {
                        failures.add(&format!("{kind}, {name} at {at}"), line);
                    }
                    write(at, *byte);
                    flipped += 1;
                }
            }
            assert!(judge(&path).verdict.runs(), "{kind} was not restored");
        }
        assert!(flipped > 30_000, "only {flipped} bits were flipped");
    });
}

proptest! {
    /// Anything behind a magic, and anything in place of the end of a sound header.
    #[test]
    fn no_bytes_behind_a_sound_beginning_make_a_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..512),
        kept in 0.0..1.0_f64,
        version in 2_u32..=3,
    ) {
        let gguf = |bytes: &[u8]| drop(GgufFile::parse(Path::new("x"), 0, bytes.len() as u64, Cursor::new(bytes)));
        let safetensors = |bytes: &[u8]| drop(SafetensorsFile::parse(Path::new("x"), 0, bytes.len() as u64, bytes));
        gguf(&[b"GGUF".as_slice(), &version.to_le_bytes(), &bytes].concat());
        // Few tensors and keys, so that the counts are believed.
        gguf(&[b"GGUF".as_slice(), &version.to_le_bytes(), &1_u64.to_le_bytes(), &2_u64.to_le_bytes(), &bytes].concat());
        safetensors(&[(bytes.len() as u64).to_le_bytes().as_slice(), b"{", &bytes].concat());
        drop(JsonFile::parse(Path::new("x"), &[b"{\"".as_slice(), &bytes].concat()));
        let begun = |file: &[u8], most: usize| [&file[..(most as f64 * kept) as usize], &bytes].concat();
        gguf(&begun(&content("smollm2/bf16.gguf"), 7500));
        safetensors(&begun(&content("smollm2/bf16/model.safetensors"), 2064));
        drop(JsonFile::parse(Path::new("x"), &begun(&content("smollm2/bf16/config.json"), 734)));
    }
}
