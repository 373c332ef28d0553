//! Added tokens: matched in a text as a whole, before or after the rest is normalized.

use super::finder::Finder;
use super::normalizer::Normalizer;
use super::text::{Budget, push};
use crate::error::Result;
use model_factory_format::tokenizer::AddedToken;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use unicode_normalization_alignments::char::is_combining_mark;

/// The most bytes of the texts of all added tokens; those that a normalizer changes count in both forms. A byte takes
/// up to 13 bytes in the automaton that finds them; published vocabularies have up to 6,500 added tokens of 100 kB.
const ADDED_BYTES: usize = 4 << 20;

/// The added tokens of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    ids: HashMap<String, u32>,
    texts: HashMap<u32, String>,
    /// The length in bytes of the longest text that is matched.
    pub(super) longest: usize,
    /// Matchers of tokens that are matched in a text as it is.
    pub(super) plain: AddedMatchers,
    /// Matchers of tokens that are matched in a normalized text, by their normalized texts.
    pub(super) normalized: AddedMatchers,
    /// Ids that untrusted text never becomes.
    pub(super) guarded: IdSet,
}

/// Ids that are not text: special tokens, and tokens for marks such as `<think>`. Untrusted text never becomes one of them.
#[derive(Debug, Default)]
pub(super) struct IdSet(Vec<bool>);

impl IdSet {
    pub(super) const NONE: IdSet = IdSet(Vec::new());

    #[inline]
    pub(super) fn has(&self, id: u32) -> bool {
        self.0.get(id as usize) == Some(&true)
    }

    fn insert(&mut self, id: u32) {
        let len = self.0.len().max(id as usize + 1);
        self.0.resize(len, false);
        self.0[id as usize] = true;
    }
}

/// Whether a token is a mark and not text: all special tokens, and others with a symbol besides letters, digits and white
/// space. Vocabularies also have letters (`ö`), runs of spaces and line breaks as added tokens, which are treated like pieces.
fn is_mark(token: &AddedToken) -> bool {
    token.special || has_signs(&token.content)
}

fn has_signs(text: &str) -> bool {
    // Combining marks, joiners, apostrophes and hyphens are parts of words.
    let in_word = |character: char| is_combining_mark(character) || "▁\u{200c}\u{200d}'’-".contains(character);
    let sign = |character: char| !character.is_alphanumeric() && !character.is_whitespace() && !in_word(character);
    text.chars().nth(1).is_some() && text.chars().any(sign)
}

/// A part of a text, and its added token if it is one.
pub(super) type AddedSpan = (Range<usize>, Option<u32>);

/// The matchers: marks are matched only where they are allowed, and texts everywhere.
#[derive(Debug, Default)]
pub(super) struct AddedMatchers {
    marks: AddedMatcher,
    texts: AddedMatcher,
}

#[derive(Debug, Default)]
struct AddedMatcher {
    finder: Option<Finder>,
    /// The tokens of its texts.
    tokens: Vec<AddedToken>,
}

impl AddedTokens {
    /// Compiles `tokens`, none of which has an empty text.
    pub(super) fn new(tokens: Vec<AddedToken>, normalizer: &Normalizer) -> Result<AddedTokens, String> {
        // If a token has two entries the later one counts, as in the tokenizers library.
        let tokens: BTreeMap<u32, AddedToken> = tokens.into_iter().map(|token| (token.id, token)).collect();
        let (mut plain, mut normalized, mut forms) = (Vec::new(), Vec::new(), HashMap::new());
        let (mut added, mut bytes) = (AddedTokens::default(), 0);
        for token in tokens.into_values() {
            let (id, content) = (token.id, token.content.clone());
            if is_mark(&token) {
                added.guarded.insert(id);
            }
            bytes += content.len();
            if token.normalized {
                let text = normalizer.apply(&content, &Budget::new(content.len()));
                let text = text.map_err(|error| format!("added token {content:?}: {error}"))?.into_owned();
                if text.is_empty() {
                    return Err(format!("added token {content:?} is nothing once it is normalized"));
                }
                if let Some(other) = forms.insert(text.clone(), content.clone()) {
                    return Err(format!(
                        "added tokens {other:?} and {content:?} are the same once they are normalized"
                    ));
                }
                bytes += if text == content { 0 } else { text.len() };
                normalized.push((text, token));
            } else {
                plain.push((content.clone(), token));
            }
            if bytes > ADDED_BYTES {
                return Err(format!("its added tokens have over {ADDED_BYTES} bytes of text, expected less"));
            }
            added.texts.insert(id, content.clone());
            added.ids.insert(content, id);
        }
        let found = plain.iter().chain(&normalized);
        added.longest = found.map(|(text, _): &(String, AddedToken)| text.len()).max().unwrap_or(0);
        added.plain = AddedMatchers::new(plain);
        added.normalized = AddedMatchers::new(normalized);
        Ok(added)
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// Whether a token also takes white space next to it.
    pub(super) fn strips(&self) -> bool {
        let all = [&self.plain, &self.normalized].into_iter().flat_map(|found| [&found.marks, &found.texts]);
        all.flat_map(|matcher| &matcher.tokens).any(|token| token.lstrip || token.rstrip)
    }

    /// Guards the token `id` of the vocabulary, which ends or begins a text, if it is not a word.
    pub(super) fn guard(&mut self, id: u32, text: &str) {
        if has_signs(text) {
            self.guarded.insert(id);
        }
    }
}

/// A match of a token.
#[derive(Clone, Copy)]
struct Hit<'m> {
    start: usize,
    end: usize,
    token: &'m AddedToken,
}

