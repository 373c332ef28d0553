//! The steps of a tokenizer, with their names and fields in the `tokenizer.json` of the tokenizers library.

#![allow(missing_docs, reason = "the names are the file's")]

use serde::Deserialize;

/// How a text is normalized before it is split into pieces.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
#[allow(clippy::upper_case_acronyms, reason = "the names are the file's")]
pub enum Normalizer {
    Sequence {
        normalizers: Vec<Normalizer>,
    },
    NFC,
    NFD,
    NFKC,
    NFKD,
    Lowercase,
    StripAccents,
    ByteLevel,
    Precompiled {
        precompiled_charsmap: String,
    },
    /// The same of a SentencePiece model, as it is there.
    #[serde(skip)]
    Charsmap {
        table: Vec<u8>,
    },
    Prepend {
        prepend: String,
    },
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    BertNormalizer {
        clean_text: bool,
        handle_chinese_chars: bool,
        strip_accents: Option<bool>,
        lowercase: bool,
    },
}

/// What a step looks for.
#[derive(Clone, Debug, Deserialize)]
pub enum Pattern {
    String(String),
    Regex(String),
}

/// How a text is split into pieces.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
pub enum PreTokenizer {
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
    Split {
        pattern: Pattern,
        behavior: Behavior,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        /// Since tokenizers 0.11; on if absent.
        use_regex: Option<bool>,
    },
    Metaspace {
        replacement: char,
        add_prefix_space: Option<bool>,
        prepend_scheme: Option<Prepend>,
        split: Option<bool>,
    },
    Digits {
        individual_digits: bool,
    },
    Punctuation {
        behavior: Option<Behavior>,
    },
    CharDelimiterSplit {
        delimiter: char,
    },
    Whitespace,
    WhitespaceSplit,
    BertPreTokenizer,
}

/// What happens to the delimiters of a split.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Which pieces Metaspace writes its character before.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Prepend {
    First,
    Never,
    Always,
}

/// How the texts of tokens are decoded into a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
pub enum Decoder {
    Sequence { decoders: Vec<Decoder> },
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace { pattern: Pattern, content: String },
    WordPiece { prefix: String },
    Strip { content: String, start: usize, stop: usize },
    Metaspace { replacement: Option<String>, add_prefix_space: Option<bool>, prepend_scheme: Option<Prepend> },
}

/// The character of a byte in GPT-2's alphabet: printable Latin-1 is itself, the other 68 bytes are U+0100 and up in order.
pub fn byte_character(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x00..=0x20 => 0x100 + code,
        0x7f..=0xa0 => 0x121 + code - 0x7f,
        0xad => 0x143,
        _ => code,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

impl PreTokenizer {
    /// Splits by GPT-2-like `patterns`, one after another, then maps bytes to GPT-2's characters.
    pub fn byte_level(patterns: &[&str]) -> PreTokenizer {
        let split = |pattern: &&str| PreTokenizer::Split {
            pattern: Pattern::Regex((*pattern).into()),
            behavior: Behavior::Isolated,
            invert: false,
        };
        let bytes = PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: Some(false) };
        PreTokenizer::Sequence { pretokenizers: patterns.iter().map(split).chain([bytes]).collect() }
    }
}
