//! Header -> TokenizerSpec: vocabulary, BOS, stop tokens and template in the files, without building the tokenizer.

mod added;
mod files;
mod folder;
mod gguf;
mod json;
mod pair;
mod post_processor;
pub mod pre;
pub mod sentencepiece;
pub mod steps;
mod templates;

use crate::error::Result;
use crate::header::{Header, Metadata};
use crate::source::content;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

pub use crate::tool_calls::ToolCallFormat;
pub use added::AddedToken;
pub use files::{Entries, Merges, Model, TokenizerFiles};
pub use pair::{PairPart, PairTemplate, PairText};
pub use templates::{ChatTemplateSource, DEFAULT as DEFAULT_TEMPLATE, TOOL_USE as TOOL_USE_TEMPLATE, TemplatePlace};

/// What the files say about the tokenizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerSpec {
    /// How text becomes ids.
    pub kind: TokenizerKind,
    /// The name of the vocabulary's model in the file: `BPE`, `Unigram`; `llama`, `gpt2`.
    pub model: Option<String>,
    /// The GGUF name of the pre-tokenizer; always one of [`pre::PRE_TOKENIZERS`] for [`TokenizerKind::ByteLevelBpe`].
    pub pre: Option<String>,
    /// One more than the largest id of the vocabulary, added tokens included; 0 when there is no vocabulary.
    pub tokens: usize,
    /// The beginning-of-sequence id.
    pub bos: Option<u32>,
    /// The text of `bos`: `<｜begin▁of▁sentence｜>` distinguishes a DeepSeek distill from its base model.
    pub bos_text: Option<String>,
    /// Whether encoding a prompt adds `bos` at its beginning.
    pub add_bos: bool,
    /// The end-of-sequence id of the tokenizer; [`stop_ids`](Self::stop_ids) are what ends a generation.
    pub eos: Option<u32>,
    /// The text of `eos`.
    pub eos_text: Option<String>,
    /// Texts of other special tokens by their names in chat templates: `pad_token`, `unk_token`.
    pub named_tokens: BTreeMap<String, String>,
    /// Whether encoding a text appends `eos`.
    pub add_eos: bool,
    /// How two texts are joined into one sequence, if the files say so.
    pub pair: Option<PairTemplate>,
    /// Whether a SentencePiece-like tokenizer adds a space before a text.
    pub add_space_prefix: bool,
    /// The rules of a GGUF's WordPiece vocabulary for texts.
    pub word_piece: Option<WordPieceRules>,
    /// Ids that end a generation, each with the sources that name it.
    pub stop_ids: BTreeMap<u32, Vec<String>>,
    /// The model's Jinja chat templates by name; most models have only [`DEFAULT_TEMPLATE`].
    pub chat_templates: BTreeMap<String, ChatTemplateSource>,
    /// Defaults that were used and statements that were ignored, each with its reason.
    pub assumptions: Vec<String>,
}

/// What a WordPiece tokenizer does to a text before it splits words (transformers `BertTokenizer`). Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPieceRules {
    /// Letters are lowercased.
    pub lowercase: bool,
    /// Accents are removed.
    pub strip_accents: bool,
    /// The id of the unknown token.
    pub unknown: u32,
}

/// How text becomes ids. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenizerKind {
    /// A `tokenizer.json`.
    Json,
    /// GGUF keys of model `llama`, or a `tokenizer.model`: SentencePiece-like BPE by scores.
    SentencePiece,
    /// GGUF keys of model `gpt2`, or `vocab.json` and `merges.txt`: byte-level BPE by merges.
    ByteLevelBpe,
    /// GGUF keys of model `gemma4`: BPE by merges of characters, with byte tokens for characters that are not in the vocabulary.
    CharacterBpe,
    /// GGUF keys of model `t5`, or a `spm.model`: the most likely pieces of a SentencePiece vocabulary.
    Unigram,
    /// GGUF keys of model `bert`, or a `vocab.txt`: the longest pieces of words.
    WordPiece,
    /// No tokenizer was found.
    #[default]
    Missing,
}

/// Texts that end a turn or a document in every vocabulary that has them as a token (the end-of-generation list of
/// llama.cpp's `llama-vocab.cpp`, and those of Llama 4).
const END_TEXTS: &str = "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> \
                         <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> \
                         <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[ <|eot|> <|eom|>";

/// More tokens with these texts than any sound vocabulary has.
const MOST_END_TOKENS: usize = 352;

impl TokenizerSpec {
    /// Reads what `header` says about its tokenizer, and keeps the files that were read for building it.
    ///
    /// # Errors
    /// `Format` for a known key of a wrong type or an unknown value (an unknown tokenizer model or pre-tokenizer among
    /// them), `Incomplete` for arrays that contradict each other, `Io` when a companion file cannot be read.
    pub fn from_header(header: &Header) -> Result<TokenizerSpec> {
        match &header.metadata {
            Metadata::Gguf(metadata) => gguf::spec(metadata),
            Metadata::Config(files) => json::spec(files, &header.tokenizer),
        }
    }

