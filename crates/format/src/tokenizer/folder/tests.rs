use super::*;
use crate::tokenizer::TokenizerSpec;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Reads a folder of these files.
fn spec_of(files: &[(&str, Value)]) -> Result<TokenizerSpec> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    super::super::json::spec(&ConfigFiles::read(folder.path())?, &OnceLock::new())
}

/// Reads a folder of `a`, `b`, `ab` and `<|endoftext|>`, with `config` and more files that replace its own.
fn with(config: Value, more: &[(&str, Value)]) -> Result<TokenizerSpec> {
    let own = [
        ("config.json", json!({"eos_token_id": 3})),
        ("vocab.json", json!({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})),
        ("merges.txt", json!("#version: 0.2\na b\n")),
        ("tokenizer_config.json", config),
    ];
    spec_of(&[own.as_slice(), more].concat())
}

#[test]
fn the_class_names_the_pre_tokenizer() {
    for (class, pre) in [
        ("Qwen2Tokenizer", "qwen2"),
        ("Qwen2TokenizerFast", "qwen2"),
        ("GPT2Tokenizer", "gpt-2"),
        ("GPT2TokenizerFast", "gpt-2"),
        ("CodeGenTokenizer", "gpt-2"),
        ("CodeGenTokenizerFast", "gpt-2"),
    ] {
        let spec = with(json!({"tokenizer_class": class, "eos_token": "<|endoftext|>"}), &[]).unwrap();
        assert_eq!((spec.kind, spec.pre.as_deref()), (TokenizerKind::ByteLevelBpe, Some(pre)), "{class}");
        assert_eq!((spec.tokens, spec.eos, spec.add_bos), (4, Some(3), false));
        assert!(crate::tokenizer::pre::find(pre).is_some(), "{pre}");
    }
}

#[test]
fn added_tokens_follow_on_the_vocabulary() {
    let class = "Qwen2Tokenizer";
    let decoder = json!({"4": {"content": "<|im_end|>", "special": true}, "5": {"content": "<think>"}});
    let spec = with(json!({"tokenizer_class": class, "added_tokens_decoder": decoder}), &[]).unwrap();
    assert_eq!(spec.tokens, 6);
    assert!(spec.stop_ids.contains_key(&3) && spec.stop_ids.contains_key(&4), "{:?}", spec.stop_ids);
    let listed = json!({"<|im_end|>": 4, "<think>": 5});
    let spec = with(json!({"tokenizer_class": class}), &[("added_tokens.json", listed.clone())]).unwrap();
    assert_eq!(spec.tokens, 6);
    // Where both files exist, `added_tokens_decoder` counts, as in transformers.
    let decoder = json!({"4": {"content": "<|im_end|>"}});
    let config = json!({"tokenizer_class": class, "added_tokens_decoder": decoder});
    assert_eq!(with(config, &[("added_tokens.json", listed)]).unwrap().tokens, 5);
}

