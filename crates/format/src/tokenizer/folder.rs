//! Folders without a `tokenizer.json`: `vocab.json` and `merges.txt`, `tokenizer.model`, `spm.model`, `vocab.txt`, or tiktoken's form.

mod deberta;
mod tiktoken;
pub(super) mod word_piece;

use super::added::{AddedToken, added_tokens, flag};
use super::files::{self, Entries, Merges, Model};
use super::sentencepiece::{Piece, PieceKind, SentencePieceModel};
use super::steps::{Decoder, Normalizer, Pattern, PreTokenizer, Prepend};
use super::{TokenizerFiles, TokenizerKind, pre};
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, VocabularyFiles};
use crate::limits;
use crate::source::content;
use std::path::Path;

/// The name in error messages for a file that is not an object of keys.
const WHOLE_FILE: &str = "(the whole file)";

/// The classes of transformers whose pipeline is known, without `Fast`, and the pre-tokenizer that splits like they do.
const CLASSES: [(&str, &str); 3] =
    [("Qwen2Tokenizer", "qwen2"), ("GPT2Tokenizer", "gpt-2"), ("CodeGenTokenizer", "gpt-2")];

/// The special token that these classes have by default.
const END_OF_TEXT: &str = "<|endoftext|>";

/// The number of merges from which on a vocabulary must have joined two digits, unless digits were split: GPT-2's
/// joined its first two within a thousand.
const MANY_MERGES: usize = 10_000;

/// Reads the vocabulary of a folder without a `tokenizer.json`.
pub(super) fn read(files: &ConfigFiles, vocabulary: &VocabularyFiles) -> Result<TokenizerFiles> {
    match vocabulary {
        VocabularyFiles::Merges { vocab, merges } => {
            let Some(merges) = merges else {
                let why = "vocab.json alone does not say how bytes merge; download it, or tokenizer.json";
                return Err(Error::file_missing(vocab, "merges.txt", why));
            };
            byte_level(files, vocab, merges)
        }
        VocabularyFiles::SentencePiece(path) => sentence_piece(files, path),
        VocabularyFiles::Deberta(path) => deberta::read(files, path),
        VocabularyFiles::WordPiece(path) => word_piece::read(files, path),
        VocabularyFiles::Tiktoken(path) => tiktoken::read(files, path),
    }
}

fn byte_level(files: &ConfigFiles, vocab: &Path, merges: &Path) -> Result<TokenizerFiles> {
    let (pre, steps) = pre_tokenizer(files, vocab)?;
    let bytes = content::read(vocab, limits::VOCABULARY_BYTES)?;
    let entries: Entries = files::from_slice(vocab, &bytes)?;
    if entries.end() == 0 || !entries.scores.is_empty() {
        // A list, as in Unigram models, has no ids.
        let found = if entries.end() == 0 { "empty" } else { "a list" };
        return Err(Error::key_value(vocab, WHOLE_FILE, found, "an object of texts and ids"));
    }
    entries.check(vocab, WHOLE_FILE, bytes.len())?;
    let (merges_path, merges) = (merges.to_owned(), read_merges(merges)?);
    if pre == "gpt-2"
        && let Some(why) = not_gpt2s(&merges)
    {
        let class = class(files)?.unwrap_or_default();
        let expected =
            "the class of a model that cuts as GPT-2 does; this one needs the tokenizer.json of its repository";
        return Err(unknown_class(files, &merges_path, &format!("{class:?}, but {why}"), expected));
    }
    let own = entries.id_of(END_OF_TEXT).map(|id| AddedToken::special(id, END_OF_TEXT.into()));
    let added = added_tokens(files, entries.end(), own.into_iter().collect(), |text| entries.id_of(text))?;
    let (merges, ignore_merges) = (Some(merges), Some(steps.ignore_merges));
    let model = Model { kind: Some("BPE".into()), vocab: entries, merges, ignore_merges, ..Model::default() };
    Ok(TokenizerFiles {
        merges_path: Some(merges_path),
        normalizer: steps.nfc.then_some(Normalizer::NFC),
        pre_tokenizer: Some(PreTokenizer::byte_level(steps.patterns)),
        decoder: Some(Decoder::ByteLevel),
        pre: Some(pre),
        assumption: Some("no tokenizer.json: text is tokenized as the class in tokenizer_config.json does it"),
        ..TokenizerFiles::new(vocab, TokenizerKind::ByteLevelBpe, model, added)
    })
}