    /// Replaces the `tokenizer.json` of the model's folder by the one at `path`; the former is then not read. For a
    /// GGUF file, which has its vocabulary inside, [`with_given`](Self::with_given) replaces it.
    ///
    /// # Errors
    /// `Io` when there is no such file, `Format` when it is not a regular file.
    pub fn give(header: &mut Header, path: &Path) -> Result<()> {
        content::regular_file(path)?;
        header.tokenizer = OnceLock::new();
        if let Metadata::Config(files) = &mut header.metadata {
            files.tokenizer = Some(path.into());
        }
        Ok(())
    }

    /// The spec of `header` when the user gives the `tokenizer.json` at `path`: BOS, stop tokens and template are the
    /// model's, everything else is the given file's.
    ///
    /// # Errors
    /// `Format` when the file is damaged or of an unknown kind, `Io` when it cannot be read.
    pub fn with_given(self, header: &Header, path: &Path) -> Result<TokenizerSpec> {
        let mut spec = match &header.metadata {
            Metadata::Gguf(_) => {
                let files = TokenizerFiles::read_json(path)?;
                json::given(header.tokenizer.get_or_init(|| files), &self)?
            }
            // `give` has put the file in place before the rest was read.
            Metadata::Config(_) => self,
        };
        spec.assume(format!("the tokenizer is {}, as given", path.display()));
        Ok(spec)
    }

    /// The text of the default chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_templates.get(DEFAULT_TEMPLATE).map(|template| template.text.as_str())
    }

    /// The format of tool calls, with the marks that show it, in the template of a chat with tools.
    pub fn tool_calls(&self) -> Option<(ToolCallFormat, &'static [&'static str])> {
        let templates = &self.chat_templates;
        let template = templates.get(TOOL_USE_TEMPLATE).or_else(|| templates.get(DEFAULT_TEMPLATE))?;
        ToolCallFormat::of(&template.text)
    }

    /// Copies what `files` say about the vocabulary.
    fn describe(&mut self, files: &TokenizerFiles) {
        self.kind = files.kind;
        self.model.clone_from(&files.model.kind);
        self.pre = files.pre.map(Into::into);
        self.tokens = files.tokens();
        self.add_space_prefix = files.space_prefix;
        self.assumptions.extend(files.assumption.map(Into::into));
    }

    fn assume(&mut self, what: impl Into<String>) {
        self.assumptions.push(what.into());
    }

    /// Adds `id`, named by `source`, to the stop set; an id outside the vocabulary is noted instead.
    fn stop(&mut self, id: u64, source: &str) {
        match u32::try_from(id) {
            Ok(id) if self.kind == TokenizerKind::Missing || (id as usize) < self.tokens => {
                let sources = self.stop_ids.entry(id).or_default();
                if !sources.iter().any(|known| known == source) {
                    sources.push(source.into());
                }
            }
            _ => self.assume(format!("{source} names id {id}, outside the {} tokens: ignored", self.tokens)),
        }
    }

    /// Adds the tokens whose text is known to end a turn; `known` yields ids and texts.
    fn stop_on_known_texts<'a>(&mut self, known: impl Iterator<Item = (u32, &'a [u8])>) {
        let mut found: Vec<(u32, &'static str)> = Vec::new();
        for (id, text) in known {
            // The cheap test comes first: this visits vocabularies of 200,000 tokens.
            if matches!(text.first(), Some(b'<' | b'[' | b'_')) && text.len() <= 32 {
                found.extend(END_TEXTS.split(' ').filter(|end| end.as_bytes() == text).map(|end| (id, end)));
            }
            // A vocabulary that repeats them is refused when the tokenizer is built.
            if found.len() > MOST_END_TOKENS {
                break;
            }
        }
        let has = |text: &str| found.iter().any(|(_, known)| *known == text);
        // In these vocabularies `<|end|>` ends a message, not the turn.
        let end_is_inner = (has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>"));
        // With `<eos>`, as in Gemma, it is HTML: the end of strikethrough text.
        let strikes = has("<eos>");
        for (id, text) in found {
            if (text == "<|end|>" && end_is_inner) || (text == "</s>" && strikes) {
                continue;
            }
            self.stop(id.into(), &format!("token text {text}"));
            if self.chat_template().is_some_and(|template| template.contains(text)) {
                self.stop(id.into(), "chat template");
            }
        }
    }

    /// Clears `add_bos` and `add_eos` where there is no id to add.
    fn settle(&mut self) {
        if self.add_bos && self.bos.is_none() {
            self.add_bos = false;
            self.assume("a BOS is asked for but none is named: none is added");
        }
        if self.add_eos && self.eos.is_none() {
            self.add_eos = false;
            self.assume("an EOS is asked for but none is named: none is added");
        }
    }
}
