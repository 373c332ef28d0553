//! GGUF keys, and the files that came before tokenizer.json, against the tokenizers library: ids are those of the
//! family's own tokenizer.json.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "helpers of tests")]

use crate::common;

use common::texts::{Keys, agree, json, open};
use common::{archives, fixtures};
use model_factory::tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::path::Path;
use tokenizers::Tokenizer as Library;

fn texts<'a>(fixture: &'a Value, key: &str) -> Vec<&'a str> {
    fixture[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// The keys of the vocabulary as llama.cpp's converter writes them.
fn gguf(fixture: &Value, pre: &str) -> Vec<u8> {
    let tokens = texts(fixture, "tokens");
    let added = fixture["added_tokens"].as_array().unwrap();
    let special = |token: &&str| added.iter().any(|added| added["content"] == **token);
    let types: Vec<i32> = tokens.iter().map(|token| if special(token) { 3 } else { 1 }).collect();
    Keys::default()
        .text("general.architecture", "llama")
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &texts(fixture, "merges"))
        .types("tokenizer.ggml.token_type", &types)
        .id("tokenizer.ggml.eos_token_id", 0)
        .file()
}

fn ours(folder: &Path, fixture: &Value, pre: &str) -> Tokenizer {
    let path = folder.join(format!("{pre}.gguf"));
    std::fs::write(&path, gguf(fixture, pre)).unwrap();
    open(&path)
}

/// The library's tokenizer of the same vocabulary with a family's own pipeline.
fn library(fixture: &Value, pipeline: &Value) -> Library {
    let vocab: Map<String, Value> =
        (0..).zip(texts(fixture, "tokens")).map(|(id, text): (u32, &str)| (text.into(), id.into())).collect();
    let ignore_merges = pipeline["ignore_merges"] == true;
    // Two parts mean something else in fancy-regex than in Oniguruma: a possessive repetition, and the end of a word before ².
    let cuts = pipeline["pre_tokenizer"].to_string();
    let cuts = cuts.replace(r"\\p{Nd}{3}+\\z", r"(?:\\p{Nd}{3})+\\z").replace(r"*\\b)", r"*(?![\\w²³¹¼½¾]))");
    let cuts: Value = serde_json::from_str(&cuts).unwrap();
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": fixture["added_tokens"],
        "normalizer": pipeline["normalizer"], "pre_tokenizer": cuts, "post_processor": null,
        "decoder": null,
        "model": { "type": "BPE", "vocab": vocab, "merges": fixture["merges"], "ignore_merges": ignore_merges },
    });
    Library::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap()
}

