//! A text -> ids: added tokens are found as a whole, the rest is normalized and split into pieces, and the model makes tokens
//! of each piece.
//!
//! The order of these steps, and what each does, is the tokenizers library's (`TokenizerImpl::encode`). That library is not
//! called: it keeps an offset for every byte of a text, drops the errors of normalizers and patterns, and has no bound on
//! what a step may make of a text.

use super::added::AddedTokens;
use super::error::Encoded;
use super::normalizer::Normalizer;
use super::pre_tokenizer::PreTokenizer;
use super::text::{Budget, push};

/// What makes tokens of a piece.
pub(super) trait Model: Send + Sync {
    /// Appends the ids of `piece`, which is not empty.
    ///
    /// # Errors
    /// `NoToken`, `OutOfMemory`.
    fn encode(&self, piece: &str, ids: &mut Vec<u32>) -> Encoded<()>;

    /// The id of an entry of the vocabulary.
    fn id(&self, text: &str) -> Option<u32>;

    /// The entry of the vocabulary with this id.
    fn text(&self, id: u32) -> Option<&str>;

    /// Entries of the vocabulary.
    fn len(&self) -> usize;

    /// The most bytes of a piece that become one token; `None` where some bytes may become none, or any number one.
    /// `bytes` says that pieces are written in GPT-2's byte alphabet.
    fn longest(&self, bytes: bool) -> Option<usize>;
}

/// The tokenizer of a model, without what is put in front of a text or behind it.
pub(super) struct Encoder {
    added: AddedTokens,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    model: Box<dyn Model>,
    /// Bytes of a text that become one token at most, where that is known.
    longest: Option<usize>,
}

impl Encoder {
    /// Puts a tokenizer together.
    pub(super) fn new(
        added: AddedTokens,
        normalizer: Normalizer,
        pre_tokenizer: PreTokenizer,
        model: Box<dyn Model>,
    ) -> Encoder {
        let known = || {
            let factor = normalizer.shortens().filter(|_| pre_tokenizer.keeps_all())?;
            model.longest(pre_tokenizer.writes_bytes())?.max(added.longest()).checked_mul(factor)
        };
        let longest = known();
        Encoder { added, normalizer, pre_tokenizer, model, longest }
    }

    /// The ids of `text`.
    ///
    /// # Errors
    /// `TooLong`, `Pattern`, `NoToken`, `OutOfMemory`.
    pub(super) fn encode(&self, text: &str) -> Encoded<Vec<u32>> {
        let mut ids = Vec::new();
        let mut budget = Budget::of(text.len());
        for (range, added) in self.added.in_text(text)? {
            if let Some(id) = added {
                push(&mut ids, id)?;
                continue;
            }
            let first = range.start == 0;
            let normalized = self.normalizer.apply(&text[range], &budget)?;
            budget.part_done();
            for (range, added) in self.added.in_normalized(&normalized)? {
                if let Some(id) = added {
                    push(&mut ids, id)?;
                    continue;
                }
                let first = first && range.start == 0;
                for piece in self.pre_tokenizer.apply(&normalized[range], first, &budget)?.iter() {
                    self.model.encode(piece, &mut ids)?;
                }
                budget.part_done();
            }
        }
        Ok(ids)
    }

    /// Tokens that `text` becomes at least.
    pub(super) fn least_tokens(&self, text: &str) -> usize {
        let Some(longest) = self.longest.filter(|longest| *longest > 0) else { return 0 };
        let bytes = if self.added.strips() { text.split_whitespace().map(str::len).sum() } else { text.len() };
        bytes.div_ceil(longest)
    }

    /// The id of a token, added ones first.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.added.id(text).or_else(|| self.model.id(text))
    }

    /// The token with this id, added ones first.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.added.text(id).or_else(|| self.model.text(id))
    }

    /// The id of an added token.
    pub(super) fn added(&self, text: &str) -> Option<u32> {
        self.added.id(text)
    }
}
