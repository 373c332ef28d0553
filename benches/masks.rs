//! What it costs to know which tokens may come next: the trie of a vocabulary, a grammar compiled again, and the mask of each
//! token of an answer, at vocabularies of 32k, 128k and 256k entries. Mean, 99th percentile and the longest, in microseconds.
//!
//! `cargo bench --bench masks`. The vocabularies are made up: words of up to four of 400 syllables, with and without a blank in
//! front, after the 256 bytes. Answers are drawn evenly among what may come, which meets more of a grammar than a model does.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use model_factory::generate::{Constraint, Sampler, SamplingOptions, StopTokens};
use model_factory::tokenizer::Tokenizer;
use model_factory::{GenerateOptions, Grammar};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// The bytes in GPT-2's alphabet, and then words.
fn vocabulary(entries: usize) -> Map<String, Value> {
    let letter = |byte: u32| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte,
        0..=0x20 => byte + 0x100,
        0x7f..=0xa0 => byte - 0x7f + 0x121,
        _ => 0x143,
    };
    let mut vocabulary: Map<String, Value> =
        (0..256).map(|byte| (char::from_u32(letter(byte)).unwrap().to_string(), byte.into())).collect();
    let syllable = |index: usize| {
        let (consonant, vowel) = (b"bcdfghjklmnprstvwxyz"[index % 20], b"aeiou"[index / 20 % 5]);
        let end = ["", "n", "r", "s"][index / 100 % 4];
        format!("{}{}{end}", consonant as char, vowel as char)
    };
    let mut number = 0_usize;
    while vocabulary.len() < entries {
        let (mut word, mut rest) = (if number.is_multiple_of(2) { "Ġ".to_owned() } else { String::new() }, number / 2);
        loop {
            word.push_str(&syllable(rest % 400));
            rest /= 400;
            if rest == 0 {
                break;
            }
            rest -= 1;
        }
        let id = vocabulary.len();
        vocabulary.entry(word).or_insert(id.into());
        number += 1;
    }
    vocabulary
}

fn tokenizer(entries: usize) -> Tokenizer {
    let content = json!({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary(entries), "merges": []}});
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    write("tokenizer.json", content.to_string().as_bytes());
    write("config.json", br#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "eos_token_id": 0}"#);
    let tensors = br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    write("model.safetensors", &[&(tensors.len() as u64).to_le_bytes()[..], tensors, &[0; 4]].concat());
    let header = Header::read(probe(folder.path()).unwrap()).unwrap();
    let spec = TokenizerSpec::from_header(&header).unwrap();
    Tokenizer::from_header(&header, &spec).unwrap()
}

fn grammars() -> [(&'static str, Grammar); 5] {
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "mail": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "home": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"], "additionalProperties": false}},
        "required": ["name", "age", "mail", "tags", "home"], "additionalProperties": false});
    [
        ("record", Grammar::json_schema(person)),
        ("any JSON", Grammar::json_schema(json!({"type": "object"}))),
        ("choice", Grammar::choice(&(0..200).map(|n| format!("label {n}")).collect::<Vec<_>>())),
        ("regex", Grammar::regex(r"\w+( \w+){3,30}\.")),
        ("lark", Grammar::lark("start: sum\nsum: term (/[-+*]/ term)*\nterm: /[0-9]+/ | /[a-z]+/ | \"(\" sum \")\"")),
    ]
}

/// The time of each mask of answers to `grammar`.
fn masks(tokenizer: &Tokenizer, grammar: &Grammar, logits: &[f32]) -> Vec<Duration> {
    let mut times = Vec::new();
    for seed in 0..12 {
        let sampling = GenerateOptions::default().temperature(1.0).seed(seed).sampling;
        let mut sampler = Sampler::new(&SamplingOptions::clone(&sampling), tokenizer.vocab_len()).unwrap();
        let mut constraint = Constraint::new(tokenizer, grammar, StopTokens::from_iter([0])).unwrap();
        for _ in 0..100 {
            let begun = Instant::now();
            let ended = constraint.prepare().unwrap();
            times.push(begun.elapsed());
            if ended || constraint.sample(&mut sampler, logits).unwrap().is_none() {
                break;
            }
        }
    }
    times.sort_unstable();
    times
}

fn main() {
    println!(
        "{:>9} {:10} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "entries", "grammar", "first", "mean", "p99", "most", "masks"
    );
    for entries in [32_000, 128_000, 256_000] {
        let tokenizer = tokenizer(entries);
        let logits = vec![0.0; tokenizer.vocab_len()];
        let begun = Instant::now();
        Constraint::new(&tokenizer, &Grammar::choice(&["a"]), StopTokens::default()).unwrap();
        println!("{entries:>9} {:10} {:>8}", "trie", begun.elapsed().as_micros());
        for (name, grammar) in grammars() {
            let begun = Instant::now();
            Constraint::new(&tokenizer, &grammar, StopTokens::default()).unwrap();
            let first = begun.elapsed().as_micros();
            let times = masks(&tokenizer, &grammar, &logits);
            let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len() as f64;
            let (p99, most) = (times[times.len() * 99 / 100], times[times.len() - 1]);
            let (p99, most) = (p99.as_micros(), most.as_micros());
            println!("{entries:>9} {name:10} {first:>8} {mean:>8.2} {p99:>8} {most:>8} {:>6}", times.len());
        }
    }
}
