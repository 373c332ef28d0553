//! The steps that a `tokenizer.json` may be made of, those that the library knows and this project may refuse among
//! them, with parameters that make texts grow, shrink, repeat and stall.

use super::random::Random;
use serde_json::{Value, json};

const TEXTS: [&str; 34] = [
    "",
    "a",
    "aa",
    "ab",
    "b",
    " ",
    "  ",
    "\n",
    "\0",
    "\\",
    "$0",
    "▁",
    "Ġ",
    "Ċ",
    "<s>",
    "</s>",
    "<0x61>",
    "<unk>",
    "'s",
    "1",
    "²",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "ﷺ",
    "\u{1d160}",
    "한",
    "日本",
    "😀",
    "👩\u{200d}👩",
    "\u{200b}",
    "\u{feff}",
    "\u{10ffff}",
];

/// Of families, and of those whose matching takes long, matches nothing, or needs what not every engine has.
const PATTERNS: [&str; 34] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "",
    "a",
    ".",
    "^",
    "$",
    r"\b",
    "()",
    "a*",
    "a*?",
    "(a*)*",
    "(a+)+$",
    "(x+x+)+y",
    "(a|aa)+b",
    "(.*)*x",
    "a{1000}",
    "(a{100}){100}",
    "((a{50}){50}){50}",
    r"\w{1,1000}z",
    "(?=a)",
    "(?!a)",
    "(?<=a)b",
    "(?<!a)b",
    r"(a)\1",
    "(?>a+)a",
    "a++a",
    r"\s+(?!\S)|\s+",
    "[^",
    "(?i)ß",
    r"\p{Han}",
    r"\X",
];

const BEHAVIORS: [&str; 5] = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"];

/// A text, seldom long.
pub fn text(random: &mut Random) -> String {
    let text = random.pick(&TEXTS);
    text.repeat(*random.pick(&[1, 1, 1, 1, 2, 3, 64, 1000]))
}

pub fn pattern(random: &mut Random) -> String {
    (*random.pick(&PATTERNS)).to_owned()
}

/// A prompt: texts in a row.
pub fn prompt(random: &mut Random) -> String {
    (0..random.below(6)).map(|_| text(random)).collect()
}

/// Changes one part of the `tokenizer.json` in `root`.
pub fn change(root: &mut Value, random: &mut Random) {
    let Some(root) = root.as_object_mut() else { return };
    match random.below(10) {
        0..3 => grow(root.entry("normalizer").or_insert(Value::Null), "normalizers", normalizer, random),
        3..6 => grow(root.entry("pre_tokenizer").or_insert(Value::Null), "pretokenizers", pre_tokenizer, random),
        6 => grow(root.entry("decoder").or_insert(Value::Null), "decoders", decoder, random),
        7 => grow(root.entry("post_processor").or_insert(Value::Null), "processors", post_processor, random),
        8 => match root.entry("added_tokens").or_insert(json!([])) {
            Value::Array(added) => {
                let id = added
                    .iter()
                    .filter_map(|token| token["id"].as_u64())
                    .max()
                    .map_or(random.below(40) as u64, |id| id.wrapping_add(1));
                added.push(
                    json!({"id": id, "content": text(random), "single_word": random.yes(), "lstrip": random.yes(),
                    "rstrip": random.yes(), "normalized": random.yes(), "special": random.yes()}),
                );
            }
            other => *other = json!([]),
        },
        _ => match root.get_mut("model") {
            Some(Value::Object(model)) => {
                let key = *random.pick(&[
                    "dropout",
                    "unk_token",
                    "continuing_subword_prefix",
                    "end_of_word_suffix",
                    "fuse_unk",
                    "byte_fallback",
                    "ignore_merges",
                    "unk_id",
                    "type",
                ]);
                let value = match random.below(6) {
                    0 => Value::Null,
                    1 | 2 => json!(random.yes()),
                    3 => json!(random.below(4)),
                    4 => json!(*random.pick(&["BPE", "Unigram", "WordPiece", "WordLevel"])),
                    _ => json!(text(random)),
                };
                model.insert(key.to_owned(), value);
            }
            _ => drop(root.insert("model".to_owned(), json!({"type": "BPE", "vocab": {"a": 0}, "merges": []}))),
        },
    }
}

