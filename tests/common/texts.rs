//! Generated texts, encoded by a tokenizer and by the tokenizers library, and GGUF files of a vocabulary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "helpers of tests")]

use model_factory::tokenizer::Tokenizer;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use serde_json::Value;
use std::path::Path;
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

/// A GGUF file of keys and one tensor (ggml `docs/gguf.md`).
#[derive(Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    count: u64,
}

impl Keys {
    fn key(mut self, key: &str, kinds: &[u32]) -> Keys {
        self.count += 1;
        put(&mut self.bytes, key);
        self.bytes.extend(kinds.iter().flat_map(|kind| kind.to_le_bytes()));
        self
    }

    fn array(self, key: &str, kind: u32, len: usize) -> Keys {
        let mut with = self.key(key, &[9, kind]);
        with.bytes.extend((len as u64).to_le_bytes());
        with
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Keys {
        let mut with = self.key(key, &[8]);
        put(&mut with.bytes, value);
        with
    }

    pub(crate) fn id(self, key: &str, value: u32) -> Keys {
        self.key(key, &[4, value])
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Keys {
        let mut with = self.key(key, &[7]);
        with.bytes.push(value.into());
        with
    }

    pub(crate) fn texts<T: AsRef<str>>(self, key: &str, values: &[T]) -> Keys {
        let mut with = self.array(key, 8, values.len());
        values.iter().for_each(|value| put(&mut with.bytes, value.as_ref()));
        with
    }

    pub(crate) fn types(self, key: &str, values: &[i32]) -> Keys {
        let mut with = self.array(key, 5, values.len());
        with.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        with
    }

    pub(crate) fn scores(self, key: &str, values: &[f32]) -> Keys {
        let mut with = self.array(key, 6, values.len());
        with.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        with
    }

    pub(crate) fn file(self) -> Vec<u8> {
        let mut out = [b"GGUF\x03\0\0\0".as_slice(), &1u64.to_le_bytes(), &self.count.to_le_bytes()].concat();
        out.extend(self.bytes);
        put(&mut out, "x");
        out.extend(1u32.to_le_bytes());
        out.extend(8u64.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.resize(out.len().next_multiple_of(32) + 32, 0);
        out
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Encodes generated texts both ways and reads them back; notes the first that differ.
pub(crate) fn agree(name: &str, ours: &Tokenizer, library: &Library, failures: &mut Vec<String>) {
    agree_where(name, ours, library, failures, |_| true);
}

/// As [`agree`], on the texts that `tried` says.
pub(crate) fn agree_where(
    name: &str,
    ours: &Tokenizer,
    library: &Library,
    failures: &mut Vec<String>,
    tried: impl Fn(&str) -> bool,
) {
    let model: Value = serde_json::from_str(&library.to_string(false).unwrap()).unwrap();
    // A composed text is not the one that went in, nor one that a character map was applied to, and SentencePiece spells a space as `▁`.
    let composes = model["normalizer"]["type"] == "NFC" || model["model"]["type"] == "Unigram";
    let spaces = model["model"]["byte_fallback"] == true;
    let mut draw = Draw(0x5eed_0004);
    let (mut texts, mut wrong, mut whole) = (0, 0, 0);
    for index in 0..TEXTS {
        let text = draw.text(index);
        if !tried(&text) {
            continue;
        }
        texts += 1;
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
    println!("{name}: {texts} texts, {wrong} wrong, {whole} read back byte by byte");
    assert!(texts > TEXTS / 2, "{name}: only {texts} texts");
    assert!(composes || whole > texts / 2, "{name}: only {whole} texts without a special token");
}

pub(crate) fn open(path: &Path) -> Tokenizer {
    let header = Header::read(probe(path).unwrap()).unwrap();
    let spec = TokenizerSpec::from_header(&header).unwrap();
    Tokenizer::from_header(&header, &spec).unwrap()
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
