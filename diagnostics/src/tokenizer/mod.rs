//! Header -> TokenizerSpec: what the files say of the vocabulary, BOS, stop tokens and template, without building it.

use std::collections::BTreeMap;

/// What the files say of the tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerSpec {
    /// How text becomes ids.
    pub kind: TokenizerKind,
    /// The name of the GGUF pre-tokenizer.
    pub pre: Option<String>,
    /// Entries of the vocabulary, added tokens included.
    pub tokens: usize,
    /// The beginning-of-sequence id.
    pub bos: Option<u32>,
    /// Whether encoding a prompt puts `bos` in front.
    pub add_bos: bool,
    /// Ids that end a generation, each with the sources that name it.
    pub stop_ids: BTreeMap<u32, Vec<String>>,
    /// The model's Jinja chat template.
    pub chat_template: Option<String>,
}

/// How text becomes ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerKind {
    /// A `tokenizer.json`.
    Json,
    /// GGUF keys of model `llama`: SentencePiece-like BPE by scores.
    SentencePiece,
    /// GGUF keys of model `gpt2`: byte-level BPE by merges.
    ByteLevelBpe,
    /// None found.
    Missing,
}
