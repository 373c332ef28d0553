//! No bytes make a reader panic, and no cut-off file is accepted.

use crate::build::*;
use model_factory_diagnostics::Error;
use model_factory_diagnostics::header::config::JsonFile;
use model_factory_diagnostics::header::gguf::GgufFile;
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use model_factory_diagnostics::{Result, source};
use std::io::Cursor;
use std::path::Path;

fn gguf(bytes: &[u8]) -> Result<()> {
    GgufFile::parse(Path::new("x"), 0, bytes.len() as u64, Cursor::new(bytes)).map(|_| ())
}

fn safetensors_file(bytes: &[u8]) -> Result<()> {
    SafetensorsFile::parse(Path::new("x"), 0, bytes.len() as u64, bytes).map(|_| ())
}

fn json(bytes: &[u8]) -> Result<()> {
    JsonFile::parse(Path::new("x"), bytes).map(|_| ())
}

type Reader = fn(&[u8]) -> Result<()>;

fn samples() -> [(&'static str, Vec<u8>, Reader); 3] {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"F16","shape":[3],"data_offsets":[16,22]}}"#;
    let config = br#"{"architectures":["LlamaForCausalLM"],"hidden_size":64,"rope_scaling":{"factor":8.0,"type":null},"tie":true}"#;
    [
        ("gguf", Gguf::sample().build(), gguf),
        ("safetensors", safetensors(header, 22), safetensors_file),
        ("json", config.to_vec(), json),
    ]
}

#[test]
fn refuses_a_file_cut_off_at_any_byte() {
    let mut failures = Failures::default();
    for (name, bytes, read) in samples() {
        read(&bytes).unwrap();
        // The padding after the last tensor of the GGUF sample may be absent.
        let end = if name == "gguf" { bytes.len() - 12 } else { bytes.len() };
        for len in 0..end {
            match read(&bytes[..len]) {
                Ok(()) => failures.add(name, format!("accepted at {len} of {} bytes", bytes.len())),
                // An empty file is no format; JSON has no length to fall short of.
                Err(Error::Incomplete { .. }) => {}
                Err(_) if len == 0 || name == "json" => {}
                Err(error) => failures.add(name, format!("{len}: {error}")),
            }
        }
    }
}

/// A small generator (xorshift64) with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn no_damaged_byte_makes_a_reader_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (_, bytes, read) in samples() {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let _ = read(&flipped);
            }
        }
        for _ in 0..20_000 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len());
                match random.below(4) {
                    0 => damaged[at] = random.below(256) as u8,
                    1 => damaged.truncate(at.max(1)),
                    2 => {
                        let end = (at + 8).min(damaged.len());
                        let value = [u64::MAX, 1 << 63, 1 << 31, 0, 1 << 16][random.below(5)].to_le_bytes();
                        damaged[at..end].copy_from_slice(&value[..end - at]);
                    }
                    _ => {
                        let from = random.below(damaged.len());
                        let copy: Vec<u8> = damaged[from..].iter().take(16).copied().collect();
                        damaged.splice(at..at, copy);
                    }
                }
            }
            let _ = read(&damaged);
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
        for (_, _, read) in samples() {
            let _ = read(&bytes);
        }
        let _ = gguf(&[b"GGUF\x03\0\0\0".as_slice(), &bytes].concat());
        let _ = safetensors_file(&[&(bytes.len() as u64 + 1).to_le_bytes(), b"{".as_slice(), &bytes].concat());
    }
}

/// A sparse file claims gigabytes that are not there; what it costs is bounded by the caps.
#[test]
fn a_sparse_file_costs_no_memory() {
    let tree = Tree::new();
    let header = Gguf::empty().pair("k", ARRAY, array(TEXT, 1 << 40, [])).build();
    let zeros = Gguf { tensor_count: Some(1 << 20), pair_count: Some(1 << 16), ..Gguf::empty() }.build();
    let text = [&(90_000_000_u64).to_le_bytes(), b"{".as_slice()].concat();
    for (name, bytes) in [("a.gguf", header), ("b.gguf", zeros), ("c.safetensors", text)] {
        let path = tree.path(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(tree.path("config.json"), "{}").unwrap();
        let result = source::probe(&path).and_then(model_factory_diagnostics::header::Header::read);
        assert!(matches!(result, Err(Error::Format { .. })), "{name}: {}", show(result));
    }
}

#[test]
fn reads_the_header_and_no_more_than_one_buffer_past_it() {
    const BUFFER: u64 = 64 << 10;
    let data = 64_u64 << 20;
    let gguf = Gguf::sample().info("big", &[data / 4], F32, Gguf::sample().data);
    let entry = format!(r#"{{"big":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{data}]}}}}"#, data / 4);
    let tree = Tree::new().with("config.json", "{}");
    let gguf_end = (gguf.header().len() as u64).next_multiple_of(32) + gguf.data + data;
    let (gguf, safetensors) = (gguf.header(), safetensors(&entry, 0));
    let safetensors_end = safetensors.len() as u64 + data;
    for (name, header, end) in [("a.gguf", gguf, gguf_end), ("a.safetensors", safetensors, safetensors_end)] {
        let path = tree.path(name);
        std::fs::write(&path, &header).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(end).unwrap();
        let read = source::probe(&path).and_then(model_factory_diagnostics::header::Header::read).unwrap();
        assert!(read.bytes_read <= header.len() as u64 + BUFFER + 8, "{name}: {} bytes", read.bytes_read);
    }
}
