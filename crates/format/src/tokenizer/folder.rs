//! Folders without a `tokenizer.json`: `vocab.json` and `merges.txt`, or `tokenizer.model`.

pub(super) mod word_piece;

use super::TokenizerKind;
use super::added::{AddedToken, added_tokens, named};
use super::entries::{self, Content};
use super::sentencepiece::{PieceKind, SentencePieceModel, tiktoken};
use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, VocabularyFiles};
use crate::limits;
use crate::source::content;
use std::collections::HashMap;
use std::path::Path;

/// The classes of transformers whose pipeline is known, without `Fast`, and the pre-tokenizer that cuts as they do.
const CLASSES: [(&str, &str); 3] =
    [("Qwen2Tokenizer", "qwen2"), ("GPT2Tokenizer", "gpt-2"), ("CodeGenTokenizer", "gpt-2")];

/// The special token that these classes have without being told.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Merges from which on a vocabulary must have joined two digits, unless they were split: GPT-2's joined its first
/// within a thousand.
const MANY_MERGES: usize = 10_000;

/// What a folder's vocabulary holds.
pub(super) struct Found<'f> {
    pub(super) kind: TokenizerKind,
    pub(super) path: &'f Path,
    pub(super) content: Content,
    pub(super) pre: Option<&'static str>,
    pub(super) space_prefix: bool,
    pub(super) assumption: Option<&'static str>,
}

/// Reads the vocabulary of a folder without a `tokenizer.json`.
pub(super) fn read<'f>(files: &'f ConfigFiles, vocabulary: &'f VocabularyFiles) -> Result<Found<'f>> {
    match vocabulary {
        VocabularyFiles::Merges { vocab, merges } => {
            let Some(merges) = merges else {
                let why = "vocab.json alone does not say how bytes merge; download it, or tokenizer.json";
                let kind = IncompleteKind::FileMissing { name: "merges.txt".into(), why: why.into() };
                return Err(Error::incomplete(vocab, kind));
            };
            byte_level(files, vocab, merges)
        }
        VocabularyFiles::SentencePiece(path) => sentence_piece(files, path),
        VocabularyFiles::WordPiece(path) => word_piece::read(files, path),
        VocabularyFiles::Tiktoken(path) => Err(tiktoken(path)),
    }
}

fn byte_level<'f>(files: &'f ConfigFiles, vocab: &'f Path, merges: &Path) -> Result<Found<'f>> {
    let pre = pre_tokenizer(files, vocab)?;
    let named = named(files)?;
    let wanted = named.iter().map(String::as_str).chain([END_OF_TEXT]).collect();
    let mut content = Content::vocabulary(vocab, &content::read(vocab, limits::VOCABULARY_BYTES)?, &wanted)?;
    let lines = MergesFile::read(merges)?;
    if pre == "gpt-2"
        && let Some(why) = not_gpt2s(&lines)
    {
        let class = class(files)?.unwrap_or_default();
        let expected =
            "the class of a model that cuts as GPT-2 does; this one needs the tokenizer.json of its repository";
        return Err(unknown_class(files, merges, &format!("{class:?}, but {why}"), expected));
    }
    let added = byte_level_added(files, content.vocabulary_end, |text| content.wanted.get(text).copied())?;
    content.added = added.into_iter().map(entries::AddedToken::from).collect();
    Ok(Found {
        kind: TokenizerKind::ByteLevelBpe,
        path: vocab,
        content,
        pre: Some(pre),
        space_prefix: false,
        assumption: Some("no tokenizer.json: text is tokenized as the class in tokenizer_config.json does it"),
    })
}

