//! WordPiece: the model of BERT's vocabularies, in a `tokenizer.json`, a `vocab.txt` or GGUF keys. A word is the longest
//! token that it begins with, then the longest that goes on, to its end; a word that has no such end is the unknown token.

use super::added::{AddedTokens, IdSet};
use super::encoder::{Encoder, Model};
use super::error::Encoded;
use super::normalizer::Normalizer;
use super::pre_tokenizer::PreTokenizer;
use super::text::push;
use crate::error::EncodeError;
use model_factory_format::tokenizer::{AddedToken, WordPieceRules};
use serde::Deserialize;
use std::collections::HashMap;

/// What a token that goes on with a word begins with, but in GGUF.
const CONTINUES: &str = "##";

/// Characters of the longest word that is looked up (transformers `BertTokenizer`).
const WORD_CHARACTERS: usize = 100;

/// `model` of a `tokenizer.json`.
#[derive(Deserialize)]
pub(super) struct WordPieceJson {
    vocab: HashMap<String, u32>,
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
}

/// A vocabulary of words and their parts.
pub(super) struct WordPiece {
    /// Tokens that begin a word, and those that go on with one without what marks them.
    begins: HashMap<String, u32>,
    continues: HashMap<String, u32>,
    /// Every token by id, as its file spells it.
    texts: Vec<String>,
    ids: HashMap<String, u32>,
    unknown: Option<u32>,
    unknown_text: String,
    /// Characters of a word at most.
    most: usize,
    /// Bytes of the longest token.
    longest: usize,
}

impl WordPieceJson {
    /// Builds the model of a vocabulary whose ids are below `tokens`.
    ///
    /// # Errors
    /// When tokens that go on with a word are not marked by `##`, or two tokens have one id.
    pub(super) fn build(self, tokens: usize) -> Result<WordPiece, String> {
        if self.continuing_subword_prefix != CONTINUES {
            let found = self.continuing_subword_prefix;
            return Err(format!("its continuing_subword_prefix is {found:?}, expected {CONTINUES:?}"));
        }
        let mut texts = vec![String::new(); tokens];
        for (text, id) in self.vocab {
            let slot = texts.get_mut(id as usize).ok_or_else(|| format!("token {text:?} has id {id} of {tokens}"))?;
            if !slot.is_empty() {
                return Err(format!("tokens {:?} and {:?} have the id {id}", (&*slot).min(&text), (&*slot).max(&text)));
            }
            *slot = text;
        }
        let unknown = texts.iter().position(|text| *text == self.unk_token).map(|id| id as u32);
        let split =
            |text: &str| text.strip_prefix(CONTINUES).map_or((false, text.to_owned()), |rest| (true, rest.into()));
        Ok(WordPiece::new(texts, unknown, self.unk_token, self.max_input_chars_per_word.min(WORD_CHARACTERS), split))
    }
}

impl WordPiece {
    /// `split` tells whether a token goes on with a word, and its text without the mark of that.
    fn new(
        texts: Vec<String>,
        unknown: Option<u32>,
        unknown_text: String,
        most: usize,
        split: impl Fn(&str) -> (bool, String),
    ) -> WordPiece {
        let (mut begins, mut continues, mut ids) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (id, text) in (0..).zip(&texts).filter(|(_, text)| !text.is_empty()) {
            let (goes_on, plain) = split(text);
            // Of two lines of a `vocab.txt` that are alike the later counts, as in transformers.
            if goes_on {
                continues.insert(plain, id)
            } else {
                begins.insert(plain, id)
            };
            ids.insert(text.clone(), id);
        }
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        WordPiece { begins, continues, texts, ids, unknown, unknown_text, most, longest }
    }
}

impl Model for WordPiece {
    fn encode(&self, piece: &str, guarded: Option<&IdSet>, ids: &mut Vec<u32>) -> Encoded<()> {
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
        let (before, mut start) = (ids.len(), 0);
        while start < piece.len() {
            let tokens = if start == 0 { &self.begins } else { &self.continues };
            let mut end = piece.floor_char_boundary(piece.len().min(start + self.longest));
            let id = loop {
                if end <= start {
                    ids.truncate(before);
                    return unknown(ids);
                }
                match tokens.get(&piece[start..end]).filter(|id| guarded.is_none_or(|guarded| !guarded.has(**id))) {
                    Some(id) => break *id,
                    None => end = piece.floor_char_boundary(end - 1),
                }
            };
            push(ids, id)?;
            start = end;
        }
        Ok(())
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn longest(&self, _: bool) -> Option<usize> {
        // A word of any length may become one unknown token.
        None
    }
}

/// The model of a `vocab.txt` with these `texts` by id.
pub(super) fn of_lines(texts: Vec<String>, rules: WordPieceRules) -> WordPiece {
    let split = |text: &str| text.strip_prefix(CONTINUES).map_or((false, text.to_owned()), |rest| (true, rest.into()));
    WordPiece::new(texts, Some(rules.unknown), "unk_token".into(), WORD_CHARACTERS, split)
}

/// Builds the encoder of a GGUF vocabulary, in which tokens that begin a word begin with `▁` and others with nothing.
pub(super) fn of_gguf(texts: Vec<String>, added: Vec<AddedToken>, rules: WordPieceRules) -> Result<Encoder, String> {
    let normalizer = normalizer(rules);
    let added = AddedTokens::new(added, &normalizer)?;
    let split = |text: &str| text.strip_prefix('▁').map_or((true, text.to_owned()), |rest| (false, rest.into()));
    let model = WordPiece::new(texts, Some(rules.unknown), String::new(), WORD_CHARACTERS, split);
    Ok(Encoder::new(added, normalizer, PreTokenizer::bert(), Box::new(model)))
}

/// What these rules do to a text.
pub(super) fn normalizer(rules: WordPieceRules) -> Normalizer {
    let WordPieceRules { lowercase, strip_accents, chinese_chars, .. } = rules;
    Normalizer::bert(true, chinese_chars, strip_accents, lowercase)
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

    #[test]
    fn two_tokens_of_one_id_are_refused_by_both_names() {
        let json = json!({"type": "WordPiece", "vocab": {"b": 0, "a": 0}, "unk_token": "a",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100});
        let refused = serde_json::from_value::<WordPieceJson>(json).unwrap().build(1).err();
        assert_eq!(refused.as_deref(), Some("tokens \"a\" and \"b\" have the id 0"));
    }

    proptest! {
        #[test]
        fn a_word_has_the_tokens_that_the_library_gives_it(word in "[abcdé日本]{1,9}|a{99,102}") {
            let vocab: HashMap<String, u32> =
                VOCABULARY.iter().zip(0..).map(|(text, id)| ((*text).to_owned(), id)).collect();
            let json = json!({"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
                "continuing_subword_prefix": "##", "max_input_chars_per_word": 100});
            let library: Library = serde_json::from_str(&json.to_string()).unwrap();
            let ours: WordPieceJson = serde_json::from_value(json).unwrap();
            let mut ids = Vec::new();
            ours.build(VOCABULARY.len()).unwrap().encode(&word, None, &mut ids).unwrap();
            let expected: Vec<u32> = library.tokenize(&word).unwrap().iter().map(|token| token.id).collect();
            prop_assert_eq!(ids, expected);
        }
    }
}
