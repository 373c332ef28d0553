//! What the files of a tokenizer say about encoding and decoding. They are read once, for the [`TokenizerSpec`] and for
//! building the tokenizer.
//!
//! [`TokenizerSpec`]: super::TokenizerSpec

use super::steps::{Decoder, Normalizer, PreTokenizer};
use super::{AddedToken, TokenizerKind, folder, sentencepiece};
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::gguf::Strings;
use crate::header::{Header, Metadata, config::ConfigFiles};
use crate::source::content;
use crate::{json, limits};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize, de};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The files of one tokenizer. Formats older than `tokenizer.json` are described by the equivalent steps of one.
#[derive(Default)]
#[non_exhaustive]
pub struct TokenizerFiles {
    /// The file of the vocabulary, which error messages name.
    pub path: PathBuf,
    /// The file of the merges, if it is a separate one.
    pub merges_path: Option<PathBuf>,
    /// Why no tokenizer can be built: the error in the part of the file that only building needs.
    pub damage: Option<String>,
    /// Tokens that are matched in a text as a whole.
    pub added: Vec<AddedToken>,
    /// How a text is normalized before it is split into pieces.
    pub normalizer: Option<Normalizer>,
    /// How a text is split into pieces.
    pub pre_tokenizer: Option<PreTokenizer>,
    /// How the texts of tokens are decoded.
    pub decoder: Option<Decoder>,
    /// How tokens are made from a piece.
    pub model: Model,
    pub(super) kind: TokenizerKind,
    pub(super) post_processor: Value,
    pub(super) pre: Option<&'static str>,
    pub(super) space_prefix: bool,
    pub(super) assumption: Option<&'static str>,
}

/// The `model` of a `tokenizer.json`, with the fields of all kinds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are the file's")]
#[non_exhaustive]
pub struct Model {
    /// `BPE`, `Unigram` or `WordPiece`; `None` for the pieces of a SentencePiece model.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub vocab: Entries,
    pub merges: Option<Merges>,
    pub dropout: Option<f32>,
    pub unk_token: Option<String>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub fuse_unk: Option<bool>,
    pub byte_fallback: Option<bool>,
    pub ignore_merges: Option<bool>,
    pub unk_id: Option<usize>,
    pub max_input_chars_per_word: Option<usize>,
    /// Whether two tokens make any token of their texts, the lowest id first, in place of `merges`, as in tiktoken.
    #[serde(skip)]
    pub by_rank: bool,
    /// The pieces of a SentencePiece model by id, in place of all other fields.
    #[serde(skip)]
    pub pieces: Vec<sentencepiece::Piece>,
}

/// The entries of a vocabulary, in the order of the file, without an allocation for each.
#[derive(Debug, Default)]
pub struct Entries {
    texts: Strings,
    ids: Vec<u32>,
    /// The score of each entry, where the file is a list of texts and scores.
    pub scores: Vec<f64>,
}

/// The two halves of each merge, in the order of the merges.
#[derive(Debug, Default)]
pub struct Merges(Strings);

impl TokenizerFiles {
    /// The tokenizer files of `header`, read on first use. `None` where there are none: a GGUF has its vocabulary in
    /// its keys, unless the user [gives](super::TokenizerSpec::with_given) a file.
    ///
    /// # Errors
    /// `Format` when a file is damaged or of an unknown kind, `Incomplete` when one is missing, `Io` when one cannot be read.
    pub fn read(header: &Header) -> Result<Option<&TokenizerFiles>> {
        match &header.metadata {
            Metadata::Config(files) => read_once(files, &header.tokenizer),
            Metadata::Gguf(_) => Ok(header.tokenizer.get()),
        }
    }

