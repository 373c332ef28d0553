//! A vocabulary -> the trie of its tokens' bytes, in which grammars find the tokens that may come next.

use super::Tokenizer;
use super::encoder::Encoder;
use crate::error::{Error, GrammarError, Result};
use crate::grammar::Grammars;
use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;

/// The most bytes of a token, and the most nodes of a trie. A longer token is never drawn.
const TOKEN_BYTES: usize = 1000;
const NODES: usize = (1 << 22) - 1;

/// A prefix for texts that are encoded as if they were not at the beginning: some tokenizers add a space there.
const BEFORE: &str = "\u{2}";

/// A trie, and the encoder for texts that have only one continuation.
struct Spelled {
    trie: TokTrie,
    encoder: Arc<Encoder>,
}

impl Tokenizer {
    /// The grammars compiled for this vocabulary. They are created on the first call and kept.
    ///
    /// # Errors
    /// `Grammar` for a vocabulary that is larger than all published ones.
    #[doc(hidden)]
    pub fn grammars(&self) -> Result<&Grammars> {
        let made = self.grammars.get_or_init(|| {
            let trie = self.trie()?;
            Grammars::new(&(Arc::new(Spelled { trie, encoder: Arc::clone(&self.encoder) }) as Arc<_>))
        });
        made.as_ref().map_err(Error::clone)
    }

    fn trie(&self) -> Result<TokTrie> {
        let tokens = 0..u32::try_from(self.vocab_len()).unwrap_or(u32::MAX);
        let words: Vec<Vec<u8>> = tokens.map(|id| self.word(id)).collect();
        let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        sorted.sort_unstable();
        let shared = |pair: &[&[u8]]| pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count();
        let nodes = sorted.windows(2).map(|pair| pair[1].len() - shared(pair)).sum::<usize>()
            + sorted.first().map_or(0, |first| first.len());
        if nodes > NODES {
            return Err(GrammarError::Vocabulary { nodes, limit: NODES }.into());
        }
        let len = u32::try_from(words.len()).unwrap_or(u32::MAX);
        // The tokens that end a text are only known to the generation.
        Ok(TokTrie::from(&TokRxInfo::new(len, INVALID_TOKEN), &words))
    }

    /// The entry of `id` in the trie: its bytes; for a special token, or an added one in brackets (`<think>`, `[INST]`),
    /// its name after a byte that no text has, so that no text spells it; nothing for a token that is never drawn.
    fn word(&self, id: u32) -> Vec<u8> {
        let bytes = self.token_bytes(id).unwrap_or_default();
        let name = self.token_text(id).unwrap_or_default();
        let within = |open, close| name.starts_with(open) && name.ends_with(close);
        let marks =
            self.is_special(id) || (self.added_token(&name) == Some(id) && (within('<', '>') || within('[', ']')));
        let word = match marks {
            false => bytes.to_vec(),
            true if within('<', '>') => [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat(),
            true => Vec::new(),
        };
        if word.len() > TOKEN_BYTES { Vec::new() } else { word }
    }
}

impl Spelled {
    /// The tokens of `text` within a longer text, if they have exactly its bytes.
    fn within(&self, text: &str) -> Option<Vec<TokenId>> {
        let is_text = |ids: &[TokenId]| self.trie.decode_raw(ids) == text.as_bytes();
        let ids = self.encoder.encode_all(text).ok()?;
        if is_text(&ids) {
            return Some(ids);
        }
        let mut longer = self.encoder.encode_all(&format!("{BEFORE}{text}")).ok()?;
        let first = (0..longer.len()).rev().find(|first| is_text(&longer[*first..]))?;
        Some(longer.split_off(first))
    }
}

impl TokenizerEnv for Spelled {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let known = std::str::from_utf8(bytes).ok().and_then(|text| self.within(text));
        known.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}