/// The tokens added to `pieces`, including the control and user-defined pieces.
fn sentence_piece_added(files: &ConfigFiles, pieces: &[Piece]) -> Result<Vec<AddedToken>> {
    let own = (0..).zip(pieces).filter(|(_, piece)| !matches!(piece.kind, PieceKind::Normal | PieceKind::Byte)).map(
        |(id, piece)| AddedToken {
            special: piece.kind != PieceKind::UserDefined,
            ..AddedToken::special(id, piece.text.clone())
        },
    );
    let id_of = |text: &str| pieces.iter().position(|piece| piece.text == text).map(|id| id as u32);
    added_tokens(files, pieces.len(), own.collect(), id_of)
}

fn sentence_piece(files: &ConfigFiles, path: &Path) -> Result<TokenizerFiles> {
    let model = SentencePieceModel::read(path);
    // Another kind of file is reported first: the class next to it says nothing about a SentencePiece model.
    use FormatErrorKind::{EmptyFile, OtherTokenizer, UnsupportedFile};
    let another = |kind: &_| matches!(kind, OtherTokenizer { .. } | UnsupportedFile { .. } | EmptyFile);
    if !matches!(&model, Err(Error::Format { kind, .. }) if another(kind))
        && let Some(class) = class(files)?
        && class.trim_end_matches("Fast") != "LlamaTokenizer"
    {
        let expected = "LlamaTokenizer next to a tokenizer.model; save tokenizer.json with transformers for another";
        return Err(unknown_class(files, path, &format!("{class:?}"), expected));
    }
    let model = model?;
    let added = sentence_piece_added(files, &model.pieces)?;
    let space_prefix = flag(files, "add_prefix_space")?.unwrap_or(model.space_prefix);
    // Whether a space is also put after special tokens; absent is false, the default of transformers 5.
    let legacy = flag(files, "legacy")?.unwrap_or(false);
    let prepend = match (space_prefix, legacy) {
        (false, _) => Prepend::Never,
        (true, false) => Prepend::First,
        (true, true) => Prepend::Always,
    };
    let decoders = vec![
        Decoder::Replace { pattern: Pattern::String("▁".into()), content: " ".into() },
        Decoder::ByteFallback,
        Decoder::Strip { content: " ".into(), start: space_prefix.into(), stop: 0 },
    ];
    let model = Model { pieces: model.pieces, ..Model::default() };
    Ok(TokenizerFiles {
        pre_tokenizer: Some(PreTokenizer::Metaspace {
            replacement: '▁',
            add_prefix_space: None,
            prepend_scheme: Some(prepend),
            split: Some(false),
        }),
        decoder: Some(Decoder::Sequence { decoders }),
        space_prefix,
        assumption: (prepend == Prepend::First).then_some(
            "no tokenizer.json, and no `legacy` of true: a space is put before a text and not after special tokens, as \
             transformers 5 does",
        ),
        ..TokenizerFiles::new(path, TokenizerKind::SentencePiece, model, added)
    })
}

fn class(files: &ConfigFiles) -> Result<Option<&str>> {
    Ok(files.tokenizer_config.as_ref().map(|config| config.text("tokenizer_class")).transpose()?.flatten())
}

