//! Damaged tokenizers, which a diagnosis does not build: loading does, and refuses them before it returns.

#![allow(clippy::unwrap_used)] // a sample that cannot be written is a broken test

use crate::{build, edit};
use build::{ARRAY, F32_VALUE, I32, TEXT, Tree, array, string};
use edit::{Files, Gguf};
use model_factory::tokenizer::EncodeError;
use model_factory::{Error, UnifiedModelFactory};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Panics of this process. There must be none, caught or not: a program may be built to end at the first.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        told(panic);
    }));
}

#[derive(Default)]
struct Table {
    refused: usize,
    failures: Vec<String>,
}

impl Table {
    /// Loading `name` in `tree` must end with `code` and an error that has all of `says` in it.
    fn refuses(&mut self, case: &str, tree: &Tree, name: &str, code: u8, says: &[&str]) {
        let start = Instant::now();
        let (found, text) = match UnifiedModelFactory::builder().threads(1).context_length(64).load(tree.path(name)) {
            Ok(_) => (0, "loaded".to_owned()),
            Err(error) => (error.code(), error.to_string()),
        };
        self.refused += 1;
        if found != code || says.iter().any(|part| !text.contains(part)) || start.elapsed() > Duration::from_secs(60) {
            self.failures.push(format!("{case}: expected {code} with {says:?}, found {found}: {text}"));
        }
    }
}

