//! `vocab.json` and `merges.txt`, or `tokenizer.model` -> encoder and vocabulary.

use super::bpe::{Bpe, Unknown, merge_map};
use super::json::{Built, Parts, Rules, assemble};
use super::normalizer::{self, Normalizer};
use super::pre_tokenizer::{PreTokenizer, Prepend};
use super::sentencepiece::SentencePiece;
use super::vocabulary::byte_token;
use super::word_piece;
use crate::error::{Error, Result};
use model_factory_format::header::config::{ConfigFiles, VocabularyFiles};
use model_factory_format::tokenizer::sentencepiece::{PieceKind, SentencePieceModel};
use model_factory_format::tokenizer::{
    MergesFile, TokenizerSpec, byte_level_added, legacy, pre, sentence_piece_added, word_piece_added, word_piece_tokens,
};
use model_factory_format::{limits, source};
use std::path::Path;
use tokenizers::models::bpe::Vocab;

/// Builds the tokenizer of a folder without a `tokenizer.json`; `None` when it has no vocabulary.
pub(super) fn build(files: &ConfigFiles, spec: &TokenizerSpec) -> Result<Option<Built>> {
    match &files.vocabulary {
        Some(VocabularyFiles::Merges { vocab, merges: Some(merges) }) => {
            byte_level(files, vocab, merges, spec).map(Some)
        }
        Some(VocabularyFiles::SentencePiece(path)) => sentence_piece(files, path, spec).map(Some),
        Some(VocabularyFiles::WordPiece(path)) => word_piece(files, path, spec).map(Some),
        Some(VocabularyFiles::Merges { merges: None, .. } | VocabularyFiles::Tiktoken(_)) | None => Ok(None),
    }
}

fn byte_level(files: &ConfigFiles, path: &Path, merges: &Path, spec: &TokenizerSpec) -> Result<Built> {
    let damaged = |file: &Path, reason: String| Error::Tokenizer { file: file.into(), reason };
    let text = source::read(path, limits::VOCABULARY_BYTES)?;
    let ids: Vocab = serde_json::from_slice(&text).map_err(|error| damaged(path, error.to_string()))?;
    // A sound vocabulary has as many entries as ids; the spec has bounded the ids by the length of the file.
    let tokens = ids.values().map(|id| *id as usize + 1).max().unwrap_or(0);
    if tokens > text.len() {
        return Err(damaged(path, format!("it has ids up to {tokens}, more than its {} bytes can list", text.len())));
    }
    let mut texts = vec![String::new(); tokens];
    for (text, id) in &ids {
        texts[*id as usize].clone_from(text);
    }
    let lines = MergesFile::read(merges)?;
    let merged = merge_map(lines.pairs().map(Ok), &ids).map_err(|reason| damaged(merges, reason))?;
    let added = byte_level_added(files, tokens, |text| ids.get(text).copied())?;
    let known = || damaged(path, "its pre-tokenizer is not known".into());
    let pre = spec.pre.as_deref().and_then(pre::find).ok_or_else(known)?;
    let parts = Parts {
        added,
        normalizer: Normalizer::new(pre.nfc.then_some(normalizer::NormalizerStep::Nfc).into_iter().collect()),
        pre_tokenizer: PreTokenizer::byte_level(pre.patterns).map_err(|reason| damaged(path, reason))?,
        rules: Rules::byte_level(),
    };
    let ignore_merges = pre.ignore_merges;
    let model = Bpe { ids, texts, merges: merged, ignore_merges, unknown: Unknown::default() };
    assemble(path, Box::new(model), parts, spec)
}

fn word_piece(files: &ConfigFiles, path: &Path, spec: &TokenizerSpec) -> Result<Built> {
    let texts = word_piece_tokens(path)?;
    let added = word_piece_added(files, &texts)?;
    let damaged = || Error::Tokenizer { file: path.into(), reason: "its rules are not known".into() };
    let rules = spec.word_piece.ok_or_else(damaged)?;
    let (normalizer, pre_tokenizer) = (word_piece::normalizer(rules), PreTokenizer::bert());
    let parts = Parts { added, normalizer, pre_tokenizer, rules: Rules::word_piece() };
    assemble(path, Box::new(word_piece::of_lines(texts, rules)), parts, spec)
}

fn sentence_piece(files: &ConfigFiles, path: &Path, spec: &TokenizerSpec) -> Result<Built> {
    let read = SentencePieceModel::read(path)?;
    let added = sentence_piece_added(files, &read)?;
    let texts: Vec<String> = read.pieces.iter().map(|piece| piece.text.clone()).collect();
    let mut model = SentencePiece {
        ids: texts.iter().cloned().zip(0..).collect(),
        texts,
        scores: Vec::with_capacity(read.pieces.len()),
        bytes: vec![None; 256],
        unknown: None,
    };
    for (id, piece) in (0..).zip(&read.pieces) {
        let merges = matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
        model.scores.push(merges.then_some(piece.score));
        if piece.kind == PieceKind::Unknown {
            model.unknown = Some(id);
        }
        if piece.kind == PieceKind::Byte {
            let slot = byte_token(piece.text.as_bytes()).and_then(|byte| model.bytes.get_mut(usize::from(byte)));
            let reason = || format!("piece {id} is {:?}, expected a byte as <0x0A>", piece.text);
            slot.ok_or_else(|| Error::Tokenizer { file: path.into(), reason: reason() })?.get_or_insert(id);
        }
    }
    // transformers' `LlamaTokenizer`.
    let prepend = match (spec.add_space_prefix, legacy(files)?) {
        (false, _) => Prepend::Never,
        (true, false) => Prepend::First,
        (true, true) => Prepend::Always,
    };
    let parts = Parts {
        added,
        normalizer: Normalizer::default(),
        pre_tokenizer: PreTokenizer::metaspace(prepend),
        rules: Rules::sentence_piece(spec.add_space_prefix),
    };
    assemble(path, Box::new(model), parts, spec)
}
