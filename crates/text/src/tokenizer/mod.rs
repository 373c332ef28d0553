//! Text to ids and back, from a `tokenizer.json`, its older files, or GGUF keys.

mod added;
mod bpe;
mod charsmap;
mod encoder;
mod files;
mod finder;
mod gguf;
mod infill;
mod merge;
mod normalizer;
mod numbers;
mod pattern;
mod pre_tokenizer;
mod sentencepiece;
mod stream;
mod text;
mod trie;
mod unigram;
mod vocabulary;
mod word_piece;

use crate::answer::MARKS;
use crate::error::{Error, Result};
use crate::grammar::Grammars;
use encoder::Encoder;
use model_factory_format::error::IncompleteKind;
use model_factory_format::header::{Header, Metadata};
use model_factory_format::tokenizer::{
    ChatTemplateSource, DEFAULT_TEMPLATE, PairPart, PairTemplate, PairText, TOOL_USE_TEMPLATE, TokenizerFiles,
    TokenizerKind, TokenizerSpec, ToolCallFormat,
};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use crate::error::EncodeError;
pub use stream::PieceDecoder;
use vocabulary::Vocabulary;

/// The ids of a pair of texts, and the place from which the token type is 1.
pub type Pair = (Vec<u32>, Option<usize>);

/// The tokenizer of one model. Only the tokenizer adds BOS: nothing else puts it in front of a prompt.
pub struct Tokenizer {
    encoder: Arc<Encoder>,
    vocabulary: Vocabulary,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// How two texts become one sequence; `None` if the files do not say it.
    pair: Option<PairTemplate>,
    template_thinks: bool,
    /// Formats of tool calls by the names of the chat templates, if they show one.
    tool_calls: BTreeMap<String, Option<ToolCallFormat>>,
    /// Compiled grammars, made when an answer is first held to one.
    grammars: OnceLock<Result<Grammars>>,
}

impl Tokenizer {
    /// Builds the tokenizer that `header` describes and `spec` was read from.
    ///
    /// # Errors
    /// `Files` (incomplete) if the model has no tokenizer, `Tokenizer` or `Files` (format) if its description is damaged.
    pub fn from_header(header: &Header, spec: &TokenizerSpec) -> Result<Tokenizer> {
        let built = match (&header.metadata, TokenizerFiles::read(header)?) {
            (_, Some(files)) => files::build(files, spec)?,
            (_, None) if matches!(spec.kind, TokenizerKind::Json | TokenizerKind::Missing) => return Err(none(header)),
            (Metadata::Gguf(metadata), None) => gguf::build(metadata, spec)?,
            (Metadata::Config(_), None) => return Err(none(header)),
        };
        Ok(Tokenizer::new(built, spec))
    }

    /// Builds the tokenizer of the `tokenizer.json` at `path`, with BOS and EOS from `spec`.
    ///
    /// # Errors
    /// `Files` if the file cannot be read or is no `tokenizer.json`, `Tokenizer` if it does not make a tokenizer.
    pub fn from_json(path: &Path, spec: &TokenizerSpec) -> Result<Tokenizer> {
        Ok(Tokenizer::new(files::build(&TokenizerFiles::read_json(path)?, spec)?, spec))
    }

    fn new((encoder, vocabulary): (Encoder, Vocabulary), spec: &TokenizerSpec) -> Tokenizer {
        let TokenizerSpec { bos, eos, add_bos, add_eos, .. } = *spec;
        let thinks = |template: &ChatTemplateSource| MARKS.iter().any(|(open, _)| template.text.contains(open));
        let template_thinks = spec.chat_templates.values().any(thinks);
        let tool_calls = spec.chat_templates.iter();
        let tool_calls = tool_calls.map(|(name, of)| (name.clone(), ToolCallFormat::of(&of.text).map(|known| known.0)));
        let (encoder, grammars, tool_calls) = (Arc::new(encoder), OnceLock::new(), tool_calls.collect());
        let pair = spec.pair.clone();
        Tokenizer { encoder, vocabulary, bos, eos, add_bos, add_eos, pair, template_thinks, tool_calls, grammars }
    }