/// The tokens added to the `tokens` entries of a `vocab.json`, in which `id_of` finds a text.
///
/// # Errors
/// `Format` for a token of another form, two tokens of one id, or an id beyond what the tokens can fill.
pub fn byte_level_added(
    files: &ConfigFiles,
    tokens: usize,
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<AddedToken>> {
    let own: Vec<AddedToken> =
        id_of(END_OF_TEXT).map(|id| AddedToken::special(id, END_OF_TEXT.into())).into_iter().collect();
    added_tokens(files, tokens, &own, id_of)
}

/// The tokens added to `model`, its own control and user-defined pieces among them.
///
/// # Errors
/// `Format` for a token of another form, two tokens of one id, or an id beyond what the tokens can fill.
pub fn sentence_piece_added(files: &ConfigFiles, model: &SentencePieceModel) -> Result<Vec<AddedToken>> {
    let own: Vec<AddedToken> = (0..)
        .zip(&model.pieces)
        .filter(|(_, piece)| !matches!(piece.kind, PieceKind::Normal | PieceKind::Byte))
        .map(|(id, piece)| AddedToken {
            special: piece.kind != PieceKind::UserDefined,
            ..AddedToken::special(id, piece.text.clone())
        })
        .collect();
    let named = named(files)?;
    let ids: HashMap<&str, u32> = model
        .pieces
        .iter()
        .map(|piece| piece.text.as_str())
        .zip(0..)
        .filter(|(text, _)| named.contains(*text))
        .collect();
    added_tokens(files, model.pieces.len(), &own, |text| ids.get(text).copied())
}

fn sentence_piece<'f>(files: &'f ConfigFiles, path: &'f Path) -> Result<Found<'f>> {
    let model = SentencePieceModel::read(path);
    // Another kind of file is told first: the class beside it says nothing of a SentencePiece model.
    let kind = model.as_ref().err().and_then(|error| match error {
        Error::Format { kind, .. } => Some(kind),
        _ => None,
    });
    let is_another = matches!(
        kind,
        Some(
            FormatErrorKind::OtherTokenizer { .. }
                | FormatErrorKind::UnsupportedFile { .. }
                | FormatErrorKind::EmptyFile
        )
    );
    if !is_another
        && let Some(class) = class(files)?
        && class.trim_end_matches("Fast") != "LlamaTokenizer"
    {
        let expected = "LlamaTokenizer beside a tokenizer.model; save tokenizer.json with transformers for another";
        return Err(unknown_class(files, path, &format!("{class:?}"), expected));
    }
    let model = model?;
    let added = sentence_piece_added(files, &model)?;
    let content = Content::listed(model.pieces.len(), added.into_iter().map(entries::AddedToken::from).collect());
    let asked = files.tokenizer_config.as_ref().map(|config| config.boolean("add_prefix_space")).transpose()?.flatten();
    let space_prefix = asked.unwrap_or(model.space_prefix);
    let assumption = (space_prefix && !legacy(files)?).then_some(
        "no tokenizer.json, and no `legacy` of true: a space is put before a text and not behind special tokens, as \
         transformers 5 does",
    );
    Ok(Found { kind: TokenizerKind::SentencePiece, path, content, pre: None, space_prefix, assumption })
}

/// Whether a space is put behind special tokens too; absent is false, the default of transformers 5.
///
/// # Errors
/// `Format` when it is no truth value.
pub fn legacy(files: &ConfigFiles) -> Result<bool> {
    let said = files.tokenizer_config.as_ref().map(|config| config.boolean("legacy")).transpose()?.flatten();
    Ok(said.unwrap_or(false))
}

fn class(files: &ConfigFiles) -> Result<Option<&str>> {
    Ok(files.tokenizer_config.as_ref().map(|config| config.text("tokenizer_class")).transpose()?.flatten())
}

fn pre_tokenizer(files: &ConfigFiles, vocab: &Path) -> Result<&'static str> {
    let Some(class) = class(files)? else {
        let needed_for = "vocab.json and merges.txt do not say how to tokenize a text; tokenizer_config.json names the class, \
                          or save tokenizer.json with transformers";
        return Err(Error::key_missing(vocab, "tokenizer_class", needed_for));
    };
    let name = class.trim_end_matches("Fast");
    let Some((_, pre)) = CLASSES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = CLASSES.iter().map(|(class, _)| *class).collect();
        let expected = format!(
            "{} beside vocab.json and merges.txt; save tokenizer.json with transformers for another",
            known.join(", ")
        );
        return Err(unknown_class(files, vocab, &format!("{class:?}"), &expected));
    };
    if files.tokenizer_config.as_ref().map(|config| config.boolean("add_prefix_space")).transpose()?.flatten()
        == Some(true)
    {
        let file = files.tokenizer_config.as_ref().map_or(vocab, |config| config.file());
        let expected = "false beside vocab.json and merges.txt; save tokenizer.json with transformers";
        return Err(Error::key_value(file, "add_prefix_space", "true", expected));
    }
    Ok(pre)
}

fn unknown_class(files: &ConfigFiles, beside: &Path, found: &str, expected: &str) -> Error {
    let file = files.tokenizer_config.as_ref().map_or(beside, |config| config.file());
    Error::key_value(file, "tokenizer_class", found, expected)
}

/// Why merges were not made with GPT-2's cuts, where they show it. SmolLM2, Phi-4 and Phi-4-mini name GPT-2's class too,
/// and only their tokenizer.json says how they split a text; but what a split separates, no merge has joined.
fn not_gpt2s(merges: &MergesFile) -> Option<String> {
    let (mut count, mut joins_digits) = (0, false);
    for (left, right) in merges.pairs() {
        count += 1;
        let joined = [left, right].concat();
        let mut pairs = joined.as_bytes().windows(2);
        joins_digits |= pairs.clone().any(|pair| pair.iter().all(u8::is_ascii_digit));
        // GPT-2 keeps an apostrophe with some letters, and no other symbol with any.
        let split = |pair: &[u8]| pair[0].is_ascii_punctuation() && pair[0] != b'\'' && pair[1].is_ascii_alphabetic();
        if pairs.any(split) {
            return Some(format!("merges.txt makes {joined:?}, which GPT-2 cuts"));
        }
    }
    (count >= MANY_MERGES && !joins_digits)
        .then(|| format!("none of the {count} merges in merges.txt joins two digits, as GPT-2's do"))
}

/// The content of a `merges.txt`: two tokens a line, the first merge first.
#[derive(Debug)]
pub struct MergesFile {
    text: String,
}

impl MergesFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// `Format` when it is too long or a line is no two texts, `Io` when it cannot be read.
    pub fn read(path: &Path) -> Result<MergesFile> {
        let bytes = content::read(path, limits::VOCABULARY_BYTES)?;
        // The lines of a Git LFS pointer have two words as well.
        if let Some(error) = content::unsupported(path, &bytes) {
            return Err(error);
        }
        let wrong = |line: usize, found: &str| {
            let found = format!("{:?}", found.chars().take(60).collect::<String>());
            Error::key_value(path, &format!("line {line}"), found, "two tokens with one space between them")
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            wrong(sound.iter().filter(|byte| **byte == b'\n').count() + 1, "no UTF-8")
        })?;
        for (index, line) in lines(&text) {
            match line.split_once(' ') {
                Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {}
                _ => return Err(wrong(index + 1, line)),
            }
        }
        Ok(MergesFile { text })
    }

    /// The two halves of each merge, in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        lines(&self.text).filter_map(|(_, line)| line.split_once(' '))
    }
}

/// The lines that are merges, numbered from 0: the first may give the version of the format, and any may be empty.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let merges = |(index, line): &(usize, &str)| !line.is_empty() && (*index > 0 || !line.starts_with("#version"));
    text.lines().enumerate().filter(merges)
}

#[cfg(test)]
mod tests;