#[test]
fn refuses_what_it_cannot_build_and_says_where() {
    let qwen = json!({"tokenizer_class": "Qwen2Tokenizer"});
    let decoder = |value: Value| json!({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": value});
    let prefix = json!({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true});
    let far = json!({"4000000000": {"content": "x"}});
    let twice = json!({"4": {"content": "x"}, "04": {"content": "y"}});
    let cases: Vec<(&str, Result<TokenizerSpec>, &[&str])> = vec![
        (
            "an unknown class",
            with(json!({"tokenizer_class": "BertTokenizer"}), &[]),
            &["tokenizer_config.json", "BertTokenizer", "save tokenizer.json"],
        ),
        ("no class", with(json!({}), &[]), &["vocab.json", "tokenizer_class", "save tokenizer.json"]),
        ("a space in front", with(prefix, &[]), &["tokenizer_config.json", "add_prefix_space"]),
        ("a line of one token", with(qwen.clone(), &[("merges.txt", json!("a b\nab\n"))]), &["merges.txt", "line 2"]),
        ("a vocabulary of texts", with(qwen.clone(), &[("vocab.json", json!({"a": "b"}))]), &["vocab.json"]),
        ("an id twice", with(qwen.clone(), &[("vocab.json", json!({"a": 0, "b": 0}))]), &["vocab.json", "twice"]),
        ("a far id", with(qwen.clone(), &[("vocab.json", json!({"a": 4_000_000_000_u32}))]), &["vocab.json"]),
        ("an empty vocabulary", with(qwen.clone(), &[("vocab.json", json!({}))]), &["vocab.json", "empty"]),
        ("a gap", with(decoder(json!({"5": {"content": "x"}})), &[]), &["tokenizer_config.json", "without a gap"]),
        ("a far token", with(decoder(far), &[]), &["tokenizer_config.json", "4000000000"]),
        ("an id for two", with(decoder(twice), &[]), &["tokenizer_config.json", "one token for an id"]),
        ("no number", with(decoder(json!({"x": {"content": "x"}})), &[]), &["added_tokens_decoder.x"]),
        ("no text", with(decoder(json!({"4": {}})), &[]), &["added_tokens_decoder.4"]),
        (
            "no flag",
            with(decoder(json!({"4": {"content": "x", "rstrip": 1}})), &[]),
            &["added_tokens_decoder.4.rstrip"],
        ),
        (
            "a list of ids",
            with(qwen.clone(), &[("added_tokens.json", json!({"x": [4]}))]),
            &["added_tokens.json", "key x"],
        ),
    ];
    for (case, found, says) in cases {
        let error = found.expect_err(case);
        let text = error.to_string();
        assert!(matches!(error, Error::Format { .. }) && says.iter().all(|part| text.contains(part)), "{case}: {text}");
    }
    let alone = spec_of(&[("config.json", json!({})), ("vocab.json", json!({"a": 0}))]).unwrap_err();
    assert!(matches!(alone, Error::Incomplete { .. }) && alone.to_string().contains("merges.txt"), "{alone}");
}

#[test]
fn a_vocabulary_that_gpt2_would_cut_otherwise_is_refused() {
    let gpt2 = json!({"tokenizer_class": "GPT2Tokenizer"});
    let merges = |lines: &[String]| [("merges.txt", Value::from(format!("#version: 0.2\n{}\n", lines.join("\n"))))];
    // Phi-4's merges join a symbol with the word after it.
    let joined = with(gpt2.clone(), &merges(&["g e".into(), ". ge".into()])).unwrap_err().to_string();
    assert!(joined.contains(".ge") && joined.contains("tokenizer_class"), "{joined}");
    // GPT-2's own merges: contractions, and spaces and symbols before nothing else.
    for own in ["' s", "Ġ the", "! !", "Ġ (", "1 9", "( )"] {
        with(gpt2.clone(), &merges(&[own.into()])).unwrap();
    }
    // SmolLM2's merges never join two digits, which shows when there are many.
    let many: Vec<String> = (0..MANY_MERGES).map(|_| "a b".into()).collect();
    let apart = with(gpt2.clone(), &merges(&many)).unwrap_err().to_string();
    assert!(apart.contains("two digits"), "{apart}");
    with(gpt2, &merges(&[many.as_slice(), &["1 9".into()]].concat())).unwrap();
}

#[test]
fn a_sentence_piece_folder_is_a_llama_tokenizer() {
    let model = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tinyllama/bf16/tokenizer.model"),
    );
    let model = model.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    let spec = || super::super::json::spec(&ConfigFiles::read(folder.path())?, &OnceLock::new());
    write("config.json", b"{}");
    write("tokenizer.model", &model);
    let bare = spec().unwrap();
    assert_eq!((bare.kind, bare.tokens, bare.pre.as_deref()), (TokenizerKind::SentencePiece, 480, None));
    assert_eq!((bare.bos, bare.add_bos, bare.eos, bare.add_eos), (Some(1), true, Some(2), false));
    assert!(bare.add_space_prefix && bare.stop_ids.contains_key(&2), "{bare:?}");
    write(
        "tokenizer_config.json",
        br#"{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false, "add_prefix_space": false}"#,
    );
    let told = spec().unwrap();
    assert!(!told.add_bos && !told.add_space_prefix);
    write("tokenizer_config.json", br#"{"tokenizer_class": "T5Tokenizer"}"#);
    let other = spec().unwrap_err().to_string();
    assert!(other.contains("T5Tokenizer") && other.contains("tokenizer_config.json"), "{other}");
    write("tokenizer_config.json", br#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#);
    assert!(spec().is_err());
    // The kind of the file is checked before the class.
    for class in ["LlamaTokenizer", "PreTrainedTokenizerFast", "TikTokenTokenizer"] {
        write("tokenizer_config.json", json!({"tokenizer_class": class}).to_string().as_bytes());
        for (content, says) in [
            (b"IQ== 0\nIg== 1\n".as_slice(), ["a tiktoken vocabulary", "put the tokenizer.json"]),
            (b"version https://git-lfs.github.com/spec/v1\n", ["a Git LFS pointer", "git lfs pull"]),
            (b"", ["the file is empty", "download it again"]),
        ] {
            write("tokenizer.model", content);
            let refused = spec().unwrap_err().to_string();
            assert!(says.iter().all(|part| refused.contains(part)), "{class}: {refused}");
            assert!(refused.contains("tokenizer.model: ") && !refused.contains(class), "{class}: {refused}");
        }
    }
}
