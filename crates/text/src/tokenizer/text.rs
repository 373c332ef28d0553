//! A text that is normalized and split into pieces, within a budget of bytes.

use crate::error::{EncodeError, Result};
use model_factory_dtypes::memory;
use std::cell::Cell;
use std::ops::Range;

/// The purpose of the memory, for errors.
const WHAT: &str = "the tokens of a text";

/// The most bytes that a text may become for each of its bytes. Real tokenizers write a space as `▁` (3 bytes) and others as two;
/// only compatibility forms of a few Arabic ligatures become more (11 times as many for U+FDFA).
const GROWTH: usize = 8;

/// Bytes that any text may become, however short.
const ALWAYS: usize = 64 << 10;

/// The most steps of all patterns of a tokenizer for each byte of a text, plus those for any text. Patterns that
/// GGUF vocabularies name take up to eight.
const STEPS: (usize, usize) = (64, 1 << 20);

/// The bytes that may still be made of a text, and the steps that patterns may still take. Its parts between added tokens share it.
#[derive(Debug)]
pub(super) struct Budget {
    source: usize,
    limit: usize,
    /// Bytes of the parts that are done.
    spent: usize,
    /// The most bytes that a step has written of the current part.
    most: Cell<usize>,
    steps: Cell<usize>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        let limit = bytes.saturating_mul(GROWTH).saturating_add(ALWAYS);
        let steps = Cell::new(bytes.saturating_mul(STEPS.0).saturating_add(STEPS.1));
        Budget { source: bytes, limit, spent: 0, most: Cell::new(0), steps }
    }

    /// Takes `steps` of a pattern, and returns whether that many were left.
    pub(super) fn take_steps(&self, steps: usize) -> bool {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.is_some()
    }

    /// An empty text that grows within the budget, for the output of the tokenizer's `step`.
    pub(super) fn text(&self, step: &'static str) -> Growing<'_> {
        Growing { text: String::new(), budget: self, step }
    }

    /// Fails if the `bytes` that `step` wrote exceed the budget.
    pub(super) fn check(&self, step: &'static str, bytes: usize) -> Result<()> {
        let &Budget { source, limit, spent, .. } = self;
        if bytes > limit - spent.min(limit) {
            Err(EncodeError::TooLong { step, bytes: source, limit }.into())
        } else {
            Ok(())
        }
    }

    /// Counts a part as done.
    pub(super) fn part_done(&mut self) {
        self.spent = self.spent.saturating_add(self.most.take());
    }
}

/// A text that is the output of a step.
#[derive(Debug)]
pub(super) struct Growing<'b> {
    text: String,
    budget: &'b Budget,
    step: &'static str,
}

impl Growing<'_> {
    /// Appends `part`.
    ///
    /// # Errors
    /// `TooLong` beyond the budget, and `OutOfMemory`.
    #[inline]
    pub(super) fn push_str(&mut self, part: &str) -> Result<()> {
        self.budget.check(self.step, self.text.len() + part.len())?;
        Ok(memory::append(&mut self.text, part, WHAT)?)
    }

    #[inline]
    pub(super) fn push(&mut self, character: char) -> Result<()> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }

    pub(super) fn extend(&mut self, characters: impl IntoIterator<Item = char>) -> Result<()> {
        characters.into_iter().try_for_each(|character| self.push(character))
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn finish(self) -> String {
        self.budget.most.set(self.budget.most.get().max(self.text.len()));
        self.text
    }
}

/// Pieces of a text, in order; none is empty.
#[derive(Debug)]
pub(super) struct Pieces {
    text: String,
    parts: Vec<Range<usize>>,
}

impl Pieces {
    /// One piece, or none for an empty text.
    pub(super) fn whole(text: &str) -> Result<Pieces> {
        let (mut copy, mut parts) = (String::new(), Vec::new());
        memory::append(&mut copy, text, WHAT)?;
        push_part(&mut parts, 0..text.len())?;
        Ok(Pieces { text: copy, parts })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| &self.text[part.clone()])
    }

    /// Splits these pieces: `split(piece, keep)` calls `keep` with each part of the piece that is a new piece.
    pub(super) fn split(
        self,
        split: impl Fn(&str, &mut dyn FnMut(Range<usize>) -> Result<()>) -> Result<()>,
    ) -> Result<Pieces> {
        let mut parts = Vec::new();
        for whole in &self.parts {
            split(&self.text[whole.clone()], &mut |part| {
                push_part(&mut parts, whole.start + part.start..whole.start + part.end)
            })?;
        }
        Ok(Pieces { text: self.text, parts })
    }

    /// The pieces as `write` writes them into `text`.
    pub(super) fn rewrite(
        self,
        mut text: Growing<'_>,
        mut write: impl FnMut(&str, &mut Growing<'_>) -> Result<()>,
    ) -> Result<Pieces> {
        let mut parts = Vec::new();
        for piece in self.iter() {
            let start = text.len();
            write(piece, &mut text)?;
            push_part(&mut parts, start..text.len())?;
        }
        Ok(Pieces { text: text.finish(), parts })
    }
}

/// Appends a part that is not empty.
fn push_part(parts: &mut Vec<Range<usize>>, part: Range<usize>) -> Result<()> {
    if !part.is_empty() {
        push(parts, part)?;
    }
    Ok(())
}

/// Appends to a list that grows with a text.
#[inline]
pub(super) fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    if list.len() == list.capacity() {
        reserve(list, 1)?;
    }
    list.push(item);
    Ok(())
}

/// Makes room for `more` items in a list that grows with a text.
pub(super) fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<()> {
    Ok(memory::grow(list, more, WHAT)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::pre_tokenizer::PreTokenizer;
    use model_factory_format::tokenizer::{pre, steps};

    #[test]
    fn published_patterns_take_a_part_of_the_steps() {
        let text = "It's 12345 words,  naïve  日本語 text\r\n\n\tof (many) kinds!? \u{1f600}\u{301} 'LL ".repeat(100);
        for pre in pre::PRE_TOKENIZERS {
            let budget = Budget::new(text.len());
            let before = budget.steps.get();
            let steps = steps::PreTokenizer::byte_level(pre.patterns);
            PreTokenizer::new(Some(&steps)).unwrap().apply(&text, true, &budget).unwrap();
            let each = (before - budget.steps.get()) as f64 / text.len() as f64;
            println!("{}: {each:.1} steps a byte", pre.names);
            assert!(each < STEPS.0 as f64 / 4.0, "{}: {each}", pre.names);
        }
    }
}