    /// The `tokenizer.json` at `path`.
    ///
    /// # Errors
    /// `Format` when it is damaged or of an unknown kind, `Io` when it cannot be read.
    pub fn read_json(path: &Path) -> Result<TokenizerFiles> {
        let bytes = content::read(path, limits::TOKENIZER_JSON_BYTES)?;
        if !bytes.trim_ascii_start().starts_with(b"{") {
            // serde reads structures from lists too.
            from_slice::<HashMap<String, IgnoredAny>>(path, &bytes)?;
        }
        let (root, damage) = match serde_json::from_slice::<Root>(&bytes) {
            Ok(root) => (root, None),
            Err(error) => (from_slice::<Outline>(path, &bytes)?.into(), Some(error.to_string())),
        };
        let Root { added_tokens, normalizer, pre_tokenizer, decoder, post_processor, model } = root;
        let mut files = TokenizerFiles {
            damage,
            normalizer,
            pre_tokenizer,
            decoder,
            post_processor,
            ..TokenizerFiles::new(path, TokenizerKind::Json, model, added_tokens)
        };
        match files.model.kind.as_deref() {
            Some("BPE" | "Unigram" | "WordPiece") if files.tokens() == 0 => {
                return Err(Error::key_value(path, "model.vocab", "empty", "at least one token"));
            }
            Some("BPE" | "Unigram" | "WordPiece") => {}
            Some(other) => {
                let expected = "BPE, Unigram or WordPiece";
                return Err(Error::key_value(path, "model.type", format!("{other:?}"), expected));
            }
            None => return Err(Error::key_missing(path, "model.type", "text cannot become ids")),
        }
        files.model.vocab.check(path, "model.vocab", bytes.len())?;
        if files.tokens() > bytes.len() {
            let (last, bytes) = (files.tokens() - 1, bytes.len());
            files.damage = Some(format!("it has ids up to {last}, more than its {bytes} bytes can list"));
        }
        Ok(files)
    }

    /// The files of a `model` and of the tokens added to its vocabulary, without any step.
    pub fn new(path: &Path, kind: TokenizerKind, model: Model, added: Vec<AddedToken>) -> TokenizerFiles {
        TokenizerFiles { path: path.into(), kind, model, added, ..TokenizerFiles::default() }
    }

    /// One more than the largest id, added tokens included; 0 when there are no tokens.
    pub fn tokens(&self) -> usize {
        let own = self.model.vocab.end().max(self.model.pieces.len());
        self.added.iter().map(|token| token.id as usize + 1).fold(own, usize::max)
    }

    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        let added = self.added.iter().find(|token| token.content == text).map(|token| token.id);
        added.or_else(|| self.model.vocab.id_of(text))
    }

    pub(super) fn text(&self, id: u32) -> Option<String> {
        let added = self.added.iter().find(|token| token.id == id).map(|token| token.content.as_str());
        let own = || self.model.vocab.iter().find(|(_, known)| *known == id).map(|(text, _)| text);
        added.or_else(own).map(str::to_owned)
    }

    pub(super) fn text_of(&self, id: Option<u32>) -> String {
        id.and_then(|id| self.text(id)).unwrap_or_else(|| format!("{id:?}"))
    }

    /// The paths of the files.
    pub(crate) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.path].into_iter().chain(&mut self.merges_path)
    }
}

impl fmt::Debug for TokenizerFiles {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("TokenizerFiles")
            .field("path", &self.path)
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}

/// The files in `read`, or else those that `files` name: `tokenizer.json` before every other form, as in transformers.
pub(super) fn read_once<'r>(
    files: &ConfigFiles,
    read: &'r OnceLock<TokenizerFiles>,
) -> Result<Option<&'r TokenizerFiles>> {
    if let Some(known) = read.get() {
        return Ok(Some(known));
    }
    let found = match (&files.tokenizer, &files.vocabulary) {
        (Some(path), _) => TokenizerFiles::read_json(path)?,
        (None, Some(vocabulary)) => folder::read(files, vocabulary)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(read.get_or_init(|| found)))
}

/// Parses `bytes`, the content of `path`.
pub(super) fn from_slice<'b, T: Deserialize<'b>>(path: &Path, bytes: &'b [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        let json = || Error::format(path, FormatErrorKind::Json { message: error.to_string() });
        content::unsupported(path, bytes).unwrap_or_else(json)
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Root {
    added_tokens: Vec<AddedToken>,
    #[serde(deserialize_with = "bounded")]
    normalizer: Option<Normalizer>,
    #[serde(deserialize_with = "bounded")]
    pre_tokenizer: Option<PreTokenizer>,
    #[serde(deserialize_with = "bounded")]
    decoder: Option<Decoder>,
    #[serde(deserialize_with = "json::nested")]
    post_processor: Value,
    model: Model,
}

/// The parts of a `tokenizer.json` for a [`TokenizerSpec`](super::TokenizerSpec): a diagnosis reads no other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Outline {
    added_tokens: Vec<Named>,
    #[serde(deserialize_with = "json::nested")]
    post_processor: Value,
    model: OutlineModel,
}

