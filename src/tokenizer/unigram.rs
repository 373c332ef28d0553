//! Unigram: the model of a `tokenizer.json` made from a SentencePiece vocabulary without merges, by the tokenizers library.

use super::encoder::Model;
use super::error::{EncodeError, Encoded};
use super::text::push;
use tokenizers::Model as _;
use tokenizers::models::unigram::Unigram as Library;

/// Bytes of a token. The library copies every token that a text has at a place; SentencePiece's own limit is 16
/// characters (`max_sentencepiece_length`).
const TOKEN_BYTES: usize = 256;

/// The library's model.
pub(super) struct Unigram {
    library: Library,
    texts: Vec<String>,
}

impl Unigram {
    /// Takes the library's model.
    ///
    /// # Errors
    /// When a token is longer than any published one.
    pub(super) fn new(library: Library) -> Result<Unigram, String> {
        let texts: Vec<String> = library.iter().map(|(text, _)| text.clone()).collect();
        match texts.iter().position(|text| text.len() > TOKEN_BYTES) {
            Some(id) => Err(format!("token {id} has {} bytes, expected at most {TOKEN_BYTES}", texts[id].len())),
            None => Ok(Unigram { library, texts }),
        }
    }
}

impl Model for Unigram {
    fn encode(&self, piece: &str, ids: &mut Vec<u32>) -> Encoded<()> {
        // It fails on a character without a token where the file names no unknown token.
        let none = |_| EncodeError::NoToken { text: piece.chars().take(20).collect(), unknown: "unk_id".into() };
        let tokens = self.library.tokenize(piece).map_err(none)?;
        tokens.iter().try_for_each(|token| push(ids, token.id))
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.library.token_to_id(text)
    }

    fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str)
    }

    fn len(&self) -> usize {
        self.texts.len()
    }

    fn longest(&self, _: bool) -> Option<usize> {
        // One unknown token stands for as many characters as follow each other.
        None
    }
}