/// Replaces the stage by one step, or adds a step to it, which makes it a sequence under `key`.
fn grow(stage: &mut Value, key: &str, step: fn(&mut Random) -> Value, random: &mut Random) {
    let new = step(random);
    if random.once_in(3) {
        *stage = new;
        return;
    }
    if let Some(steps) = stage.get_mut(key).and_then(Value::as_array_mut) {
        let index = random.below(steps.len() + 1);
        let times = *random.pick(&[1, 1, 1, 4, 8]);
        for _ in 0..times {
            steps.insert(index, new.clone());
        }
        return;
    }
    let old = stage.take();
    let steps: Vec<Value> = if old.is_null() { vec![new] } else { vec![old, new] };
    *stage = json!({"type": "Sequence", key: steps});
}

fn matched(random: &mut Random) -> Value {
    if random.yes() { json!({"String": text(random)}) } else { json!({"Regex": pattern(random)}) }
}

fn normalizer(random: &mut Random) -> Value {
    match random.below(14) {
        0 => json!({"type": random.pick(&["NFC", "NFD", "NFKC"])}),
        1 => json!({"type": "NFKD"}),
        2 => json!({"type": "Lowercase"}),
        3 => json!({"type": random.pick(&["Nmt", "StripAccents"])}),
        4 => json!({"type": "Strip", "strip_left": random.yes(), "strip_right": random.yes()}),
        5 => json!({"type": "BertNormalizer", "clean_text": random.yes(), "handle_chinese_chars": random.yes(),
            "strip_accents": random.yes(), "lowercase": random.yes()}),
        6 | 7 => json!({"type": "ByteLevel"}),
        8 | 9 => json!({"type": "Prepend", "prepend": text(random)}),
        10 => json!({"type": "Sequence", "normalizers": []}),
        _ => json!({"type": "Replace", "pattern": matched(random), "content": text(random)}),
    }
}

fn pre_tokenizer(random: &mut Random) -> Value {
    match random.below(12) {
        0 => json!({"type": random.pick(&["BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"])}),
        1 => json!({"type": "CharDelimiterSplit", "delimiter": random.pick(&["a", " ", "▁"])}),
        2 => json!({"type": "Punctuation", "behavior": random.pick(&BEHAVIORS)}),
        3 => json!({"type": "Digits", "individual_digits": random.yes()}),
        4 => json!({"type": "FixedLength", "length": random.pick(&[0u64, 1, 2, 5, 1 << 20, u64::MAX])}),
        5 | 6 => json!({"type": "ByteLevel", "add_prefix_space": random.yes(), "trim_offsets": random.yes(),
            "use_regex": random.yes()}),
        7 | 8 => json!({"type": "Metaspace", "replacement": random.pick(&["▁", "_", "a", " "]),
            "prepend_scheme": random.pick(&["always", "never", "first"]), "split": random.yes()}),
        9 => json!({"type": "Sequence", "pretokenizers": []}),
        _ => {
            json!({"type": "Split", "pattern": matched(random), "behavior": random.pick(&BEHAVIORS), "invert": random.yes()})
        }
    }
}

fn decoder(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({"type": "ByteLevel"}),
        1 => json!({"type": "ByteFallback"}),
        2 => json!({"type": "Fuse"}),
        3 => json!({"type": "Strip", "content": " ", "start": random.below(3), "stop": random.below(2)}),
        4 => {
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": random.pick(&["always", "never", "first"])})
        }
        5 => json!({"type": random.pick(&["WordPiece", "BPEDecoder", "CTC"]), "prefix": "##", "suffix": "</w>"}),
        _ => json!({"type": "Replace", "pattern": matched(random), "content": text(random)}),
    }
}

fn post_processor(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"type": "ByteLevel", "trim_offsets": random.yes()}),
        1 => {
            json!({"type": random.pick(&["BertProcessing", "RobertaProcessing"]), "sep": ["</s>", 2], "cls": ["<s>", 1]})
        }
        _ => {
            let token = || json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
            let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
            for _ in 0..random.below(3) {
                single.insert(random.below(single.len() + 1), token());
            }
            json!({"type": "TemplateProcessing", "single": single, "pair": [],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [random.below(3)], "tokens": ["<s>"]}}})
        }
    }
}