fn pre_tokenizer(files: &ConfigFiles, vocab: &Path) -> Result<(&'static str, &'static pre::PreTokenizer)> {
    let Some(class) = class(files)? else {
        let needed_for = "vocab.json and merges.txt do not say how to tokenize a text; tokenizer_config.json names the class, \
                          or save tokenizer.json with transformers";
        return Err(Error::key_missing(vocab, "tokenizer_class", needed_for));
    };
    let name = class.trim_end_matches("Fast");
    let known = CLASSES.iter().find(|(known, _)| *known == name);
    let Some(pre) = known.and_then(|(_, pre)| Some((*pre, pre::find(pre)?))) else {
        let known: Vec<&str> = CLASSES.iter().map(|(class, _)| *class).collect();
        let expected = format!(
            "{} next to vocab.json and merges.txt; save tokenizer.json with transformers for another",
            known.join(", ")
        );
        return Err(unknown_class(files, vocab, &format!("{class:?}"), &expected));
    };
    if flag(files, "add_prefix_space")? == Some(true) {
        let file = files.tokenizer_config.as_ref().map_or(vocab, |config| config.file());
        let expected = "false next to vocab.json and merges.txt; save tokenizer.json with transformers";
        return Err(Error::key_value(file, "add_prefix_space", "true", expected));
    }
    Ok(pre)
}

fn unknown_class(files: &ConfigFiles, vocabulary: &Path, found: &str, expected: &str) -> Error {
    let file = files.tokenizer_config.as_ref().map_or(vocabulary, |config| config.file());
    Error::key_value(file, "tokenizer_class", found, expected)
}

/// The sign that the merges were not made with GPT-2's pre-tokenizer, if they show one. SmolLM2, Phi-4 and Phi-4-mini name
/// GPT-2's class too, and only their tokenizer.json says how they split a text; but merges never join what was split.
fn not_gpt2s(merges: &Merges) -> Option<String> {
    let (mut count, mut joins_digits) = (0, false);
    for (left, right) in merges.iter() {
        count += 1;
        let joined = [left, right].concat();
        let mut pairs = joined.as_bytes().windows(2);
        joins_digits |= pairs.clone().any(|pair| pair.iter().all(u8::is_ascii_digit));
        // GPT-2 joins an apostrophe with some letters, and no other symbol with any letter.
        let split = |pair: &[u8]| pair[0].is_ascii_punctuation() && pair[0] != b'\'' && pair[1].is_ascii_alphabetic();
        if pairs.any(split) {
            return Some(format!("merges.txt makes {joined:?}, which GPT-2 cuts"));
        }
    }
    (count >= MANY_MERGES && !joins_digits)
        .then(|| format!("none of the {count} merges in merges.txt joins two digits, as GPT-2's do"))
}

/// Reads the `merges.txt` at `path`: two tokens a line, the first merge first.
fn read_merges(path: &Path) -> Result<Merges> {
    let bytes = content::read(path, limits::VOCABULARY_BYTES)?;
    // The lines of a Git LFS pointer also have two words.
    if let Some(error) = content::unsupported(path, &bytes) {
        return Err(error);
    }
    let wrong = |line: usize, found: &str| {
        let found = format!("{:?}", found.chars().take(60).collect::<String>());
        Error::key_value(path, &format!("line {line}"), found, "two tokens with one space between them")
    };
    let text = str::from_utf8(&bytes).map_err(|error| {
        let sound = &bytes[..error.valid_up_to()];
        wrong(sound.iter().filter(|byte| **byte == b'\n').count() + 1, "no UTF-8")
    })?;
    let mut merges = Merges::default();
    for (index, line) in lines(text) {
        let is_merge = !line.starts_with(' ') && !line.ends_with(' ') && merges.push_line(line).is_some();
        is_merge.then_some(()).ok_or_else(|| wrong(index + 1, line))?;
    }
    Ok(merges)
}

/// The lines that are merges, numbered from 0: the first line may give the version of the format, and any may be empty.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let merges = |(index, line): &(usize, &str)| !line.is_empty() && (*index > 0 || !line.starts_with("#version"));
    text.lines().enumerate().filter(merges)
}

#[cfg(test)]
mod tests;
