//! Unigram: the model of a SentencePiece vocabulary without merges, computed by the tokenizers library.

use super::added::IdSet;
use super::encoder::{Model, Tokens};
use super::text::push;
use crate::error::{EncodeError, Result};
use model_factory_format::tokenizer::Model as Description;
use tokenizers::models::unigram::Unigram as Library;
use tokenizers::{Model as _, Token};

/// The most bytes of a token. The library copies every token that matches at a place of a text; SentencePiece's own limit is 16
/// characters (`max_sentencepiece_length`).
const TOKEN_BYTES: usize = 256;

pub(super) struct Unigram {
    library: Library,
    /// The tokens, with the ids of the library.
    tokens: Tokens,
    unknown: Option<u32>,
}

impl Unigram {
    /// Builds `model`, which is that of a `tokenizer.json`.
    ///
    /// # Errors
    /// If its vocabulary is not a list of texts and scores, and the errors of [`from_pieces`](Self::from_pieces).
    pub(super) fn new(model: &Description) -> Result<Unigram, String> {
        let pieces: Vec<(String, f64)> =
            model.vocab.iter().zip(&model.vocab.scores).map(|((text, _), score)| (text.to_owned(), *score)).collect();
        if pieces.len() < model.vocab.end() {
            return Err("its model.vocab is an object, expected a list of texts and scores".into());
        }
        Unigram::from_pieces(pieces, model.unk_id, model.byte_fallback == Some(true))
    }

    /// Builds the model of texts and their scores.
    ///
    /// # Errors
    /// If a token is longer than any published one, and the errors of the library.
    pub(super) fn from_pieces(
        pieces: Vec<(String, f64)>,
        unknown: Option<usize>,
        byte_fallback: bool,
    ) -> Result<Unigram, String> {
        let texts: Vec<String> = pieces.iter().map(|(text, _)| text.clone()).collect();
        if let Some(id) = texts.iter().position(|text| text.len() > TOKEN_BYTES) {
            return Err(format!("token {id} has {} bytes, expected at most {TOKEN_BYTES}", texts[id].len()));
        }
        let library = Library::from(pieces, unknown, byte_fallback).map_err(|error| error.to_string())?;
        let tokens = Tokens { texts, ..Tokens::default() };
        Ok(Unigram { library, tokens, unknown: unknown.and_then(|id| u32::try_from(id).ok()) })
    }
}

impl Model for Unigram {
    fn encode(&self, piece: &str, guarded: &IdSet, ids: &mut Vec<u32>) -> Result<()> {
        // The library fails on a character without a token if the file names no unknown token.
        let none = |_| EncodeError::NoToken { text: piece.chars().take(20).collect(), unknown: "unk_id".into() };
        let tokens = self.library.tokenize(piece).map_err(none)?;
        // The library does not know guarded tokens: where it finds one, its text is cut after the first
        // character, and both parts are shorter.
        let spelled = |token: &Token| self.text(token.id) == Some(&token.value);
        let is_guarded = |token: &&Token| guarded.has(token.id) && spelled(token);
        if !tokens.iter().any(|token| is_guarded(&token)) {
            return tokens.iter().try_for_each(|token| push(ids, token.id));
        }
        let mut start = 0;
        for token in tokens.iter().filter(is_guarded) {
            let first = token.value.chars().next().map_or(0, char::len_utf8);
            if first < token.value.len() {
                self.encode(&piece[start..token.offsets.0 + first], guarded, ids)?;
                start = token.offsets.0 + first;
            } else {
                if start < token.offsets.0 {
                    self.encode(&piece[start..token.offsets.0], guarded, ids)?;
                }
                self.unknown.map_or(Ok(()), |id| push(ids, id))?;
                start = token.offsets.1;
            }
        }
        if start < piece.len() { self.encode(&piece[start..], guarded, ids) } else { Ok(()) }
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.library.token_to_id(text)
    }

    fn len(&self) -> usize {
        self.tokens.texts.len()
    }
}