#[test]
fn gguf_keys_alone_give_the_ids_of_each_familys_own_pipeline() {
    let fixture = json(&fixtures().join("pre_tokenizers.json"));
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let pipelines = fixture["pipelines"].as_object().unwrap();
    for (pre, pipeline) in pipelines {
        agree(pre, &ours(folder.path(), &fixture, pre), &library(&fixture, pipeline), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(pipelines.len(), 30, "fixtures/pre_tokenizers.json is incomplete");
}

#[test]
fn tokenizer_json_alone_gives_the_ids_of_each_familys_own_pipeline() {
    let fixture = json(&fixtures().join("pre_tokenizers.json"));
    let mut failures = Vec::new();
    let mut tried: Vec<&Value> = Vec::new();
    for (pre, pipeline) in fixture["pipelines"].as_object().unwrap() {
        if tried.contains(&pipeline) {
            continue;
        }
        tried.push(pipeline);
        let mut file = file_of(&fixture, pipeline);
        file["decoder"] = serde_json::json!({"type": "ByteLevel"});
        let model = model_with("qwen2.5/bf16", &[("tokenizer.json", file.to_string().into_bytes())]);
        agree(pre, &open(model.path()), &library(&fixture, pipeline), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(tried.len(), 22, "pipelines that differ");
}

#[test]
fn sentence_piece_keys_alone_give_the_ids_of_the_original() {
    let mut failures = Vec::new();
    for (name, gguf) in [("tinyllama", "q8_0.gguf"), ("phi-3.5", "q8_0.gguf")] {
        let model = archives::path(name);
        let mut original = json(&model.join("bf16/tokenizer.json"));
        // Phi-3's own tokenizer.json has `rstrip` for these, GGUF has no key for it: readers go by the model's name.
        for token in original["added_tokens"].as_array_mut().unwrap() {
            let bare = ["<unk>", "<s>", "<|endoftext|>"].iter().any(|text| token["content"] == *text);
            token["rstrip"] = (name == "phi-3.5" && !bare).into();
        }
        let original = Library::from_bytes(original.to_string()).unwrap();
        agree(name, &open(&model.join(gguf)), &original, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A copy of the model in `folder` with the `files` in place of its tokenizer.json.
fn model_with(folder: &str, files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let (from, to) = (archives::path(folder), tempfile::tempdir().unwrap());
    for name in ["config.json", "model.safetensors", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    for (name, content) in files {
        std::fs::write(to.path().join(name), content).unwrap();
    }
    to
}

/// The `vocab.json` and `merges.txt` that a tokenizer.json was made of; its added tokens stay out of the vocabulary.
fn vocab_and_merges(original: &Value) -> [(&'static str, Vec<u8>); 2] {
    let mut merges = "#version: 0.2\n".to_owned();
    for merge in original["model"]["merges"].as_array().unwrap() {
        let halves =
            merge.as_array().map(|halves| format!("{} {}", halves[0].as_str().unwrap(), halves[1].as_str().unwrap()));
        merges.push_str(&halves.unwrap_or_else(|| merge.as_str().unwrap().to_owned()));
        merges.push('\n');
    }
    [("vocab.json", original["model"]["vocab"].to_string().into_bytes()), ("merges.txt", merges.into_bytes())]
}

/// The library's tokenizer of the same vocabulary with a family's own pipeline.
fn file_of(fixture: &Value, pipeline: &Value) -> Value {
    let mut file: Value = serde_json::from_str(&library(fixture, pipeline).to_string(false).unwrap()).unwrap();
    file["pre_tokenizer"] = pipeline["pre_tokenizer"].clone();
    file
}

#[test]
fn vocab_and_merges_alone_give_the_ids_of_the_tokenizer_json_they_were_saved_with() {
    let wide = json(&fixtures().join("pre_tokenizers.json"));
    let wide = file_of(&wide, &wide["pipelines"]["qwen2"]);
    let own = |folder: &str| json(&archives::path(folder).join("tokenizer.json"));
    let mut failures = Vec::new();
    for (name, folder, class, original) in [
        ("a wide vocabulary", "qwen2.5/bf16", "Qwen2TokenizerFast", wide),
        ("qwen2.5", "qwen2.5/bf16", "Qwen2Tokenizer", own("qwen2.5/bf16")),
        ("qwen3", "qwen3/bf16", "Qwen2Tokenizer", own("qwen3/bf16")),
        ("phi-2", "phi-2/bf16", "CodeGenTokenizer", own("phi-2/bf16")),
        ("demo", "../demo", "GPT2Tokenizer", own("../demo")),
    ] {
        let added = &original["added_tokens"];
        let library = Library::from_bytes(original.to_string()).unwrap();
        // The three places where added tokens are named: with their flags, by id alone, and by role alone.
        let by_id: Map<String, Value> =
            added.as_array().unwrap().iter().map(|token| (token["id"].to_string(), token.clone())).collect();
        let by_text: Map<String, Value> =
            by_id.values().map(|token| (token["content"].as_str().unwrap().to_owned(), token["id"].clone())).collect();
        let special: Vec<&String> = by_text.keys().collect();
        let config = serde_json::json!({"tokenizer_class": class, "added_tokens_decoder": by_id});
        let bare = serde_json::json!({"tokenizer_class": class, "additional_special_tokens": special});
        let files = vocab_and_merges(&original);
        let with = |config: &Value, more: &[(&'static str, Vec<u8>)]| {
            let config = ("tokenizer_config.json", config.to_string().into_bytes());
            model_with(folder, &[&files, [config].as_slice(), more].concat())
        };
        agree(name, &open(with(&config, &[]).path()), &library, &mut failures);
        let listed = with(&bare, &[("added_tokens.json", Value::from(by_text).to_string().into_bytes())]);
        agree(&format!("{name} with added_tokens.json"), &open(listed.path()), &library, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The pipeline that transformers 5 gives a `LlamaTokenizer` of only a `tokenizer.model`.
fn metaspace(original: &Value, scheme: &str) -> Library {
    let mut original = original.clone();
    original["normalizer"] = Value::Null;
    original["pre_tokenizer"] =
        serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    Library::from_bytes(original.to_string()).unwrap()
}

#[test]
fn a_sentence_piece_model_alone_gives_the_ids_of_transformers() {
    let folder = "tinyllama/bf16";
    let mut original = json(&archives::path(folder).join("tokenizer.json"));
    let mut config = json(&archives::path(folder).join("tokenizer_config.json"));
    let model = ("tokenizer.model", std::fs::read(archives::path(folder).join("tokenizer.model")).unwrap());
    let mut failures = Vec::new();
    // What `LlamaTokenizer` of transformers 5.23 gives.
    let recorded: [(Option<bool>, &str, &[u32]); 3] = [
        (None, "first", &[269, 386, 2, 378, 259, 283, 376, 1, 410]),
        (Some(false), "first", &[269, 386, 2, 378, 259, 283, 376, 1, 410]),
        (Some(true), "always", &[269, 386, 2, 261, 283, 376, 1, 376, 410]),
    ];
    for (legacy, scheme, ids) in recorded {
        config["legacy"] = legacy.into();
        let config = ("tokenizer_config.json", config.to_string().into_bytes());
        let ours = model_with(folder, &[model.clone(), config]);
        let ours = open(ours.path());
        assert_eq!(ours.encode("hi</s>there <s>x", false).unwrap(), ids, "{legacy:?}");
        assert_eq!(ours.encode(" hi", false).unwrap(), [269, 386], "{legacy:?}");
        assert_eq!(ours.encode("  two", false).unwrap(), [376, 260, 388, 381], "{legacy:?}");
        agree(&format!("tinyllama, legacy {legacy:?}"), &ours, &metaspace(&original, scheme), &mut failures);
    }

    // Tokens after the pieces, as Phi-3 has them: they take the white space that follows.
    for (id, content) in (480..).zip(["<|user|>", "<|end|>", "<|system|>"]) {
        let mut token = original["added_tokens"][0].clone();
        (token["id"], token["content"], token["rstrip"]) =
            (id.into(), content.into(), (content != "<|system|>").into());
        original["added_tokens"].as_array_mut().unwrap().push(token.clone());
        config["added_tokens_decoder"][id.to_string()] = token;
    }
    let config = ("tokenizer_config.json", config.to_string().into_bytes());
    let more = model_with(folder, &[model, config]);
    let ours = open(more.path());
    agree("tinyllama with more tokens", &ours, &metaspace(&original, "always"), &mut failures);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!((ours.bos(), ours.eos(), ours.adds_bos(), ours.vocab_len()), (Some(1), Some(2), true, 483));
}

/// The library's own pipeline is that of the folder with a tokenizer.json, which has the same pieces.
#[test]
fn the_sentence_piece_model_of_deberta_gives_the_ids_of_its_tokenizer_json() {
    let mut failures = Vec::new();
    let folder = |name: &str| fixtures().join("embeddings").join(name);
    let mut original = json(&folder("deberta").join("tokenizer.json"));
    let library = Library::from_bytes(original.to_string()).unwrap();
    agree("tokenizer.json", &open(&folder("deberta")), &library, &mut failures);
    agree("spm.model", &open(&folder("deberta-labels")), &library, &mut failures);
    let mut config = json(&folder("deberta-labels").join("tokenizer_config.json"));
    (config["do_lower_case"], config["split_by_punct"]) = (true.into(), true.into());
    let model = std::fs::read(folder("deberta-labels").join("spm.model")).unwrap();
    let files = [("spm.model", model), ("tokenizer_config.json", config.to_string().into_bytes())];
    let lowers = model_with("../embeddings/deberta-labels", &files);
    let steps = original["normalizer"]["normalizers"].as_array_mut().unwrap();
    steps.insert(0, serde_json::json!({"type": "Lowercase"}));
    let steps = original["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap();
    steps.insert(0, serde_json::json!({"type": "Punctuation", "behavior": "Isolated"}));
    let library = Library::from_bytes(original.to_string()).unwrap();
    agree("small letters and punctuation apart", &open(lowers.path()), &library, &mut failures);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tokenizer_json_wins_over_the_files_beside_it() {
    let folder = "tinyllama/bf16";
    let damaged = [("tokenizer.model", b"\xff".to_vec()), ("vocab.json", b"{".to_vec())];
    let own = ("tokenizer.json", std::fs::read(archives::path(folder).join("tokenizer.json")).unwrap());
    let model = model_with(folder, &[damaged.as_slice(), &[own]].concat());
    assert_eq!(open(model.path()).vocab_len(), 480);
}
