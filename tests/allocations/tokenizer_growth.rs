//! What a tokenizer makes of a text is bounded: every step of a `tokenizer.json` that can make a text longer, alone and in
//! pairs, as often as a file may repeat it. Prints the most memory and time that any took.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use crate::{common, counting};

use model_factory::error::TextError;
use model_factory::tokenizer::{EncodeError, Tokenizer};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of memory that encoding takes at most, for each byte of the budget (8 a byte of the text and 65536): the text in
/// two steps, and 128 for the symbols and pairs of BPE.
const MEMORY_OF_A_BYTE: usize = 160;

fn fixture() -> PathBuf {
    common::fixtures().join("models/llama-3.1/bf16")
}

fn spec() -> TokenizerSpec {
    TokenizerSpec::from_header(&Header::read(probe(&fixture()).unwrap()).unwrap()).unwrap()
}

/// Steps that make a text longer.
fn normalizers() -> Vec<Value> {
    let replace = |kind: &str, pattern: &str, content: &str| {
        let mut found = serde_json::Map::new();
        found.insert(kind.into(), pattern.into());
        json!({"type": "Replace", "pattern": found, "content": content})
    };
    vec![
        replace("String", "a", &"a".repeat(64)),
        replace("Regex", "a|ba?", "abab"),
        replace("Regex", ".", &"é".repeat(100)),
        json!({"type": "Prepend", "prepend": "a".repeat(1000)}),
        json!({"type": "NFD"}),
        json!({"type": "NFC"}),
        json!({"type": "NFKD"}),
        json!({"type": "NFKC"}),
        json!({"type": "Lowercase"}),
        json!({"type": "ByteLevel"}),
        json!({"type": "Sequence", "normalizers": [{"type": "ByteLevel"}, {"type": "NFKD"}]}),
    ]
}

