//! WordPiece: the model of BERT's vocabularies, in a `tokenizer.json`, a `vocab.txt` or GGUF keys. A word is the longest
//! token that it begins with, then the longest that continues it, to its end; a word that cannot be split so is the unknown token.

use super::added::IdSet;
use super::encoder::{Model, Tokens};
use super::text::push;
use crate::error::{EncodeError, Result};
use model_factory_format::tokenizer::Model as Description;

/// The prefix of a token that continues a word, except in GGUF.
const CONTINUES: &str = "##";

/// The prefix of a token that begins a word in GGUF.
const BEGINS: &str = "▁";

/// The most characters of a word that is looked up (transformers `BertTokenizer`).
const WORD_CHARACTERS: usize = 100;

/// A vocabulary of words and their parts.
pub(super) struct WordPiece {
    tokens: Tokens,
    /// The prefix of tokens that begin a word, and that of tokens that continue one.
    prefixes: [&'static str; 2],
    unknown: Option<u32>,
    unknown_text: String,
    /// The most characters of a word.
    most: usize,
    /// The length in bytes of the longest token.
    longest: usize,
}

impl WordPiece {
    /// Builds `model`, which is that of a `tokenizer.json` or of a `vocab.txt`.
    ///
    /// # Errors
    /// If a part of it is missing, or tokens that continue a word are not marked by `##`.
    pub(super) fn new(model: &Description) -> Result<WordPiece, String> {
        let prefix = &model.continuing_subword_prefix;
        if prefix.as_deref() != Some(CONTINUES) {
            return Err(format!("its continuing_subword_prefix is {prefix:?}, expected {CONTINUES:?}"));
        }
        let (Some(unknown_text), Some(most), true) =
            (model.unk_token.clone(), model.max_input_chars_per_word, model.vocab.scores.is_empty())
        else {
            return Err("its model has no unk_token, no max_input_chars_per_word, or a list as its vocab".into());
        };
        let mut texts = vec![String::new(); model.vocab.end()];
        model.vocab.iter().for_each(|(text, id)| texts[id as usize] = text.to_owned());
        let (tokens, most) = (Tokens::new(texts), most.min(WORD_CHARACTERS));
        let (unknown, longest) = (tokens.ids.get(&unknown_text).copied(), tokens.longest().unwrap_or(0));
        Ok(WordPiece { tokens, prefixes: ["", CONTINUES], unknown, unknown_text, most, longest })
    }

    /// Builds the model of a GGUF vocabulary, in which tokens that begin a word begin with `▁`, and others have no prefix.
    pub(super) fn gguf(tokens: Tokens, unknown: u32) -> WordPiece {
        let longest = tokens.longest().unwrap_or(0);
        let (prefixes, unknown, most) = ([BEGINS, ""], Some(unknown), WORD_CHARACTERS);
        WordPiece { tokens, prefixes, unknown, unknown_text: String::new(), most, longest }
    }
}

impl Model for WordPiece {
    fn encode(&self, piece: &str, guarded: &IdSet, ids: &mut Vec<u32>) -> Result<()> {
        let unknown = |ids: &mut Vec<u32>| match self.unknown {
            Some(id) => push(ids, id),
            None => {
                let text = piece.chars().take(20).collect();
                Err(EncodeError::NoToken { text, unknown: self.unknown_text.clone() }.into())
            }
        };
        if piece.chars().count() > self.most {
            return unknown(ids);
        }
        let (before, mut start, mut token) = (ids.len(), 0, String::new());
        while start < piece.len() {
            let prefix = self.prefixes[usize::from(start > 0)];
            let most = piece.floor_char_boundary(piece.len().min(start + self.longest));
            token.clear();
            token.push_str(prefix);
            token.push_str(&piece[start..most]);
            let mut end = token.len();
            let id = loop {
                if end <= prefix.len() || (start > 0 && token.starts_with(BEGINS)) {
                    ids.truncate(before);
                    return unknown(ids);
                }
                match self.tokens.ids.get(&token[..end]).filter(|id| !guarded.has(**id)) {
                    Some(id) => break *id,
                    None => end = token.floor_char_boundary(end - 1),
                }
            };
            push(ids, id)?;
            start += end - prefix.len();
        }
        Ok(())
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tokenizers::Model as _;
    use tokenizers::models::wordpiece::WordPiece as Library;

    const VOCABULARY: [&str; 14] =
        ["[UNK]", "a", "b", "ab", "abc", "##a", "##b", "##bc", "##c", "é", "##é", "日", "##日本", "##"];

    proptest! {
        #[test]
        fn a_word_has_the_tokens_that_the_library_gives_it(word in "[abcdé日本#]{1,9}|a{99,102}") {
            let vocab: std::collections::HashMap<String, u32> =
                VOCABULARY.iter().zip(0..).map(|(text, id)| ((*text).to_owned(), id)).collect();
            let json = json!({"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
                "continuing_subword_prefix": "##", "max_input_chars_per_word": 100});
            let library: Library = serde_json::from_str(&json.to_string()).unwrap();
            let ours = serde_json::from_value(json).unwrap();
            let mut ids = Vec::new();
            WordPiece::new(&ours).unwrap().encode(&word, &IdSet::default(), &mut ids).unwrap();
            let expected: Vec<u32> = library.tokenize(&word).unwrap().iter().map(|token| token.id).collect();
            prop_assert_eq!(ids, expected);
        }
    }
}
