//! When a generation ends.

use crate::error::{Error, Result};
use model_factory_format::tokenizer::TokenizerSpec;
use std::collections::BTreeSet;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model chose this stop token.
    Stop(u32),
    /// The text contained the stop string of `GenerateOptions::stop` with this index.
    StopString(usize),
    /// The answer is complete, and its grammar allows nothing after it
    /// (`GenerateOptions::grammar`).
    Grammar,
    /// The answer has called a tool, and may call only one (`GenerateOptions::parallel_tool_calls`).
    ToolCall,
    /// The generation reached `max_tokens`.
    Length,
    /// The context is full.
    Context,
    /// The `CancellationToken` of the options was cancelled.
    Cancelled,
}

/// `stop` for a stop token, a stop string, the end of a grammar or of the only call, `length`, `context` or `cancelled`, as in the OpenAI API.
impl std::fmt::Display for FinishReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            FinishReason::Stop(_) | FinishReason::StopString(_) | FinishReason::Grammar | FinishReason::ToolCall => {
                "stop"
            }
            FinishReason::Length => "length",
            FinishReason::Context => "context",
            FinishReason::Cancelled => "cancelled",
        })
    }
}

/// The ids that end a generation: a model has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTokens(BTreeSet<u32>);

impl StopTokens {
    /// Whether `id` ends a generation.
    pub fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl Extend<u32> for StopTokens {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.0.extend(ids);
    }
}

impl From<&TokenizerSpec> for StopTokens {
    fn from(spec: &TokenizerSpec) -> Self {
        spec.stop_ids.keys().copied().collect()
    }
}

impl FromIterator<u32> for StopTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        StopTokens(ids.into_iter().collect())
    }
}

/// Searches for texts in a text that comes in pieces, and holds back what may be the beginning of one.
///
/// The text ends with the first byte that completes a stop string. If several are complete there, the longest is removed,
/// however the text is divided into pieces.
#[derive(Debug)]
pub struct StopStrings {
    matchers: Vec<StopMatcher>,
    /// The held-back end of the text so far: as long as the longest beginning of a stop string that the text ends with.
    held: String,
    /// Whether a stop string is part of the text that it ends.
    is_included: bool,
}

impl StopStrings {
    /// # Errors
    /// `EmptyStopString` for an empty one: every text contains it.
    pub fn new(texts: &[String]) -> Result<StopStrings> {
        if let Some(index) = texts.iter().position(String::is_empty) {
            return Err(Error::EmptyStopString { index });
        }
        Ok(StopStrings {
            matchers: texts.iter().map(|text| StopMatcher::new(text)).collect(),
            held: String::new(),
            is_included: false,
        })
    }

    /// Sets whether a stop string is part of the text that it ends.
    #[must_use]
    pub fn included(mut self, is_included: bool) -> StopStrings {
        self.is_included = is_included;
        self
    }

    /// Takes the next `piece` and appends to `text` what can no longer be part of a stop string. Returns the index of the
    /// stop string that ends the text, if one does: `text` then has everything before it, or with it if it is
    /// [`included`](Self::included), and nothing follows.
    pub fn push(&mut self, piece: &str, text: &mut String) -> Option<usize> {
        let begun = self.held.len();
        self.held.push_str(piece);
        for (end, byte) in (begun + 1..).zip(piece.bytes()) {
            let mut complete: Option<(usize, usize)> = None;
            for (index, matcher) in self.matchers.iter_mut().enumerate() {
                if matcher.step(byte) && complete.is_none_or(|(len, _)| len < matcher.matched) {
                    complete = Some((matcher.matched, index));
                }
            }
            if let Some((len, index)) = complete {
                text.push_str(&self.held[..if self.is_included { end } else { end - len }]);
                self.held.clear();
                return Some(index);
            }
        }
        // A stop string begins with a whole character, so the held-back beginning of one does too.
        let open = self.matchers.iter().map(|matcher| matcher.matched).max().unwrap_or(0);
        text.extend(self.held.drain(..self.held.len() - open));
        None
    }

    /// Appends what was held back: the text is over, and a new one begins.
    pub fn finish(&mut self, text: &mut String) {
        self.matchers.iter_mut().for_each(|matcher| matcher.matched = 0);
        text.push_str(&std::mem::take(&mut self.held));
    }
}

/// One pattern in a stream of bytes, by Knuth, Morris and Pratt: each byte is compared once.
#[derive(Debug)]
pub(super) struct StopMatcher {
    pattern: Vec<u8>,
    /// For every prefix of the pattern, by its length less one: the longest shorter prefix that it ends with.
    shorter: Vec<usize>,
    /// The length of the longest prefix of the pattern that the bytes so far end with.
    pub(super) matched: usize,
}