/// The matches of a matcher in the ranges of a text, one after another.
struct Hits<'m> {
    matcher: &'m AddedMatcher,
    ranges: &'m [Range<usize>],
    next: Option<Hit<'m>>,
}

impl<'m> Hits<'m> {
    /// The leftmost match at `from` or after it, and of those the longest. `from` never decreases.
    fn next(&mut self, text: &str, from: usize) -> Option<Hit<'m>> {
        if self.next.is_some_and(|hit| hit.start >= from) {
            return self.next;
        }
        let finder = self.matcher.finder.as_ref()?;
        while let Some(range) = self.ranges.first() {
            let start = range.start.max(from);
            let hit = if start < range.end { finder.find(text.as_bytes(), start..range.end) } else { None };
            if let Some((place, which)) = hit
                && let Some(token) = self.matcher.tokens.get(which)
            {
                self.next = Some(Hit { start: place.start, end: place.end, token });
                return self.next;
            }
            self.ranges = &self.ranges[1..];
        }
        self.next = None;
        None
    }
}

impl AddedMatchers {
    fn new(tokens: Vec<(String, AddedToken)>) -> AddedMatchers {
        let (marks, texts) = tokens.into_iter().partition(|(_, token)| is_mark(token));
        AddedMatchers { marks: AddedMatcher::new(marks), texts: AddedMatcher::new(texts) }
    }

    /// Whether there are marks to match.
    pub(super) fn has_marks(&self) -> bool {
        self.marks.finder.is_some()
    }

    /// The tokens in `text`, and the parts between them. Marks lie within one of the ranges `own`, which are in ascending order
    /// and do not touch. The leftmost, then the longest match counts; if it must be a whole word and is not, none that it covers.
    pub(super) fn segments(&self, text: &str, own: &[Range<usize>]) -> Result<Vec<AddedSpan>> {
        let (mut segments, mut end, mut from) = (Vec::new(), 0, 0);
        let whole = 0..text.len();
        let mut marks = Hits { matcher: &self.marks, ranges: own, next: None };
        let mut texts = Hits { matcher: &self.texts, ranges: std::slice::from_ref(&whole), next: None };
        // The match that begins first, and of two that begin alike the longer one.
        let mut next = |from| {
            let hits = [marks.next(text, from), texts.next(text, from)].into_iter().flatten();
            hits.min_by_key(|hit| (hit.start, Reverse(hit.end)))
        };
        while let Some(Hit { start, end: stop, token }) = next(from) {
            from = stop;
            let (before, after) = (&text[..start], &text[stop..]);
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            // White space that the previous token took is not taken again.
            let between = text.get(end..start).unwrap_or_default();
            let start = if token.lstrip { end + between.trim_end().len() } else { start };
            let stop = match token.rstrip {
                true if stop <= end => end,
                true => text.len() - after.trim_start().len(),
                false => stop,
            };
            if end < start {
                push(&mut segments, (end..start, None))?;
            }
            // The previous token may have taken all of a token of white space.
            if start < stop {
                push(&mut segments, (start..stop, Some(token.id)))?;
                end = stop;
            }
        }
        if end < text.len() {
            push(&mut segments, (end..text.len(), None))?;
        }
        Ok(segments)
    }
}

impl AddedMatcher {
    fn new(tokens: Vec<(String, AddedToken)>) -> AddedMatcher {
        let (texts, tokens): (Vec<String>, Vec<AddedToken>) = tokens.into_iter().unzip();
        let finder = (!texts.is_empty()).then(|| Finder::new(&texts));
        AddedMatcher { finder, tokens }
    }
}

/// A character of a word: `\w` of the regex crate, and so of the tokenizers library.
pub(super) fn is_word(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}