fn pre_tokenizers() -> Vec<Value> {
    vec![
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        json!({"type": "Metaspace", "replacement": "😀", "prepend_scheme": "always", "split": true}),
        json!({"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false}),
    ]
}

fn texts() -> Vec<String> {
    vec!["a".into(), "ﷺ İ é\u{344} ".repeat(20), "a b ".repeat(12_500)]
}

#[derive(Default)]
struct Found {
    cases: usize,
    refused: usize,
    memory: (usize, String),
    time: (Duration, String),
    failures: Vec<String>,
}

impl Found {
    /// Builds the fixture's tokenizer with `change` and encodes every text.
    fn run(&mut self, name: &str, folder: &Path, change: impl FnOnce(&mut Value)) {
        let mut root: Value =
            serde_json::from_slice(&std::fs::read(fixture().join("tokenizer.json")).unwrap()).unwrap();
        change(&mut root);
        let path = folder.join("tokenizer.json");
        std::fs::write(&path, root.to_string()).unwrap();
        drop(root);
        let tokenizer = Tokenizer::from_json(&path, &spec()).unwrap();
        for text in texts() {
            self.cases += 1;
            let case = || format!("{name}, a text of {} bytes", text.len());
            let begun = Instant::now();
            let (result, memory) = counting::peak(|| tokenizer.encode(&text, false));
            let time = begun.elapsed();
            match &result {
                Ok(ids) if ids.len() <= text.len() * 8 + 65536 => {}
                Err(TextError::Encode(EncodeError::TooLong { .. })) => self.refused += 1,
                other => self.failures.push(format!("{}: {:?}", case(), other.as_ref().map(Vec::len))),
            }
            if memory > (text.len() * 8 + 65536) * MEMORY_OF_A_BYTE {
                self.failures.push(format!("{}: {memory} bytes of memory", case()));
            }
            if memory > self.memory.0 {
                self.memory = (memory, case());
            }
            if time > self.time.0 {
                self.time = (time, case());
            }
        }
    }
}

#[test]
fn no_step_makes_a_text_grow_without_bound() {
    let _alone = counting::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut found = Found::default();
    let pairs = |steps: &[Value]| -> Vec<(String, Vec<Value>)> {
        let mut pairs = Vec::new();
        for first in steps {
            pairs.push((first.to_string(), vec![first.clone(); 8]));
            for second in steps {
                pairs.push((
                    format!("{first} and {second}"),
                    (0..4).flat_map(|_| [first.clone(), second.clone()]).collect(),
                ));
            }
        }
        pairs
    };
    let shortened = |name: String| name.chars().take(150).collect::<String>();
    for (name, steps) in pairs(&normalizers()) {
        let value = json!({"type": "Sequence", "normalizers": steps});
        found.run(&shortened(name), folder.path(), |root| root["normalizer"] = value);
    }
    for (name, steps) in pairs(&pre_tokenizers()) {
        let value = json!({"type": "Sequence", "pretokenizers": &steps[..5]});
        found.run(&shortened(name), folder.path(), |root| root["pre_tokenizer"] = value);
    }
    // The parts between added tokens share what the text may become.
    found.run("Prepend in every part", folder.path(), |root| {
        root["normalizer"] = json!({"type": "Prepend", "prepend": "a".repeat(60_000)});
        let first = root["model"]["vocab"].as_object().unwrap().len() + root["added_tokens"].as_array().unwrap().len();
        let token = json!({"id": first, "content": " ", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": false});
        root["added_tokens"].as_array_mut().unwrap().push(token);
    });
    println!("{} texts encoded, {} of them refused as too long", found.cases, found.refused);
    println!("most memory: {:.1} MB, {}", found.memory.0 as f64 / 1e6, found.memory.1);
    println!("most time: {:.2?}, {}", found.time.0, found.time.1);
    assert!(found.failures.is_empty(), "{} failures:\n{}", found.failures.len(), found.failures.join("\n"));
    assert!(found.refused > 100 && found.cases - found.refused > 100, "{} of {}", found.refused, found.cases);
}

/// Texts of added tokens that share much, little or nothing, and whether they are normalized.
fn added_texts() -> Vec<(&'static str, bool, Vec<String>)> {
    let many = |text: fn(u64) -> String| (0..200_000).map(text).collect();
    let long = |len: usize| (0..20).map(|index| format!("<{}{index}>", "x".repeat(len))).collect::<Vec<_>>();
    vec![
        ("in brackets", true, (0..400_000).map(|index| format!("<{index:06}>")).collect()),
        ("that end alike", false, many(|index| format!("{index}-the-end"))),
        ("that begin alike", false, many(|index| format!("the-beginning-{index}"))),
        ("without order", false, many(|index| format!("{:x}", (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))),
        ("of one letter", false, (30..2_800).map(|len| "a".repeat(len)).collect()),
        ("of 50,000 characters", true, long(50_000)),
        ("of a million characters", false, long(1_000_000)[..1].to_vec()),
        ("that count", false, many(|index| format!("x{index}"))),
    ]
}

/// Where texts cost more than their bytes, one of these takes minutes.
const LONGEST: Duration = Duration::from_secs(15);

#[test]
fn many_added_tokens_are_built_in_the_time_of_their_bytes() {
    let _alone = counting::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut root: Value = serde_json::from_slice(&std::fs::read(fixture().join("tokenizer.json")).unwrap()).unwrap();
    let first = root["model"]["vocab"].as_object().unwrap().len();
    let added = root["added_tokens"].as_array().unwrap().clone();
    let path = folder.path().join("tokenizer.json");
    let mut build = |name: &str, normalized: bool, texts: &[String]| {
        let more = texts.iter().enumerate().map(|(index, text)| {
            json!({"id": first + added.len() + index, "content": text, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": normalized, "special": false})
        });
        root["added_tokens"] = added.iter().cloned().chain(more).collect();
        std::fs::write(&path, root.to_string()).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len() as usize;
        let mut spec = spec();
        spec.tokens = first + added.len() + texts.len();
        let begun = Instant::now();
        let (built, memory) = counting::peak(|| Tokenizer::from_json(&path, &spec));
        let time = begun.elapsed();
        println!("{} added tokens {name}: {time:.2?}, {:.1} MB", texts.len(), memory as f64 / 1e6);
        assert!(memory < 100 * bytes, "{name}: {memory} bytes for a file of {bytes}");
        assert!(time < LONGEST, "{name}: {time:.2?}");
        built
    };
    for (name, normalized, texts) in added_texts() {
        let last = texts.len() - 1;
        let tokenizer = build(name, normalized, &texts).unwrap();
        let text = texts[last].clone() + "a";
        assert_eq!(tokenizer.encode(&text, false).unwrap()[0] as usize, first + added.len() + last, "{name}");
    }
    let long: Vec<String> = (0..100).map(|index| format!("<{}{index}>", "x".repeat(60_000))).collect();
    let error = build("beyond the limit", true, &long).unwrap_err();
    assert!(error.to_string().contains("added tokens"), "{error}");
}
