//! Vocabularies in tiktoken's form: ids are those of tiktoken itself, with the patterns of the models' own code.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use common::fixtures;
use common::texts::{json, open};
use serde_json::{Map, Value};

#[test]
fn ids_are_those_of_tiktoken() {
    let made = json(&fixtures().join("tiktoken.json"));
    let mut failures = Vec::new();
    for (name, file, code) in [
        ("kimi", "tiktoken.model", "tokenization_kimi.TikTokenTokenizer"),
        ("qwen", "qwen.tiktoken", "tokenization_qwen.QWenTokenizer"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(fixtures().join("models/llama-3/bf16").join(file), folder.path().join(file)).unwrap();
        }
        std::fs::write(folder.path().join(file), made["file"].as_str().unwrap()).unwrap();
        let named = made["named"].as_object().unwrap().iter().filter(|_| name == "kimi");
        let named: Map<String, Value> =
            named.map(|(id, text)| (id.clone(), serde_json::json!({"content": text, "special": true}))).collect();
        let config =
            serde_json::json!({"auto_map": {"AutoTokenizer": [code, null]}, "added_tokens_decoder": named}).to_string();
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let tokenizer = open(folder.path());
        let cases = made[name].as_array().unwrap();
        assert!(cases.len() > 150, "fixtures/tiktoken.json is incomplete");
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let expected: Vec<u32> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let found = tokenizer.encode(text, false).unwrap();
            if found != expected {
                failures.push(format!("{name} {text:?}: {found:?}, not {expected:?}"));
            }
            let least = tokenizer.least_tokens(text);
            if least > expected.len() {
                failures.push(format!("{name} {text:?}: at least {least} tokens, found {}", expected.len()));
            }
            let shown = !expected.iter().any(|id| tokenizer.is_special(*id));
            if name == "kimi" && shown && tokenizer.decode(&expected) != text {
                failures.push(format!("{name} {text:?}: decoded {:?}", tokenizer.decode(&expected)));
            }
        }
    }
    assert!(failures.is_empty(), "{} texts:\n{}", failures.len(), failures.join("\n"));
}
