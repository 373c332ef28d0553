//! Added tokens: found in a text as a whole, before the rest is normalized or behind that.

use super::error::Encoded;
use super::normalizer::Normalizer;
use super::text::{Budget, push};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use model_diagnostics::tokenizer::AddedToken;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Bytes that the texts of all added tokens may have together, those that a normalizer changes in both forms. A byte takes
/// 35 to 60 in the automaton that finds them, and a microsecond to build it; published vocabularies have up to 6,500 added
/// tokens of 100 kB.
const ADDED_BYTES: usize = 4 << 20;

/// The added tokens of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    ids: HashMap<String, u32>,
    texts: HashMap<u32, String>,
    longest: usize,
    /// Those found in a text as it is.
    plain: AddedMatcher,
    /// Those found in a normalized text, by their normalized texts.
    normalized: AddedMatcher,
}

/// A part of a text, and the added token that it is.
pub(super) type AddedSpan = (Range<usize>, Option<u32>);

/// What finds tokens.
#[derive(Debug, Default)]
struct AddedMatcher {
    automaton: Option<AhoCorasick>,
    /// Those of the patterns.
    tokens: Vec<Flags>,
}

/// What is found with a token.
#[derive(Clone, Copy, Debug)]
struct Flags {
    id: u32,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

impl AddedTokens {
    /// Compiles `tokens`, of which each one's text is not empty.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn new(tokens: Vec<AddedToken>, normalizer: &Normalizer) -> Result<AddedTokens, String> {
        // Of two entries of one token the later counts, as in the tokenizers library.
        let tokens: BTreeMap<u32, AddedToken> = tokens.into_iter().map(|token| (token.id, token)).collect();
        let (mut plain, mut normalized, mut forms) = (Vec::new(), Vec::new(), HashMap::new());
        let (mut added, mut bytes) = (AddedTokens::default(), 0);
        for AddedToken { id, content, single_word, lstrip, rstrip, normalized: is_normalized, .. } in
            tokens.into_values()
        {
            let flags = Flags { id, single_word, lstrip, rstrip };
            bytes += content.len();
            if is_normalized {
                let text = normalizer.apply(&content, &Budget::of(content.len()));
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
                normalized.push((text, flags));
            } else {
                plain.push((content.clone(), flags));
            }
            if bytes > ADDED_BYTES {
                return Err(format!("its added tokens have over {ADDED_BYTES} bytes of text, expected less"));
            }
            added.texts.insert(id, content.clone());
            added.ids.insert(content, id);
        }
        let found = plain.iter().chain(&normalized);
        added.longest = found.map(|(text, _): &(String, Flags)| text.len()).max().unwrap_or(0);
        added.plain = AddedMatcher::new(plain)?;
        added.normalized = AddedMatcher::new(normalized)?;
        Ok(added)
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// Whether a token takes white space beside it along.
    pub(super) fn strips(&self) -> bool {
        self.plain.tokens.iter().chain(&self.normalized.tokens).any(|token| token.lstrip || token.rstrip)
    }

    /// Bytes of the longest text that is found.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The tokens in `text` as it is, and what lies between them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn in_text(&self, text: &str) -> Encoded<Vec<AddedSpan>> {
        self.plain.segments(text)
    }

    /// The tokens in `text`, which is normalized, and what lies between them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn in_normalized(&self, text: &str) -> Encoded<Vec<AddedSpan>> {
        self.normalized.segments(text)
    }
}

impl AddedMatcher {
    fn new(tokens: Vec<(String, Flags)>) -> Result<AddedMatcher, String> {
        let (texts, tokens): (Vec<String>, Vec<Flags>) = tokens.into_iter().unzip();
        if texts.is_empty() {
            return Ok(AddedMatcher::default());
        }
        // The form that the crate takes for few patterns is built in the square of their length.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(&texts);
        Ok(AddedMatcher { automaton: Some(automaton.map_err(|error| format!("its added tokens: {error}"))?), tokens })
    }

    fn segments(&self, text: &str) -> Encoded<Vec<AddedSpan>> {
        let (mut segments, mut end) = (Vec::new(), 0);
        for hit in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            let Some(token) = self.tokens.get(hit.pattern().as_usize()) else { continue };
            let (before, after) = (&text[..hit.start()], &text[hit.end()..]);
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            // White space that the token before took is not taken again.
            let between = text.get(end..hit.start()).unwrap_or_default();
            let start = if token.lstrip { end + between.trim_end().len() } else { hit.start() };
            let stop = match token.rstrip {
                true if hit.end() <= end => end,
                true => text.len() - after.trim_start().len(),
                false => hit.end(),
            };
            if end < start {
                push(&mut segments, (end..start, None))?;
            }
            // A token of white space may have been taken whole.
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

/// A character of a word, as the regex crate's `\w` and so the tokenizers library has it.
fn is_word(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}
