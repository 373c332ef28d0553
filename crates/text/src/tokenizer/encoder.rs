//! A text -> ids: added tokens are matched as a whole, the rest is normalized and split into pieces, and the model encodes
//! each piece.
//!
//! The order of these steps, and the effect of each, is the tokenizers library's (`TokenizerImpl::encode`). That library is not
//! called: it keeps an offset for every byte of a text, drops the errors of normalizers and patterns, and does not limit
//! how much a step makes of a text.
//!
//! A step fails with an [`EncodeError`](crate::error::EncodeError), or if the system refuses memory.

use super::added::{AddedTokens, IdSet};
use super::normalizer::Normalizer;
use super::pre_tokenizer::PreTokenizer;
use super::text::{Budget, push};
use crate::error::Result;
use std::borrow::Cow;
use std::ops::Range;
use tokenizers::models::bpe::Vocab;

/// The model of a tokenizer: it makes tokens of a piece.
pub(super) trait Model: Send + Sync {
    /// Appends the ids of `piece`, which is not empty. None of them is `guarded`, except for the unknown token.
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

    fn len(&self) -> usize {
        self.tokens().ids.len()
    }

    /// The most bytes of a piece that become one token; `None` if some bytes may become no token, or any number become one, as of a
    /// word or of several unknown characters. `bytes` says that pieces are written in GPT-2's byte alphabet.
    fn longest(&self, _bytes: bool) -> Option<usize> {
        None
    }
}

#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The id of each text.
    pub(super) ids: Vocab,
    /// The text of each id; empty if it has none.
    pub(super) texts: Vec<String>,
}

impl Tokens {
    /// The tokens of these texts. If two are the same the later one counts, as in transformers.
    pub(super) fn new(texts: Vec<String>) -> Tokens {
        let ids = texts.iter().cloned().zip(0..).filter(|(text, _)| !text.is_empty()).collect();
        Tokens { ids, texts }
    }

    /// The length in bytes of the longest text.
    pub(super) fn longest(&self) -> Option<usize> {
        self.texts.iter().map(String::len).max()
    }
}

/// The tokenizer of a model, without the tokens that are added before and after a text.
pub(super) struct Encoder {
    pub(super) added: AddedTokens,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    model: Box<dyn Model>,
    /// The most bytes of a text that become one token, if known.
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

    /// The ids of `text`. Marks are matched only within one of the ranges `own`, which are in ascending order, do
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

    /// The ids of `text`; marks are matched everywhere.
    pub(super) fn encode_all(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, std::slice::from_ref(&(0..text.len())))
    }

    /// `part` normalized, and the ranges of the result that come from `own`; `whole` says that `own` is all of it.
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
        // Each range is normalized separately, so that no character is composed of trusted and untrusted text.
        let (apart, own) = self.normalizer.apply_apart(part, &own, budget)?;
        if apart == together {
            return Ok((together, own));
        }
        let marks = self.added.normalized.segments(&apart, &own)?;
        let marked = marks.iter().any(|(_, id)| id.is_some_and(|id| self.added.guarded.has(id)));
        Ok(if marked { (apart.into(), own) } else { (together, Vec::new()) })
    }

    /// The least number of tokens that `text` becomes.
    pub(super) fn least_tokens(&self, text: &str) -> usize {
        let Some(longest) = self.longest.filter(|longest| *longest > 0) else { return 0 };
        let bytes = if self.added.strips() { text.split_whitespace().map(str::len).sum() } else { text.len() };
        bytes.div_ceil(longest)
    }

    /// The id of a token; added tokens take precedence.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.added.id(text).or_else(|| self.model.id(text))
    }

    /// The token with this id; added tokens take precedence.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.added.text(id).or_else(|| self.model.text(id))
    }
}

/// The parts of `ranges` in `range`, relative to its start. Ranges before it are dropped from `ranges`.
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
