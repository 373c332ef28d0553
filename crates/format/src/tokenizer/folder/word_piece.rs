//! `vocab.txt` beside a `tokenizer_config.json` of BertTokenizer: a token a line.

use super::super::added::{AddedToken, token_text};
use super::super::entries::{self, Content};
use super::super::{PairTemplate, TokenizerKind, TokenizerSpec, WordPieceRules};
use super::{Found, class, unknown_class};
use crate::error::{Error, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, JsonFile};
use crate::limits;
use crate::source::content;
use std::path::Path;

/// The special tokens of transformers' BertTokenizer by their keys, where nothing else is said.
const SPECIAL: [(&str, &str); 5] = [
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];

/// Reads the vocabulary at `path`, which `files` lie beside.
pub(super) fn read<'f>(files: &'f ConfigFiles, path: &'f Path) -> Result<Found<'f>> {
    match class(files)? {
        Some(name) if name.trim_end_matches("Fast") == "BertTokenizer" => {}
        Some(other) => {
            let expected = "BertTokenizer beside a vocab.txt; save tokenizer.json with transformers for another";
            return Err(unknown_class(files, path, &format!("{other:?}"), expected));
        }
        None => {
            let needed_for = "vocab.txt does not say how to tokenize a text; tokenizer_config.json names the class, or save \
                              tokenizer.json with transformers";
            return Err(Error::key_missing(path, "tokenizer_class", needed_for));
        }
    }
    let tokens = tokens(path)?;
    let added = added(files, &tokens)?.into_iter().map(entries::AddedToken::from).collect();
    let mut content = Content::listed(tokens.len(), added);
    content.model = Some("WordPiece".into());
    Ok(Found {
        kind: TokenizerKind::WordPiece,
        path,
        content,
        pre: None,
        space_prefix: false,
        assumption: Some("no tokenizer.json: text is tokenized as transformers' BertTokenizer does it"),
    })
}

/// The tokens of the `vocab.txt` at `path`, by id.
///
/// # Errors
/// `Io` when it cannot be read, `Format` when it is too long, no UTF-8 or empty.
pub fn tokens(path: &Path) -> Result<Vec<String>> {
    let bytes = content::read(path, limits::VOCABULARY_BYTES)?;
    if let Some(error) = content::unsupported(path, &bytes) {
        return Err(error);
    }
    let wrong = |found: &str| Error::key_value(path, "(the whole file)", found, "a token of UTF-8 a line");
    let text = String::from_utf8(bytes).map_err(|_| wrong("no UTF-8"))?;
    let tokens: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
    if tokens.is_empty() { Err(wrong("no line")) } else { Ok(tokens) }
}

/// The special tokens of BertTokenizer that `tokens` have, as `files` name them.
///
/// # Errors
/// `Format` for a key of another type.
pub fn added(files: &ConfigFiles, tokens: &[String]) -> Result<Vec<AddedToken>> {
    let mut added = Vec::new();
    for (key, default) in SPECIAL {
        let said = files.tokenizer_config.as_ref().map(|config| token_text(config, key)).transpose()?;
        let text = said.flatten().unwrap_or_else(|| default.to_owned());
        if let Some(id) = tokens.iter().position(|token| *token == text) {
            added.push(AddedToken::special(id as u32, text));
        }
    }
    Ok(added)
}

/// `spec` with what BertTokenizer adds to a text and does to it.
pub(crate) fn finish(
    mut spec: TokenizerSpec,
    files: &ConfigFiles,
    path: &Path,
    content: Content,
) -> Result<TokenizerSpec> {
    let config = files.tokenizer_config.as_ref();
    let id = |key: &str, default: &str| -> Result<u32> {
        let said = config.map(|config| token_text(config, key)).transpose()?.flatten();
        let text = said.unwrap_or_else(|| default.to_owned());
        let found = format!("{text:?}, which is no line of it");
        content.id_of(&text).ok_or_else(|| Error::key_value(path, key, found, "one of its tokens"))
    };
    let says = |key: &str| config.map_or(Ok(None), |config: &JsonFile| config.boolean(key));
    let lowercase = says("do_lower_case")?.unwrap_or(true);
    let rules = WordPieceRules {
        lowercase,
        strip_accents: says("strip_accents")?.unwrap_or(lowercase),
        chinese_chars: says("tokenize_chinese_chars")?.unwrap_or(true),
        unknown: id("unk_token", "[UNK]")?,
    };
    let (cls, sep) = (id("cls_token", "[CLS]")?, id("sep_token", "[SEP]")?);
    (spec.bos, spec.eos, spec.pair) = (Some(cls), Some(sep), Some(PairTemplate::bert(cls, sep)));
    (spec.bos_text, spec.eos_text) =
        (spec.bos.and_then(|id| content.text(id)), spec.eos.and_then(|id| content.text(id)));
    (spec.add_bos, spec.add_eos, spec.word_piece) = (true, true, Some(rules));
    spec.settle();
    Ok(spec)
}