#[test]
fn loading_refuses_a_damaged_tokenizer() {
    count_panics();
    let mut table = Table::default();
    from_json(&mut table);
    from_byte_level_keys(&mut table);
    from_sentence_piece_keys(&mut table);
    from_vocab_and_merges(&mut table);
    from_sentence_piece_file(&mut table);
    assert!(table.failures.is_empty(), "{} inputs failed:\n{}", table.failures.len(), table.failures.join("\n"));
    assert!(table.refused >= 70, "only {} inputs", table.refused);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn a_pattern_that_takes_too_many_steps_is_an_error() {
    let llama = Files::fixture("llama-3.1/bf16");
    let slow = json!({"type": "Split", "pattern": {"Regex": r"x[^y]*y|x"}, "behavior": "Isolated", "invert": false});
    let files = llama.json("tokenizer.json", |root: &mut Map<String, Value>| root["pre_tokenizer"] = slow.clone());
    let model = UnifiedModelFactory::builder().threads(1).context_length(64).load(files.tree().path("")).unwrap();
    for _ in 0..2 {
        let error = Error::from(model.tokenizer().encode(&"x".repeat(20_000), true).unwrap_err());
        assert!(matches!(error, Error::Encode(EncodeError::Pattern { .. })), "{error}");
    }
}

fn from_json(table: &mut Table) {
    const NAME: &str = "tokenizer.json";
    let llama = Files::fixture("llama-3.1/bf16");
    table.refuses("no tokenizer", &llama.without(NAME).tree(), "", 15, &["no tokenizer"]);
    table.refuses("a tokenizer cut off", &llama.cut(NAME, 5000).tree(), "", 10, &[NAME]);
    let mut case = |case: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        table.refuses(case, &llama.json(NAME, change).tree(), "", 10, &[NAME]);
    };
    let set = |key: &'static str, value: Value| move |root: &mut Map<String, Value>| root[key] = value.clone();
    for (key, values) in [
        (
            "decoder",
            vec![
                json!(null),
                json!({"type": "WordPiece"}),
                json!({"type": "Strip", "content": "x", "start": 9, "stop": 9}),
                json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}),
                json!(5),
            ],
        ),
        (
            "normalizer",
            vec![
                json!({"type": "Nonsense"}),
                json!("NFC"),
                json!({"type": "Replace", "pattern": {"Regex": "("}, "content": ""}),
                json!({"type": "Precompiled", "precompiled_charsmap": "not base64"}),
                json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
                json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
                json!({"type": "Precompiled", "precompiled_charsmap": ""}),
                json!({"precompiled_charsmap": "AAAA"}),
                json!({"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "AAAA"}]}),
            ],
        ),
        (
            "pre_tokenizer",
            vec![
                json!({"type": "Nonsense"}),
                json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
                json!({"type": "Split", "pattern": {"Regex": "a{99999999}{99999999}"}, "behavior": "Isolated", "invert": false}),
                json!({"type": "Split", "pattern": {"String": "a"}, "behavior": "Nonsense", "invert": false}),
                json!({"type": "Sequence", "pretokenizers": 5}),
                json!({"type": "FixedLength", "length": 0}),
            ],
        ),
    ] {
        for value in values {
            case(&format!("{key} is {value}"), &set(key, value.clone()));
        }
    }
    let model =
        |key: &'static str, value: Value| move |root: &mut Map<String, Value>| root["model"][key] = value.clone();
    case("merges of unknown tokens", &model("merges", json!([["no such", "token"]])));
    case("merges that make no token", &model("merges", json!([["!", "\""]])));
    case("merges of three", &model("merges", json!([["a", "b", "c"]])));
    case("merges of one", &model("merges", json!(["ab"])));
    case("merges of numbers", &model("merges", json!([1, 2])));
    case("merges that are a text", &model("merges", json!("a b")));
    case("no merges", &|root| drop(root["model"].as_object_mut().unwrap().remove("merges")));
    case("no vocabulary", &|root| drop(root["model"].as_object_mut().unwrap().remove("vocab")));
    case("a vocabulary of another model", &|root| root["model"]["type"] = json!("Unigram"));
    case("a list as the vocabulary of BPE", &model("vocab", json!([["a", 0.0]])));
    case("a dropout of 5", &model("dropout", json!(5.0)));
    case("a dropout as in training", &model("dropout", json!(0.1)));
    case("halves with a prefix", &|root| {
        root["model"]["continuing_subword_prefix"] = json!("##");
    });
    case("a vocabulary of one token", &model("vocab", json!({"a": 0})));
    case("an added token in another place", &|root| root["added_tokens"][0]["id"] = json!(400));
    case("two added tokens with one text", &|root| root["added_tokens"][1]["content"] = json!("<|begin_of_text|>"));
    case("an added token without its flags", &|root| root["added_tokens"] = json!([{"id": 312, "content": "x"}]));
    let unigram = |model: Value| move |root: &mut Map<String, Value>| root["model"] = model.clone();
    case(
        "a Unigram with an unknown token beyond",
        &unigram(json!({"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]})),
    );
    case("a Unigram of texts", &unigram(json!({"type": "Unigram", "unk_id": 0, "vocab": ["a"]})));
    case("a Unigram with an empty list", &unigram(json!({"type": "Unigram", "unk_id": 0, "vocab": []})));
}

/// Folders as they were before tokenizer.json: the fixture's own vocabulary in two files.
fn from_vocab_and_merges(table: &mut Table) {
    const CONFIG: &str = "tokenizer_config.json";
    let qwen = Files::fixture("qwen2.5/bf16");
    let own: Value = serde_json::from_slice(qwen.get("tokenizer.json")).unwrap();
    let merges = own["model"]["merges"].as_array().unwrap().iter();
    let merges: Vec<String> =
        merges.map(|merge| format!("{} {}\n", merge[0].as_str().unwrap(), merge[1].as_str().unwrap())).collect();
    let class = |root: &mut Map<String, Value>| root["tokenizer_class"] = json!("Qwen2Tokenizer");
    let qwen = qwen
        .without("tokenizer.json")
        .with("vocab.json", own["model"]["vocab"].to_string())
        .with("merges.txt", merges.concat())
        .json(CONFIG, class);
    table.refuses("nothing: it is whole", &qwen.tree(), "", 0, &["loaded"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\n";
    let mut case = |case: &str, files: &Files, code: u8, says: &[&str]| {
        table.refuses(case, &files.tree(), "", code, says);
    };
    case("no merges.txt", &qwen.without("merges.txt"), 15, &["merges.txt"]);
    case("merges.txt alone", &qwen.without("vocab.json"), 15, &["no tokenizer"]);
    case("a vocabulary cut off", &qwen.cut("vocab.json", 100), 10, &["vocab.json"]);
    case("a pointer for a vocabulary", &qwen.with("vocab.json", pointer), 10, &["vocab.json", "Git LFS"]);
    case("a pointer for merges", &qwen.with("merges.txt", pointer), 10, &["merges.txt", "Git LFS"]);
    case("a list for a vocabulary", &qwen.with("vocab.json", "[[\"a\", 0.5]]"), 10, &["vocab.json"]);
    case("an id without end", &qwen.with("vocab.json", "{\"a\": 4294967295}"), 10, &["vocab.json"]);
    case("merges of unknown tokens", &qwen.with("merges.txt", "zz yy\n"), 10, &["merges.txt", "merge 0"]);
    case("merges that make no token", &qwen.with("merges.txt", "! !\n"), 10, &["merges.txt", "merge 0"]);
    case("merges of three", &qwen.with("merges.txt", "a b c\n"), 10, &["merges.txt", "line 1"]);
    case("merges of one", &qwen.with("merges.txt", "#version: 0.2\nab\n"), 10, &["merges.txt", "line 2"]);
    case("merges of no UTF-8", &qwen.with("merges.txt", b"a b\n\xff b\n"), 10, &["merges.txt", "line 2"]);
    let decoder = |value: Value| qwen.json(CONFIG, |root| root["added_tokens_decoder"] = value);
    case("a token in another's place", &decoder(json!({"5": {"content": "zzz"}})), 10, &["vocab.json", "zzz"]);
    case("a token far after the others", &decoder(json!({"4294967295": {"content": "zzz"}})), 10, &[CONFIG, "zzz"]);
    case("added tokens that are a list", &decoder(json!([])), 10, &[CONFIG, "added_tokens_decoder"]);
    let other = qwen.json(CONFIG, |root| root["tokenizer_class"] = json!("BloomTokenizerFast"));
    case("another class", &other, 10, &[CONFIG, "tokenizer_class", "BloomTokenizerFast", "save tokenizer.json"]);
    let number = qwen.json(CONFIG, |root| root["tokenizer_class"] = json!(5));
    case("a class that is a number", &number, 10, &[CONFIG, "tokenizer_class"]);
}

fn from_sentence_piece_file(table: &mut Table) {
    const NAME: &str = "tokenizer.model";
    let llama = Files::fixture("tinyllama/bf16").without("tokenizer.json");
    table.refuses("nothing: it is whole", &llama.tree(), "", 0, &["loaded"]);
    let mut case = |case: &str, bytes: &[u8], says: &[&str]| {
        table.refuses(case, &llama.with(NAME, bytes).tree(), "", 10, &[&[NAME], says].concat());
    };
    let whole = llama.get(NAME).to_vec();
    case("a model cut off", &whole[..5000], &[]);
    case("an empty model", b"", &["empty"]);
    case("zeros", &[0; 4096], &[]);
    case("a tiktoken file", b"IQ== 0\nIg== 1\n", &["tiktoken", "tokenizer.json"]);
    let at = whole.windows(6).position(|part| part == b"<0x0A>").unwrap();
    case("a byte of no number", &[&whole[..at], b"<0xZZ>", &whole[at + 6..]].concat(), &["<0xZZ>"]);
    let class = |root: &mut Map<String, Value>| root["tokenizer_class"] = json!("T5Tokenizer");
    let t5 = llama.json("tokenizer_config.json", class);
    table.refuses("another class", &t5.tree(), "", 10, &["tokenizer_config.json", "T5Tokenizer"]);
}

fn from_byte_level_keys(table: &mut Table) {
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    let (tokens, merges) = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges");
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with("m.gguf", file.build()), "m.gguf", code, &["m.gguf", says]);
    };
    let texts =
        |texts: &[&[u8]]| array(TEXT, texts.len() as u64, texts.iter().map(string).collect::<Vec<_>>().concat());
    for (what, merge) in [
        ("no space", &b"ab"[..]),
        ("nothing", b""),
        ("a space", b" "),
        ("unknown halves", b"no-such token"),
        ("halves that make no token", b"! !"),
        ("bytes that are no UTF-8", b"\xff \xfe"),
    ] {
        case(&format!("a merge of {what}"), &llama.set(merges, ARRAY, texts(&[merge])), 10, "merge 0");
    }
    case("equal tokens", &llama.set(tokens, ARRAY, texts(&[&b"a"[..]; 320])), 10, "same text");
    case("empty tokens", &llama.set(tokens, ARRAY, texts(&[&b""[..]; 320])), 10, "merge 0");
    case("no pre-tokenizer of this name", &llama.text("tokenizer.ggml.pre", "x"), 10, "tokenizer.ggml.pre");
    let none = llama.text("tokenizer.ggml.model", "none");
    table.refuses("no vocabulary", &Tree::new().with("m.gguf", none.build()), "m.gguf", 15, &["no tokenizer"]);
}

fn from_sentence_piece_keys(table: &mut Table) {
    let tiny = Gguf::fixture("tinyllama/q8_0.gguf");
    let (tokens, scores, types) = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type");
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with("m.gguf", file.build()), "m.gguf", code, &["m.gguf", says]);
    };
    let equal = array(TEXT, 480, string("a").repeat(480));
    case("equal pieces", &tiny.set(tokens, ARRAY, equal), 10, "same text");
    case(
        "scores that are no numbers",
        &tiny.set(scores, ARRAY, array(F32_VALUE, 480, f32::NAN.to_le_bytes().repeat(480))),
        10,
        scores,
    );
    case(
        "a type for every second piece",
        &tiny.set(types, ARRAY, array(I32, 240, 1_i32.to_le_bytes().repeat(240))),
        15,
        types,
    );
    case("no scores", &tiny.without(scores), 10, scores);
}
