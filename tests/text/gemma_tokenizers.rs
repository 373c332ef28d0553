//! Gemma's tokenizers, from each place where a file says them, against the tokenizers library: spaces written `▁` with none
//! put in front, characters merged without a cut between words, runs of blanks, and a token for each byte of what is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "helpers of tests")]

use crate::common;

use common::fixtures;
use common::texts::{Keys, agree, agree_where, json, open};
use model_factory::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::Path;
use tokenizers::Tokenizer as Library;

/// Blanks that have a token for each length of a run from 2.
const RUNS: [(&str, usize); 3] = [("\n", 4), ("▁", 5), ("\t", 3)];

/// Added tokens, their type in a GGUF file, and whether they are special.
const ADDED: [(&str, i32, bool); 4] =
    [("<|user|>\n", 4, false), ("<|end|>", 3, true), ("<|system|>", 4, false), ("<table>", 4, false)];

fn found_whole(id: usize, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special})
}

/// A vocabulary of SentencePiece's kind with all that Gemma adds to one.
struct Gemma {
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    /// The longest runs first, as in Gemma's own tokenizer.json.
    merges: Vec<[String; 2]>,
    added: Vec<Value>,
}

impl Gemma {
    /// `whole_runs`: runs are tokens that are found as a whole, as in Gemma 2 and 3, and not made by merges, as in Gemma 4.
    fn new(whole_runs: bool) -> Gemma {
        let original = json(&fixtures().join("models/tinyllama/bf16/tokenizer.json"));
        let vocabulary = original["model"]["vocab"].as_object().unwrap();
        let mut ids: Vec<(&String, u64)> = vocabulary.iter().map(|(text, id)| (text, id.as_u64().unwrap())).collect();
        ids.sort_by_key(|(_, id)| *id);
        let mut tokens: Vec<String> = ids.into_iter().map(|(text, _)| text.clone()).collect();
        let merges = original["model"]["merges"].as_array().unwrap();
        let mut merges: Vec<[String; 2]> =
            merges.iter().map(|merge| serde_json::from_value(merge.clone()).unwrap()).collect();
        // A token's score is the rank of its first merge, negative.
        let rank = |token: &String| merges.iter().position(|[left, right]| *token == format!("{left}{right}"));
        let mut scores: Vec<f32> =
            tokens.iter().map(|token| rank(token).map_or(-1000.0, |rank| -(rank as f32))).collect();
        let mut types: Vec<i32> = (0..tokens.len())
            .map(|id| {
                if id < 3 {
                    3
                } else if id < 259 {
                    6
                } else {
                    1
                }
            })
            .collect();
        let mut added: Vec<Value> = original["added_tokens"].as_array().unwrap().clone();
        let mut first = Vec::new();
        for (blank, longest) in RUNS {
            for len in 1..=longest {
                let run = blank.repeat(len);
                if len > 1 {
                    first.extend((1..len).map(|cut| (len, [blank.repeat(cut), blank.repeat(len - cut)])));
                }
                let id = tokens.iter().position(|token| *token == run).unwrap_or_else(|| {
                    tokens.push(run.clone());
                    scores.push(-1000.0);
                    types.push(1);
                    tokens.len() - 1
                });
                if whole_runs && len > 1 {
                    types[id] = 4;
                    added.push(found_whole(id, &run, false));
                }
            }
        }
        first.sort_by_key(|(len, _)| std::cmp::Reverse(*len));
        let first: Vec<[String; 2]> = first.into_iter().map(|(_, merge)| merge).collect();
        // Of two equal merges the later would count.
        merges.retain(|merge| !first.contains(merge));
        merges.splice(0..0, first);
        for (content, kind, special) in ADDED {
            added.push(found_whole(tokens.len(), content, special));
            tokens.push(content.into());
            scores.push(-1000.0);
            types.push(kind);
        }
        Gemma { tokens, scores, types, merges, added }
    }