    /// The ids of `text`.
    ///
    /// With `add_special`, BOS comes in front if the model's tokenizer adds it: only once, even if the text
    /// itself begins with it, like a rendered chat template. EOS follows if the tokenizer appends one. Special
    /// tokens spelled in the text become their ids, as in transformers; for untrusted text use
    /// [`encode_ordinary`](Self::encode_ordinary).
    ///
    /// # Errors
    /// `Encode` when the text cannot be tokenized.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let ids = self.encoder.encode_all(text)?;
        Ok(if add_special { self.between(ids) } else { ids })
    }

    /// Like [`encode`](Self::encode), for untrusted text: special tokens spelled in it are letters like any others, and so
    /// are added tokens with a symbol, such as `<think>`. Text without a token still becomes the unknown token
    /// if the tokenizer has one.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn encode_ordinary(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let ids = self.encoder.encode(text, &[])?;
        Ok(if add_special { self.between(ids) } else { ids })
    }

    /// The ids of `text` like [`encode`](Self::encode) with special tokens, which are matched only within `spans`, as in
    /// [`encode_prompt_within`](Self::encode_prompt_within). At most `most` ids are returned: the rest is cut off, and EOS
    /// still follows if the tokenizer appends it. If there are more and `cut` is false, the inner error is their
    /// number.
    ///
    /// # Errors
    /// `Encode` when the text cannot be tokenized.
    #[doc(hidden)]
    pub fn encode_text(
        &self,
        text: &str,
        spans: &[Range<usize>],
        most: usize,
        cut: bool,
    ) -> Result<Result<Vec<u32>, usize>> {
        let mut ids = self.between(self.encoder.encode(text, spans)?);
        if ids.len() <= most {
            return Ok(Ok(ids));
        }
        if !cut {
            return Ok(Err(ids.len()));
        }
        let eos = self.eos.filter(|_| self.add_eos && most > 0);
        ids.truncate(most - usize::from(eos.is_some()));
        ids.extend(eos);
        Ok(Ok(ids))
    }

    /// The ids of a pair of untrusted texts, such as a query and a document, and the token type of each (0 or 1); `None` if the
    /// tokenizer's files do not say how two texts become one sequence.
    ///
    /// # Errors
    /// The errors of [`encode_ordinary`](Self::encode_ordinary).
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Option<(Vec<u32>, Vec<u8>)>> {
        let pair = self.encode_pair_within([first, second], usize::MAX, false)?.and_then(Result::ok);
        Ok(pair.map(|(ids, second)| {
            let types = (0..ids.len()).map(|place| second.is_some_and(|second| place >= second).into());
            let types = types.collect();
            (ids, types)
        }))
    }

    /// The ids of a pair of untrusted texts, at most `most` of them, and the place from which the token type is 1. If
    /// there are more, the end of the longer text is cut off, and then that of both (transformers' `longest_first`); if
    /// `cut` is false, the inner error is their number. `None` if the tokenizer has no template for pairs.
    ///
    /// # Errors
    /// The errors of [`encode_ordinary`](Self::encode_ordinary).
    #[doc(hidden)]
    pub fn encode_pair_within(&self, texts: [&str; 2], most: usize, cut: bool) -> Result<Option<Result<Pair, usize>>> {
        let Some(template) = &self.pair else { return Ok(None) };
        let [mut first, mut second] = [self.encode_ordinary(texts[0], false)?, self.encode_ordinary(texts[1], false)?];
        let all = first.len() + second.len() + template.tokens();
        if all > most {
            let Some(room) = most.checked_sub(template.tokens()).filter(|_| cut) else { return Ok(Some(Err(all))) };
            let (shorter, longer) =
                if first.len() > second.len() { (&mut second, &mut first) } else { (&mut first, &mut second) };
            shorter.truncate(room / 2);
            longer.truncate(room - shorter.len());
        }
        let (mut ids, mut second_kind) = (Vec::with_capacity(all.min(most)), None);
        for PairPart { what, token_type } in template.parts() {
            if *token_type > 0 {
                second_kind.get_or_insert(ids.len());
            }
            match what {
                PairText::Token(id) => ids.push(*id),
                PairText::First => ids.append(&mut first),
                PairText::Second => ids.append(&mut second),
            }
        }
        Ok(Some(Ok((ids, second_kind))))
    }

    /// The ids of a text to be continued: like [`encode`](Self::encode) with special tokens, but never with EOS at the end.
    ///
    /// # Errors
    /// `Encode` when the text cannot be tokenized.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        self.encoder.encode_all(text).map(|ids| self.begun(ids))
    }

    /// Like [`encode_prompt`](Self::encode_prompt), with special tokens only where all their bytes lie in one of `spans`, which
    /// are in ascending order and do not touch. Elsewhere it is like [`encode_ordinary`](Self::encode_ordinary), joined with the
    /// text around it.
    ///
    /// # Errors
    /// The errors of [`encode_prompt`](Self::encode_prompt).
    pub fn encode_prompt_within(&self, text: &str, spans: &[Range<usize>]) -> Result<Vec<u32>> {
        self.encoder.encode(text, spans).map(|ids| self.begun(ids))
    }

    /// The ids with BOS in front, once, if the tokenizer adds it.
    fn begun(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    /// The ids with BOS before them and EOS after them, if the tokenizer adds them.
    fn between(&self, ids: Vec<u32>) -> Vec<u32> {
        let mut ids = self.begun(ids);
        ids.extend(self.eos.filter(|_| self.add_eos));
        ids
    }

    /// The least number of tokens that `text` becomes: 0 if the tokenizer may drop or join any number of characters. Its time
    /// does not grow with the vocabulary, so that a text that cannot fit a context is refused before it is encoded.
    pub fn least_tokens(&self, text: &str) -> usize {
        self.encoder.least_tokens(text)
    }

    /// The text of `ids`. Special tokens are hidden, unknown ids add nothing, and bytes that form no character become
    /// U+FFFD. Nothing else is cleaned up.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.stream();
        let mut text = String::new();
        for id in ids {
            decoder.push(self.token_bytes(*id).unwrap_or_default(), &mut text);
        }
        decoder.finish(&mut text);
        text
    }

    /// A decoder for a text that begins here: all its pieces together are [`decode`](Self::decode) of all ids.
    pub fn stream(&self) -> PieceDecoder {
        PieceDecoder::new(self.vocabulary.drops_leading_space)
    }

    /// A decoder for a text that continues `prompt`: its pieces are what [`decode`](Self::decode) of the whole text adds to
    /// the decoded prompt, including a leading space.
    pub fn stream_after(&self, prompt: &[u32]) -> PieceDecoder {
        let begun = prompt.iter().any(|id| self.token_bytes(*id).is_some_and(|bytes| !bytes.is_empty()));
        PieceDecoder::new(self.vocabulary.drops_leading_space && !begun)
    }

    /// The bytes that `id` adds to a text; empty for a special token, `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocabulary.bytes(id)
    }

    /// The entry of the vocabulary as spelled in its file: `Ġthe`, `▁the`, `<|eot_id|>`.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.encoder.text(id).map(str::to_owned)
    }

    /// The id of an entry of the vocabulary, spelled as in its file.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.encoder.id(text)
    }

    /// The id of an added token: one that is matched in a text as a whole before the rest is split, such as `<think>`.
    pub fn added_token(&self, text: &str) -> Option<u32> {
        self.encoder.added.id(text)
    }

    /// Whether `id` is a special token, which is hidden from text.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// Whether a chat template has the mark `<think>` or `[THINK]`, as a token or in letters.
    pub fn template_thinks(&self) -> bool {
        self.template_thinks
    }

    /// The format of tool calls of the chat template for chats with tools: the template of this name, else the one that
    /// transformers uses.
    pub fn tool_calls(&self, template: Option<&str>) -> Option<ToolCallFormat> {
        let formats = &self.tool_calls;
        let format = match template {
            Some(name) => formats.get(name),
            None => formats.get(TOOL_USE_TEMPLATE).or_else(|| formats.get(DEFAULT_TEMPLATE)),
        };
        format.copied().flatten()
    }

    /// Ids below [`vocab_len`](Self::vocab_len) that only pad the vocabulary (`[PAD32011]`, GGUF's type 5), in
    /// ascending order. No text becomes one, and none is sampled.
    pub fn unused_ids(&self) -> &[u32] {
        &self.vocabulary.unused
    }

    /// One more than the largest id. A model's embedding may have more rows: those have no text and are never sampled.
    pub fn vocab_len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The beginning-of-sequence id, whether or not [`encode`](Self::encode) adds it.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence id of the tokenizer; the ids that end a generation are `TokenizerSpec::stop_ids`.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether [`encode`](Self::encode) puts BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.vocab_len()).field("bos", &self.bos).finish_non_exhaustive()
    }
}

fn none(header: &Header) -> Error {
    let (name, why) = match header.metadata {
        Metadata::Config(_) => ("tokenizer.json", "text cannot become ids; download it from the model's repository"),
        Metadata::Gguf(_) => ("tokenizer.ggml.model", "the file has no vocabulary, so text cannot become ids"),
    };
    let kind = IncompleteKind::FileMissing { name: name.into(), why: why.into() };
    model_factory_format::Error::incomplete(&header.source.path, kind).into()
}