impl StopMatcher {
    pub(super) fn new(text: &str) -> StopMatcher {
        let mut matcher = StopMatcher { pattern: text.into(), shorter: vec![0], matched: 0 };
        // The pattern is matched against itself, shifted by one byte.
        for byte in text.bytes().skip(1) {
            matcher.step(byte);
            matcher.shorter.push(matcher.matched);
        }
        matcher.matched = 0;
        matcher
    }

    /// Takes the next byte, and returns whether it completes the pattern.
    pub(super) fn step(&mut self, byte: u8) -> bool {
        while self.pattern.get(self.matched) != Some(&byte) {
            if self.matched == 0 {
                return false;
            }
            self.matched = self.shorter[self.matched - 1];
        }
        self.matched += 1;
        self.matched == self.pattern.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text and the stop string found when `pieces` come one after another.
    fn stopped(texts: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        let mut strings = StopStrings::new(&texts).unwrap();
        let mut text = String::new();
        for piece in pieces {
            if let Some(index) = strings.push(piece, &mut text) {
                return (text, Some(index));
            }
        }
        strings.finish(&mut text);
        (text, None)
    }

    #[test]
    fn ends_before_the_first_stop_string() {
        /// The stop strings and the pieces, then the expected text and the index of the one that ended it.
        type Case<'t> = (&'t [&'t str], &'t [&'t str], &'t str, Option<usize>);
        let table: [Case; 12] = [
            (&["END"], &["some text END more"], "some text ", Some(0)),
            (&["END"], &["some text E", "N", "D more"], "some text ", Some(0)),
            (&["END"], &["some text E", "N"], "some text EN", None),
            (&["END"], &["EN", "END"], "EN", Some(0)),
            (&["a", "END"], &["xEND"], "x", Some(1)),
            (&["xEND", "END"], &["xE", "ND"], "", Some(0)),
            (&["END", "END"], &["END"], "", Some(0)),
            // The first byte that completes a stop string decides, whichever begins earlier.
            (&["abcde", "bc"], &["abcde"], "a", Some(1)),
            (&["aab"], &["a", "a", "a", "b"], "a", Some(0)),
            (&["é€😀"], &["xé€", "é€", "😀"], "xé€", Some(0)),
            (&["\n\n"], &["a\n", "b\n", "\nc"], "a\nb", Some(0)),
            (&[], &["a", "b"], "ab", None),
        ];
        for (texts, pieces, text, index) in table {
            assert_eq!(stopped(texts, pieces), (text.to_string(), index), "{texts:?} {pieces:?}");
        }
    }

    #[test]
    fn holds_back_no_more_than_may_begin_a_stop_string() {
        let mut strings = StopStrings::new(&["</s>".into(), "<end>".into()]).unwrap();
        let mut piece = |text: &str| {
            let mut out = String::new();
            assert_eq!(strings.push(text, &mut out), None);
            out
        };
        assert_eq!(["a<", "/", "b", "<en", "<", "e"].map(&mut piece), ["a", "", "</b", "", "<en", ""]);
        let mut rest = String::new();
        strings.finish(&mut rest);
        assert_eq!(rest, "<e");
    }

    #[test]
    fn every_split_of_a_multi_byte_stop_text_ends_alike() {
        let (whole, stop) = ("Ende: déjà 完了😀! und mehr", "à 完了😀!");
        let cuts: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second >= first) {
                let pieces = [&whole[..*first], &whole[*first..*second], &whole[*second..]];
                assert_eq!(stopped(&[stop], &pieces), ("Ende: déj".into(), Some(0)), "{pieces:?}");
            }
        }
    }

    #[test]
    fn refuses_an_empty_stop_string() {
        let error = StopStrings::new(&["a".into(), String::new()]).err();
        assert!(matches!(error, Some(Error::EmptyStopString { index: 1 })));
    }

    /// The expected text up to the first stop string: checks for every prefix whether it ends with one.
    fn oracle(texts: &[String], text: &str) -> (String, Option<usize>) {
        for end in (1..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let ending = (0..texts.len()).filter(|index| text[..end].ends_with(&texts[*index]));
            if let Some(index) = ending.rev().max_by_key(|index| texts[*index].len()) {
                return (text[..end - texts[index].len()].into(), Some(index));
            }
        }
        (text.into(), None)
    }

    /// A few characters of one to four bytes that share bytes, so that beginnings of stop strings are common.
    fn words(len: std::ops::Range<usize>) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['a', 'b', 'é', 'è', '€', '😀', '😁']), len)
            .prop_map(|letters| letters.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_split_ends_as_the_whole_does(
            texts in prop::collection::vec(words(1..5), 0..4),
            pieces in prop::collection::vec(words(0..4), 0..12),
        ) {
            let references: Vec<&str> = texts.iter().map(String::as_str).collect();
            let split: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(stopped(&references, &split), oracle(&texts, &pieces.concat()));
            if let [text] = references.as_slice() {
                // With one stop string, the standard library finds the same.
                let whole = pieces.concat();
                prop_assert_eq!(stopped(&references, &split).0, whole.split(text).next().unwrap_or_default());
            }
        }
    }
}
