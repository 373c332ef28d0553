//! GGUF keys, and the files that came before tokenizer.json, against the tokenizers library: ids are those of the
//! family's own tokenizer.json.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use model_diagnostics::header::Header;
use model_diagnostics::source::probe;
use model_diagnostics::tokenizer::TokenizerSpec;
use model_factory::tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer as Library;

const TEXTS: usize = 2500;

/// What texts are made of: each is a place where cuts or merges have been got wrong.
const PARTS: [&str; 97] = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\t\t",
    " \n",
    "\n ",
    "\u{a0}",
    "\u{3000}",
    "\u{2003}",
    "\u{85}",
    "\u{200b}",
    "\u{feff}",
    "\u{0}",
    "\u{7f}",
    "\u{1b}[0m",
    "'s",
    "'S",
    "'ll",
    "'LL",
    "'lL",
    "'t",
    "'re",
    "'Ve",
    "’s",
    "don't",
    "I'M",
    "Once",
    "upon",
    "a",
    "the",
    "Tobin",
    "HelloWorld",
    "iPHONE",
    "mIxEd",
    "x1y2",
    "1",
    "12",
    "123",
    "1234567",
    "3.14",
    "10,000",
    "½",
    "²³",
    "١٢٣",
    "४५",
    "Ⅷ",
    "e\u{301}",
    "é",
    "A\u{30a}",
    "n\u{303}\u{323}",
    "\u{301}",
    "\u{1fd3}",
    "\u{1f7d}",
    "\u{212b}",
    "ßẞ",
    "ǅ",
    "ﬁ",
    "Ωμέγα",
    "Привет",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "ไทย",
    "日本語",
    "中文字",
    "カタカナ",
    "한국어",
    "\u{1112}\u{1161}\u{11ab}",
    "。、",
    "！？",
    "👩‍👩‍👧",
    "🇩🇪",
    "👍🏽",
    "\u{10ffff}",
    "!?",
    "...",
    "//",
    "a_b",
    "(x+y)=$z;",
    "`~^|",
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_",
    "<s>",
    "</s>",
    "<unk>",
    "▁",
    "▁▁the",
    "<0x41>",
    "<|end|>",
    "<|user|>\n",
    "<|system|>",
];

/// A generator of numbers (Marsaglia 2003, xorshift64): the same texts in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Parts in any order; every fourth text has characters of the whole of Unicode's first planes between them.
    fn text(&mut self, index: usize) -> String {
        let mut text = String::new();
        let parts = if index.is_multiple_of(100) { 400 } else { 1 + self.below(16) };
        for _ in 0..parts {
            text.push_str(PARTS[self.below(PARTS.len())]);
            if index.is_multiple_of(4) {
                // Letters, digits and marks that all versions of Unicode since 5.0 class alike.
                let (first, len) =
                    [(0x21, 94), (0xa1, 0x180), (0x391, 17), (0x410, 64), (0x4e00, 0x5000), (0xac00, 11172)]
                        [self.below(6)];
                text.extend(char::from_u32(first + u32::try_from(self.below(len)).unwrap()));
            }
        }
        text
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_list<'a>(out: &mut Vec<u8>, key: &str, texts: impl ExactSizeIterator<Item = &'a str>) {
    put(out, key);
    out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    out.extend((texts.len() as u64).to_le_bytes());
    texts.for_each(|text| put(out, text));
}

fn texts<'a>(fixture: &'a Value, key: &str) -> Vec<&'a str> {
    fixture[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// A GGUF file (ggml `docs/gguf.md`) of the vocabulary as llama.cpp's converter writes it, and one tensor.
fn gguf(fixture: &Value, pre: &str) -> Vec<u8> {
    let tokens = texts(fixture, "tokens");
    let mut out = [b"GGUF\x03\0\0\0".as_slice(), &1u64.to_le_bytes(), &7u64.to_le_bytes()].concat();
    let strings = [("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", pre)];
    for (key, value) in strings {
        put(&mut out, key);
        out.extend(8u32.to_le_bytes());
        put(&mut out, value);
    }
    put_list(&mut out, "tokenizer.ggml.tokens", tokens.iter().copied());
    put_list(&mut out, "tokenizer.ggml.merges", texts(fixture, "merges").into_iter());
    put(&mut out, "tokenizer.ggml.token_type");
    out.extend([9u32.to_le_bytes(), 5u32.to_le_bytes()].concat());
    out.extend((tokens.len() as u64).to_le_bytes());
    let added = fixture["added_tokens"].as_array().unwrap();
    for token in &tokens {
        let special = added.iter().any(|added| added["content"] == *token);
        out.extend(if special { 3i32 } else { 1 }.to_le_bytes());
    }
    put(&mut out, "tokenizer.ggml.eos_token_id");
    out.extend([4u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    put(&mut out, "x");
    out.extend(1u32.to_le_bytes());
    out.extend(8u64.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32) + 32, 0);
    out
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
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": fixture["added_tokens"],
        "normalizer": pipeline["normalizer"], "pre_tokenizer": pipeline["pre_tokenizer"], "post_processor": null,
        "decoder": null,
        "model": { "type": "BPE", "vocab": vocab, "merges": fixture["merges"], "ignore_merges": ignore_merges },
    });
    Library::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap()
}