#[derive(Deserialize)]
struct Named {
    id: u32,
    content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutlineModel {
    r#type: Option<String>,
    vocab: Entries,
}

impl From<Outline> for Root {
    fn from(Outline { added_tokens, post_processor, model }: Outline) -> Root {
        let added = added_tokens.into_iter().map(|Named { id, content }| AddedToken::special(id, content));
        let model = Model { kind: model.r#type, vocab: model.vocab, ..Model::default() };
        Root { added_tokens: added.collect(), post_processor, model, ..Root::default() }
    }
}

/// Parses a part of a file through a value whose memory is limited.
fn bounded<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(json::nested(deserializer)?).map_err(D::Error::custom)
}

/// A string that borrows from the input where it has no escapes (a plain `Cow` never borrows).
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Entries {
    /// Adds an entry.
    pub fn push(&mut self, text: &str, id: u32) {
        self.texts.push(text.as_bytes());
        self.ids.push(id);
    }

    /// The texts and ids of all entries.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        strings(&self.texts).zip(self.ids.iter().copied())
    }

    /// One more than the largest id; 0 when there are no entries.
    pub fn end(&self) -> usize {
        self.ids.iter().max().map_or(0, |id| *id as usize + 1)
    }

    /// The id of `text`; the last entry with this text counts.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.iter().filter(|(known, _)| *known == text).last().map(|(_, id)| id)
    }

    /// Refuses ids that two entries have, and ids beyond `bytes`, the length of the file: every entry takes some of it,
    /// so a larger id is a gap that would only make us allocate.
    pub(super) fn check(&self, path: &Path, key: &str, bytes: usize) -> Result<()> {
        if self.end() > bytes {
            let found = format!("the id {}", self.end() - 1);
            return Err(Error::key_value(path, key, found, format!("no more ids than {bytes} bytes can list")));
        }
        let mut seen = vec![false; self.end()];
        match self.ids.iter().find(|id| mem::replace(&mut seen[**id as usize], true)) {
            Some(id) => Err(Error::key_value(path, key, format!("the id {id} twice"), "an id for each text")),
            None => Ok(()),
        }
    }
}

/// An object of texts and ids, or a list of texts and scores.
impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of texts and ids, or a list of texts and scores")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Entries::default();
                while let Some((Text(text), id)) = map.next_entry()? {
                    entries.push(&text, id);
                }
                Ok(entries)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
                let mut entries = Entries::default();
                for id in 0.. {
                    let Some((Text(text), score)) = list.next_element()? else { break };
                    entries.push(&text, id);
                    entries.scores.push(score);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_any(EntriesVisitor)
    }
}

impl Merges {
    /// The two halves of each merge, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        strings(&self.0).step_by(2).zip(strings(&self.0).skip(1).step_by(2))
    }

    /// Adds the merge in `line`, if it is two texts with a space between them.
    pub(super) fn push_line(&mut self, line: &str) -> Option<()> {
        let (left, right) = line.split_once(' ').filter(|(_, right)| !right.contains(' '))?;
        [left, right].into_iter().for_each(|half| self.0.push(half.as_bytes()));
        Some(())
    }
}

/// A list of merges: each a list of two texts, or one text with a space between the two.
impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merges, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Merges;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
                let mut merges = Merges::default();
                while list.next_element_seed(One(&mut merges))?.is_some() {}
                Ok(merges)
            }
        }
        struct One<'m>(&'m mut Merges);
        impl<'de> DeserializeSeed<'de> for One<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        impl<'de> Visitor<'de> for One<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two texts, as a list or with a space between them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
                self.0.push_line(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
                match (list.next_element::<Text>()?, list.next_element::<Text>()?, list.next_element::<Text>()?) {
                    (Some(left), Some(right), None) => {
                        [left, right].iter().for_each(|half| self.0.0.push(half.0.as_bytes()));
                        Ok(())
                    }
                    _ => Err(A::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_seq(All)
    }
}

/// All of `strings`, which were valid text when they were added.
fn strings(strings: &Strings) -> impl Iterator<Item = &str> {
    strings.iter().map(|bytes| str::from_utf8(bytes).unwrap_or_default())
}
