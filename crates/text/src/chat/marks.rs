//! Which characters of a prompt are the template's own.
//!
//! While a template is rendered, each character that it writes itself is replaced by a marked one: the character
//! of the private planes that is [`OWN`] after it. Texts of messages, tools and variables stay as they are. Operations that
//! move characters (joins, slices, loops, macros) also move their marks, and operations that make characters (escapes,
//! digits, other cases) never make marked ones. Code that inspects characters sees them without the marks, by
//! [`unmarked`], [`Bare`] and [`bare_char`]. One character is one character, so lengths and indices are the same.
//!
//! Private characters of messages are moved to [`KEPT`], two planes that Unicode has never assigned; a character there is in
//! no valid text and becomes U+FFFD.

use super::limits::Budget;
use super::values::{Passing, is_data, sequence};
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind};
use std::borrow::Cow;
use std::ops::Range;

/// The distance from a character of the first two planes to the marked one, which is the template's.
const OWN: u32 = 0xf_0000;
/// The start of the range to which private characters are moved, so that they are not marks.
const KEPT: u32 = 0xc_0000;
/// The end of both planes.
const KEPT_END: u32 = 0xe_0000;

fn character(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The character with its mark. Characters beyond the first two planes are never marked.
fn marked_char(bare: char) -> char {
    match u32::from(bare) {
        code @ 0..0x2_0000 => character(code + OWN),
        _ => bare,
    }
}

/// A character of a message, a tool or a variable.
fn given_char(given: char) -> char {
    match u32::from(given) {
        KEPT..KEPT_END => char::REPLACEMENT_CHARACTER,
        code @ OWN.. => character(code - OWN + KEPT),
        _ => given,
    }
}

/// The character as it is compared: without its mark.
pub(super) fn bare_char(marked: char) -> char {
    match u32::from(marked) {
        code @ OWN.. => character(code - OWN),
        _ => marked,
    }
}

/// The character as it is written in the result.
pub(super) fn plain_char(marked: char) -> char {
    match u32::from(marked) {
        code @ KEPT..KEPT_END => character(code - KEPT + OWN),
        _ => bare_char(marked),
    }
}

fn is_own(character: char) -> bool {
    u32::from(character) >= OWN
}

/// Whether no character of `text` is marked or could be taken for a mark: in UTF-8 these begin with 0xf3 or 0xf4.
fn is_plain(text: &str) -> bool {
    text.as_bytes().chunks(64).all(|chunk| chunk.iter().fold(0, |most, byte| *byte.max(&most)) < 0xf3)
}

fn changed(text: &str, change: fn(char) -> char) -> Cow<'_, str> {
    if is_plain(text) { text.into() } else { text.chars().map(change).collect::<String>().into() }
}

/// A text that the template writes itself.
pub(super) fn own(text: &str) -> String {
    marked(&given(text))
}

/// An unmarked text with marks added.
pub(super) fn marked(bare: &str) -> String {
    bare.chars().map(marked_char).collect()
}

/// A text of a message, a tool or a variable.
pub(super) fn given(text: &str) -> Cow<'_, str> {
    changed(text, given_char)
}

/// `text` as it is compared: without marks.
pub(super) fn bare(text: &str) -> Cow<'_, str> {
    changed(text, bare_char)
}

/// `text` as it is written in the result.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    changed(text, plain_char)
}

/// `text` as it is written in the result, and the bytes of it that are the template's.
pub(super) fn finished(text: &str) -> (String, Vec<Range<usize>>) {
    let (mut written, mut spans): (String, Vec<Range<usize>>) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let marked = rest.bytes().position(|byte| byte >= 0xf3).unwrap_or(rest.len());
        let (others, from) = rest.split_at(marked);
        written.push_str(others);
        let Some(next) = from.chars().next() else { break };
        let start = written.len();
        written.push(plain_char(next));
        rest = &from[next.len_utf8()..];
        match spans.last_mut() {
            _ if !is_own(next) => {}
            Some(last) if last.end == start => last.end = written.len(),
            _ => spans.push(start..written.len()),
        }
    }
    (written, spans)
}

/// The result of `change` on `text`; `change` must keep every character. Each character keeps its mark, unless one becomes
/// several: then no character is the template's.
pub(super) fn recased(text: &str, change: impl FnOnce(&str) -> String) -> String {
    let made = change(&bare(text));
    if is_plain(text) || made.chars().count() != text.chars().count() {
        return made;
    }
    let whose = |(made, old): (char, char)| if is_own(old) { marked_char(made) } else { made };
    made.chars().zip(text.chars()).map(whose).collect()
}

/// A text without marks for comparing, and the mapping back to its marks.
pub(super) struct Bare<'t> {
    text: Cow<'t, str>,
    marked: &'t str,
    /// Where each byte of `text` begins in `marked`; empty for a text without marks.
    places: Vec<usize>,
}

impl<'t> Bare<'t> {
    pub(super) fn new(marked: &'t str, budget: &Budget) -> Result<Bare<'t>, Error> {
        let (text, mut places) = (bare(marked), Vec::new());
        if let Cow::Owned(text) = &text {
            budget.spend_text(text.len().saturating_mul(size_of::<usize>()))?;
            for (place, character) in marked.char_indices() {
                places.extend(std::iter::repeat_n(place, bare_char(character).len_utf8()));
            }
            places.push(marked.len());
        }
        Ok(Bare { text, marked, places })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The characters of `part`, which is a part of [`text`](Self::text), with their marks.
    pub(super) fn back(&self, part: &str) -> &'t str {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let place = |at: usize| if self.places.is_empty() { at } else { self.places.get(at).copied().unwrap_or(at) };
        if part.is_empty() { "" } else { self.marked.get(place(start)..place(start + part.len())).unwrap_or_default() }
    }
}

/// `value` as it is compared: data without marks. Keys of maps never have any.
pub(super) fn unmarked(value: &Value) -> Value {
    rebuilt(value).unwrap_or_else(|| value.clone())
}

/// `value` without its marks; `None` if it has none.
fn rebuilt(value: &Value) -> Option<Value> {
    if let Some(text) = value.as_str() {
        return (!is_plain(text)).then(|| Value::from(bare(text)));
    }
    let (object, passing) = (value.as_object()?, value.downcast_object_ref::<Passing>());
    let mut any = false;
    let mut plain = |item: Value| rebuilt(&item).inspect(|_| any = true).unwrap_or(item);
    let made = match value.kind() {
        ValueKind::Map if is_data(value) || value.is_kwargs() => {
            let pairs = object.try_iter_pairs().into_iter().flatten().map(|(key, item)| (key, plain(item)));
            if value.is_kwargs() {
                let named = pairs.map(|(key, item)| (key.as_str().unwrap_or_default().to_owned(), item));
                Value::from(named.collect::<Kwargs>())
            } else {
                Value::from_pairs(pairs)
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = object.try_iter().into_iter().flatten().map(plain).collect();
            match passing {
                Some(passing) => Value::from_object(Passing { items, kind: passing.kind }),
                None if value.kind() == ValueKind::Seq => sequence(items, value),
                None => return None,
            }
        }
        _ => return None,
    };
    any.then_some(made)
}