/// Encodes generated texts both ways and reads them back; notes the first that differ.
fn agree(name: &str, ours: &Tokenizer, library: &Library, failures: &mut Vec<String>) {
    let model: Value = serde_json::from_str(&library.to_string(false).unwrap()).unwrap();
    // A composed text is not the one that went in, and SentencePiece spells a space as `▁`.
    let composes = model["normalizer"]["type"] == "NFC";
    let spaces = model["model"]["byte_fallback"] == true;
    let mut draw = Draw(0x5eed_0004);
    let (mut wrong, mut whole) = (0, 0);
    for index in 0..TEXTS {
        let text = draw.text(index);
        let found = ours.encode(&text, false).unwrap();
        let expected = library.encode(text.as_str(), false).unwrap().get_ids().to_vec();
        let mut stream = ours.stream();
        let mut pieces = String::new();
        for id in &found {
            stream.push(ours.token_bytes(*id).unwrap(), &mut pieces);
        }
        stream.finish(&mut pieces);
        // Special tokens are hidden.
        let shown = !composes && !found.iter().any(|id| ours.is_special(*id));
        let mut spelled = if spaces { text.replace('▁', " ") } else { text.clone() };
        // A space in front is taken for the one that is put there.
        if model["pre_tokenizer"]["type"] == "Metaspace" && spelled.starts_with(' ') {
            spelled.remove(0);
        }
        whole += usize::from(shown);
        if found != expected || pieces != ours.decode(&found) || (shown && pieces != spelled) {
            wrong += 1;
            if wrong <= 3 {
                let failure = format!("{name} {text:?}: {found:?}, expected {expected:?}; decoded {pieces:?}");
                failures.push(failure.chars().take(2000).collect());
            }
        }
    }
    println!("{name}: {TEXTS} texts, {wrong} wrong, {whole} read back byte by byte");
    assert!(composes || whole > TEXTS / 2, "{name}: only {whole} texts without a special token");
}

fn open(path: &Path) -> Tokenizer {
    let header = Header::read(probe(path).unwrap()).unwrap();
    let spec = TokenizerSpec::from_header(&header).unwrap();
    Tokenizer::from_header(&header, &spec).unwrap()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
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
    assert_eq!(pipelines.len(), 18, "fixtures/pre_tokenizers.json is incomplete");
}

#[test]
fn sentence_piece_keys_alone_give_the_ids_of_the_original() {
    let mut failures = Vec::new();
    for (name, gguf) in [("tinyllama", "bf16.gguf"), ("phi-3.5", "q8_0.gguf")] {
        let model = fixtures().join("models").join(name);
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
    let (from, to) = (fixtures().join(folder), tempfile::tempdir().unwrap());
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
    serde_json::from_str(&library(fixture, pipeline).to_string(false).unwrap()).unwrap()
}

#[test]
fn vocab_and_merges_alone_give_the_ids_of_the_tokenizer_json_they_were_saved_with() {
    let wide = json(&fixtures().join("pre_tokenizers.json"));
    let wide = file_of(&wide, &wide["pipelines"]["qwen2"]);
    let own = |folder: &str| json(&fixtures().join(folder).join("tokenizer.json"));
    let mut failures = Vec::new();
    for (name, folder, class, original) in [
        ("a wide vocabulary", "models/qwen2.5/bf16", "Qwen2TokenizerFast", wide),
        ("qwen2.5", "models/qwen2.5/bf16", "Qwen2Tokenizer", own("models/qwen2.5/bf16")),
        ("qwen3", "models/qwen3/bf16", "Qwen2Tokenizer", own("models/qwen3/bf16")),
        ("phi-2", "models/phi-2/bf16", "CodeGenTokenizer", own("models/phi-2/bf16")),
        ("demo", "demo", "GPT2Tokenizer", own("demo")),
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

/// The pipeline that transformers 5 gives a `LlamaTokenizer` of a `tokenizer.model` alone.
fn metaspace(original: &Value, scheme: &str) -> Library {
    let mut original = original.clone();
    original["normalizer"] = Value::Null;
    original["pre_tokenizer"] =
        serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    Library::from_bytes(original.to_string()).unwrap()
}

#[test]
fn a_sentence_piece_model_alone_gives_the_ids_of_transformers() {
    let folder = "models/tinyllama/bf16";
    let mut original = json(&fixtures().join(folder).join("tokenizer.json"));
    let mut config = json(&fixtures().join(folder).join("tokenizer_config.json"));
    let model = ("tokenizer.model", std::fs::read(fixtures().join(folder).join("tokenizer.model")).unwrap());
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

    // Tokens behind the pieces, as Phi-3 has them: they take the white space that follows.
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

#[test]
fn tokenizer_json_wins_over_the_files_beside_it() {
    let folder = "models/tinyllama/bf16";
    let damaged = [("tokenizer.model", b"\xff".to_vec()), ("vocab.json", b"{".to_vec())];
    let own = ("tokenizer.json", std::fs::read(fixtures().join(folder).join("tokenizer.json")).unwrap());
    let model = model_with(folder, &[damaged.as_slice(), &[own]].concat());
    assert_eq!(open(model.path()).vocab_len(), 480);
}