    /// The tokenizer.json that transformers writes of it (`tokenization_gemma.py`).
    fn json(&self) -> Value {
        let vocabulary: serde_json::Map<String, Value> =
            self.tokens.iter().cloned().zip((0..).map(|id: u32| id.into())).collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": self.added,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                "vocab": vocabulary, "merges": self.merges},
        })
    }

    fn library(&self) -> Library {
        Library::from_bytes(self.json().to_string()).unwrap()
    }

    /// The keys that llama.cpp's converter writes, but for what tells how tokens are made.
    fn keys(&self, model: &str) -> Keys {
        // The converter writes found runs of spaces as they are in a text.
        let spelled =
            |(token, kind): (&String, &i32)| if *kind == 4 { token.replace('▁', " ") } else { token.clone() };
        let tokens: Vec<String> = self.tokens.iter().zip(&self.types).map(spelled).collect();
        Keys::default()
            .text("general.architecture", "llama")
            .text("tokenizer.ggml.model", model)
            .texts("tokenizer.ggml.tokens", &tokens)
            .scores("tokenizer.ggml.scores", &self.scores)
            .types("tokenizer.ggml.token_type", &self.types)
            .id("tokenizer.ggml.bos_token_id", 1)
            .id("tokenizer.ggml.eos_token_id", 2)
            .id("tokenizer.ggml.unknown_token_id", 0)
            .flag("tokenizer.ggml.add_bos_token", true)
            .flag("tokenizer.ggml.add_space_prefix", false)
    }
}

fn ours(folder: &Path, keys: Keys) -> Tokenizer {
    let path = folder.join("model.gguf");
    std::fs::write(&path, keys.file()).unwrap();
    open(&path)
}

/// The model of a fixture with another tokenizer.json.
fn with_json(folder: &Path, tokenizer: &Value) -> Tokenizer {
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixtures().join("models/tinyllama/bf16").join(name), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    open(folder)
}

fn check(tokenizer: &Tokenizer) {
    assert_eq!((tokenizer.bos(), tokenizer.adds_bos()), (Some(1), true));
    let text = " a  b\n\n\n<table>\u{1f600}";
    let ids = tokenizer.encode(text, false).unwrap();
    assert_eq!(tokenizer.decode(&ids), text, "no space is put in front, and none is taken away");
    let run = tokenizer.token_id("\n\n\n").unwrap();
    assert!(ids.contains(&run), "{ids:?}");
}

#[test]
fn tokenizer_json_of_gemma_gives_the_librarys_ids() {
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for (name, whole) in [("gemma 2 and 3", true), ("gemma 4", false)] {
        let gemma = Gemma::new(whole);
        let ours = with_json(folder.path(), &gemma.json());
        check(&ours);
        agree(name, &ours, &gemma.library(), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn keys_of_gemma_4_give_the_ids_of_its_tokenizer_json() {
    let folder = tempfile::tempdir().unwrap();
    let gemma = Gemma::new(false);
    let merges: Vec<String> = gemma.merges.iter().map(|merge| merge.join(" ")).collect();
    let mut failures = Vec::new();
    for model in ["gemma4", "gpt2"] {
        let keys = gemma.keys(model).text("tokenizer.ggml.pre", "gemma4").texts("tokenizer.ggml.merges", &merges);
        let ours = ours(folder.path(), keys);
        check(&ours);
        agree(&format!("model {model}"), &ours, &gemma.library(), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn keys_of_gemma_2_and_3_give_the_ids_of_their_tokenizer_json() {
    let folder = tempfile::tempdir().unwrap();
    let gemma = Gemma::new(true);
    let ours = ours(folder.path(), gemma.keys("llama").text("tokenizer.ggml.pre", "default"));
    check(&ours);
    let mut failures = Vec::new();
    // Whether a `▁` of the text itself joins a run of spaces, a GGUF file cannot say.
    agree_where("gemma 3", &ours, &gemma.library(), &mut failures, |text| !text.contains('▁'));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
