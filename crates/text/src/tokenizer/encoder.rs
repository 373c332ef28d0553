//! A text -> ids: added tokens are found as a whole, the rest is normalized and split into pieces, and the model makes tokens
//! of each piece.
//!
//! The order of these steps, and what each does, is the tokenizers library's (`TokenizerImpl::encode`). That library is not
//! called: it keeps an offset for every byte of a text, drops the errors of normalizers and patterns, and has no bound on
//! what a step may make of a text.
//!
//! A step fails by an [`EncodeError`](crate::error::EncodeError), or where the system refuses memory.

use super::added::{AddedTokens, IdSet};
use super::normalizer::Normalizer;
use super::pre_tokenizer::PreTokenizer;
use super::text::{Budget, push};
use crate::error::Result;
use std::borrow::Cow;
use std::ops::Range;
use tokenizers::models::bpe::Vocab;

/// What makes tokens of a piece.
pub(super) trait Model: Send + Sync {
    /// Appends the ids of `piece`, which is not empty. None is one of `guarded`, but the one that stands for what is unknown.
    fn encode(&self, piece: &str, guarded: &IdSet, ids: &mut Vec<u32>) -> Result<()>;

    fn tokens(&self) -> &Tokens;

    /// The id of an entry of the vocabulary.
    fn id(&self, text: &str) -> Option<u32> {
        self.tokens().ids.get(text).copied()
    }

    /// The entry of the vocabulary with this id.
    fn text(&self, id: u32) -> Option<&str> {
        self.tokens().texts.get(id as usize).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Entries of the vocabulary.
    fn len(&self) -> usize {
        self.tokens().ids.len()
    }

    /// The most bytes of a piece that become one token; `None` where some bytes may become none, or any number one, as of a
    /// word or of several characters that are not known. `bytes` says that pieces are written in GPT-2's byte alphabet.
    fn longest(&self, _bytes: bool) -> Option<usize> {
        None
    }
}

/// The vocabulary of a model.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The id of every text.
    pub(super) ids: Vocab,
    /// Every text by id; empty where none has it.
    pub(super) texts: Vec<String>,
}

impl Tokens {
    /// The tokens of these texts. Of two that are the same the later counts, as in transformers.
    pub(super) fn new(texts: Vec<String>) -> Tokens {
        let ids = texts.iter().cloned().zip(0..).filter(|(text, _)| !text.is_empty()).collect();
        Tokens { ids, texts }
    }

    /// Bytes of the longest.
    pub(super) fn longest(&self) -> Option<usize> {
        self.texts.iter().map(String::len).max()
    }
}

/// The tokenizer of a model, without what is put before a text or after it.
pub(super) struct Encoder {
    pub(super) added: AddedTokens,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    model: Box<dyn Model>,
    /// Bytes of a text that become one token at most, where that is known.
    longest: Option<usize>,
}

impl Encoder {
    pub(super) fn new(
        added: AddedTokens,
        normalizer: Normalizer,
        pre_tokenizer: PreTokenizer,
        model: Box<dyn Model>,
    ) -> Encoder {
        let known = || {
            let factor = normalizer.shortens().filter(|_| pre_tokenizer.keeps_all())?;
            model.longest(pre_tokenizer.writes_bytes())?.max(added.longest).checked_mul(factor)
        };
        let longest = known();
        Encoder { added, normalizer, pre_tokenizer, model, longest }
    }

    /// The ids of `text`. Marks are made of what lies within one of the ranges `own` only, which are in ascending order, do
    /// not touch, and end between characters: see [`AddedMatchers::segments`](super::added::AddedMatchers::segments).
    pub(super) fn encode(&self, text: &str, own: &[Range<usize>]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut budget = Budget::new(text.len());
        let mut own_left = own;
        for (range, added) in self.added.plain.segments(text, own)? {
            if let Some(id) = added {
                push(&mut ids, id)?;
                continue;
            }
            let first = range.start == 0;
            let owned = within(&mut own_left, &range)?;
            let part = &text[range];
            let whole = matches!(&*owned, [all] if *all == (0..part.len()));
            let guarded = if whole { &IdSet::NONE } else { &self.added.guarded };
            let (normalized, owned) = self.normalized(part, owned, whole, &budget)?;
            budget.part_done();
            for (range, added) in self.added.normalized.segments(&normalized, &owned)? {
                if let Some(id) = added {
                    push(&mut ids, id)?;
                    continue;
                }
                let first = first && range.start == 0;
                for piece in self.pre_tokenizer.apply(&normalized[range], first, &budget)?.iter() {
                    self.model.encode(piece, guarded, &mut ids)?;
                }
                budget.part_done();
            }
        }
        Ok(ids)
    }

    /// The ids of `text`, of which every part may be a mark.
    pub(super) fn encode_all(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, std::slice::from_ref(&(0..text.len())))
    }

    /// `part` normalized, and which of that is made of the ranges `own`; `whole` says that these are all of it.
    fn normalized<'t>(
        &self,
        part: &'t str,
        own: Vec<Range<usize>>,
        whole: bool,
        budget: &Budget,
    ) -> Result<(Cow<'t, str>, Vec<Range<usize>>)> {
        let together = self.normalizer.apply(part, budget)?;
        if whole {
            let all = 0..together.len();
            return Ok((together, Vec::from([all])));
        }
        if own.is_empty() || !self.added.normalized.has_marks() {
            return Ok((together, Vec::new()));
        }
        // Each for itself, so that nobody's character becomes one with another's.
        let (apart, own) = self.normalizer.apply_apart(part, &own, budget)?;
        if apart == together {
            return Ok((together, own));
        }
        let marks = self.added.normalized.segments(&apart, &own)?;
        let marked = marks.iter().any(|(_, id)| id.is_some_and(|id| self.added.guarded.has(id)));
        Ok(if marked { (apart.into(), own) } else { (together, Vec::new()) })
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
}

/// The parts of `ranges` in `range`, counted from its start. What lies before it is dropped from `ranges`.
fn within(ranges: &mut &[Range<usize>], range: &Range<usize>) -> Result<Vec<Range<usize>>> {
    while ranges.first().is_some_and(|first| first.end <= range.start) {
        *ranges = &ranges[1..];
    }
    let mut found = Vec::new();
    for own in ranges.iter().take_while(|own| own.start < range.end) {
        push(&mut found, own.start.max(range.start) - range.start..own.end.min(range.end) - range.start)?;
    }
    Ok(found)
}
