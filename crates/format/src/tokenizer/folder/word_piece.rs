//! `vocab.txt` next to a `tokenizer_config.json` of BertTokenizer: a token a line.

use super::super::added::{AddedToken, flag, token_text};
use super::super::files::{Model, TokenizerFiles};
use super::super::steps::{Decoder, Normalizer, PreTokenizer};
use super::super::{PairTemplate, TokenizerKind, TokenizerSpec};
use super::{WHOLE_FILE, class, unknown_class};
use crate::error::{Error, Result};
use crate::header::config::ConfigFiles;
use crate::limits;
use crate::source::content;
use std::path::Path;

/// The most characters of a word that is looked up (transformers `BertTokenizer`).
const WORD_CHARACTERS: usize = 100;

/// The default special tokens of transformers' BertTokenizer, by their keys.
const SPECIAL: [(&str, &str); 5] = [
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];

/// Reads the vocabulary at `path`, which is next to `files`.
pub(super) fn read(files: &ConfigFiles, path: &Path) -> Result<TokenizerFiles> {
    match class(files)? {
        Some(name) if name.trim_end_matches("Fast") == "BertTokenizer" => {}
        Some(other) => {
            let expected = "BertTokenizer next to a vocab.txt; save tokenizer.json with transformers for another";
            return Err(unknown_class(files, path, &format!("{other:?}"), expected));
        }
        None => {
            let needed_for = "vocab.txt does not say how to tokenize a text; tokenizer_config.json names the class, or save \
                              tokenizer.json with transformers";
            return Err(Error::key_missing(path, "tokenizer_class", needed_for));
        }
    }
    let bytes = content::read(path, limits::VOCABULARY_BYTES)?;
    if let Some(error) = content::unsupported(path, &bytes) {
        return Err(error);
    }
    let wrong = |found: &str| Error::key_value(path, WHOLE_FILE, found, "a token of UTF-8 a line");
    let text = str::from_utf8(&bytes).map_err(|_| wrong("no UTF-8"))?;
    let tokens: Vec<&str> = text.lines().map(str::trim_end).collect();
    if tokens.is_empty() {
        return Err(wrong("no line"));
    }
    let mut model = Model { kind: Some("WordPiece".into()), ..Model::default() };
    tokens.iter().zip(0..).for_each(|(text, id)| model.vocab.push(text, id));
    model.unk_token = Some(special(files, "unk_token")?);
    model.continuing_subword_prefix = Some("##".into());
    model.max_input_chars_per_word = Some(WORD_CHARACTERS);
    let mut added = Vec::new();
    for (key, _) in SPECIAL {
        let text = special(files, key)?;
        let id = tokens.iter().position(|token| *token == text);
        added.extend(id.map(|id| AddedToken::special(id as u32, text)));
    }
    let lowercase = flag(files, "do_lower_case")?.unwrap_or(true);
    let tokenizer = TokenizerFiles {
        normalizer: Some(Normalizer::BertNormalizer {
            clean_text: true,
            handle_chinese_chars: flag(files, "tokenize_chinese_chars")?.unwrap_or(true),
            strip_accents: flag(files, "strip_accents")?,
            lowercase,
        }),
        pre_tokenizer: Some(PreTokenizer::BertPreTokenizer),
        decoder: Some(Decoder::WordPiece { prefix: "##".into() }),
        assumption: Some("no tokenizer.json: text is tokenized as transformers' BertTokenizer does it"),
        ..TokenizerFiles::new(path, TokenizerKind::WordPiece, model, added)
    };
    id(files, &tokenizer, "unk_token")?;
    Ok(tokenizer)
}

/// The text of the special token that `key` names.
pub(super) fn special(files: &ConfigFiles, key: &str) -> Result<String> {
    let said = files.tokenizer_config.as_ref().map(|config| token_text(config, key)).transpose()?.flatten();
    let default = || SPECIAL.iter().find(|(known, _)| *known == key).map(|(_, text)| (*text).to_owned());
    Ok(said.or_else(default).unwrap_or_default())
}

/// The id of the special token that `key` names.
fn id(files: &ConfigFiles, tokenizer: &TokenizerFiles, key: &str) -> Result<u32> {
    let text = special(files, key)?;
    let found = || format!("{text:?}, which is no line of it");
    let wrong = || Error::key_value(&tokenizer.path, key, found(), "one of its tokens");
    tokenizer.id_of(&text).ok_or_else(wrong)
}

/// Adds the special tokens of BertTokenizer, and of DeBERTa's, to `spec`.
pub(crate) fn finish(
    mut spec: TokenizerSpec,
    files: &ConfigFiles,
    tokenizer: &TokenizerFiles,
) -> Result<TokenizerSpec> {
    let (cls, sep) = (id(files, tokenizer, "cls_token")?, id(files, tokenizer, "sep_token")?);
    (spec.bos, spec.eos, spec.pair) = (Some(cls), Some(sep), Some(PairTemplate::bert(cls, sep)));
    (spec.bos_text, spec.eos_text) = (tokenizer.text(cls), tokenizer.text(sep));
    (spec.add_bos, spec.add_eos) = (true, true);
    Ok(spec)
}
