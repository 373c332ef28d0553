//! `spm.model`: the SentencePiece model of DeBERTa 2 and 3, as transformers' `DebertaV2Converter` reads it.

use super::super::TokenizerKind;
use super::super::added::{AddedToken, added_tokens, flag};
use super::super::files::{Model, TokenizerFiles};
use super::super::sentencepiece::{Piece, PieceKind, SentencePieceModel};
use super::super::steps::{Behavior, Decoder, Normalizer, Pattern, PreTokenizer, Prepend};
use super::word_piece::special;
use super::{class, unknown_class};
use crate::error::{Error, Result};
use crate::header::config::ConfigFiles;
use std::path::Path;

/// Reads the model at `path`, which is next to `files`.
pub(super) fn read(files: &ConfigFiles, path: &Path) -> Result<TokenizerFiles> {
    if let Some(class) = class(files)?.filter(|class| class.trim_end_matches("Fast") != "DebertaV2Tokenizer") {
        let expected = "DebertaV2Tokenizer next to a spm.model; save tokenizer.json with transformers for another";
        return Err(unknown_class(files, path, &format!("{class:?}"), expected));
    }
    let SentencePieceModel { pieces, space_prefix, charsmap } = SentencePieceModel::read_unigram(path)?;
    let id_of = |text: &str| pieces.iter().position(|piece| piece.text == text).map(|id| id as u32);
    let mut model = Model { kind: Some("Unigram".into()), byte_fallback: Some(false), ..Model::default() };
    for (piece, id) in pieces.iter().zip(0..) {
        model.vocab.push(&piece.text, id);
        model.vocab.scores.push(piece.score.into());
    }
    let unknown = pieces.iter().position(|piece| piece.kind == PieceKind::Unknown);
    let none = || Error::key_value(path, "pieces", "none of type 2 (unknown)", "one");
    model.unk_id = Some(unknown.ok_or_else(none)?);
    let of_model = pieces.iter().zip(0..).filter(|(piece, _)| piece.kind != PieceKind::Normal);
    let token = |(piece, id): (&Piece, u32)| AddedToken {
        special: piece.kind != PieceKind::UserDefined,
        ..AddedToken::special(id, piece.text.clone())
    };
    let mut own: Vec<AddedToken> = of_model.map(token).collect();
    // The token of masked words is no piece of the published models.
    let mask = special(files, "mask_token")?;
    if id_of(&mask).is_none() {
        own.push(AddedToken::special(pieces.len() as u32, mask));
    }
    let added = added_tokens(files, pieces.len(), own, id_of)?;
    let lowers = flag(files, "do_lower_case")?.unwrap_or(false).then_some(Normalizer::Lowercase);
    let collapsed = Normalizer::Replace { pattern: Pattern::Regex(" {2,}".into()), content: " ".into() };
    let mapped = (!charsmap.is_empty()).then_some(Normalizer::Charsmap { table: charsmap });
    let stripped = Normalizer::Strip { strip_left: true, strip_right: true };
    let normalizers = lowers.into_iter().chain([stripped]).chain(mapped).chain([collapsed]).collect();
    let prepend_scheme = Some(if space_prefix { Prepend::Always } else { Prepend::Never });
    let isolated = PreTokenizer::Punctuation { behavior: Some(Behavior::Isolated) };
    let splits = flag(files, "split_by_punct")?.unwrap_or(false).then_some(isolated);
    let words =
        PreTokenizer::Metaspace { replacement: '▁', add_prefix_space: None, prepend_scheme, split: Some(true) };
    Ok(TokenizerFiles {
        normalizer: Some(Normalizer::Sequence { normalizers }),
        pre_tokenizer: Some(PreTokenizer::Sequence { pretokenizers: splits.into_iter().chain([words]).collect() }),
        decoder: Some(Decoder::Metaspace { replacement: Some("▁".into()), add_prefix_space: None, prepend_scheme }),
        space_prefix,
        assumption: Some("no tokenizer.json: text is tokenized as DebertaV2Converter of transformers 4 does it"),
        ..TokenizerFiles::new(path, TokenizerKind::Unigram, model, added)
    })
}
