//! Text -> values in the formats of tool calls: JSON, Python's literals, and Gemma 4's.

use super::arguments::Arguments;
use serde_json::{Map, Number, Value};

/// The deepest nesting of lists and maps.
const NESTED: usize = 64;

/// Marks the letters of a special token in the body of a call, so that ordinary letters cannot spell it.
pub const SPECIAL: char = '\u{10ffff}';

/// The quote around Gemma 4's strings: the token, or its letters where the vocabulary has no such token.
const GEMMA_TOKEN: &str = "\u{10ffff}<|\"|>";
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

/// A text that is read from its beginning. Every method that does not find what it looks for returns `None`, and then
/// the remaining text is meaningless.
#[derive(Clone, Debug)]
pub(super) struct Literals<'a> {
    rest: &'a str,
    nested: usize,
    /// The quote around Gemma 4's strings.
    quote: &'static str,
}

/// The value that `text` is, apart from blanks around it.
pub(super) fn value(text: &str) -> Option<Value> {
    let mut literals = Literals::new(text);
    let value = literals.value()?;
    literals.is_done().then_some(value)
}

impl<'a> Literals<'a> {
    pub(super) fn new(text: &'a str) -> Literals<'a> {
        let quote = if text.contains(GEMMA_TOKEN) { GEMMA_TOKEN } else { GEMMA_QUOTE };
        Literals { rest: text, nested: 0, quote }
    }

    /// Whether only blanks are left.
    pub(super) fn is_done(&self) -> bool {
        self.rest.trim_start().is_empty()
    }

    /// Takes `what` and blanks before it.
    pub(super) fn take(&mut self, what: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(what);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the text up to and including `end`, and returns what is before it: a name, without quotes, brackets, commas and marks.
    pub(super) fn name(&mut self, end: &str) -> Option<&'a str> {
        let (name, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        let name = name.trim();
        (!name.is_empty() && !name.contains(|c: char| c.is_control() || "\"'()[]{}<>,".contains(c))).then_some(name)
    }

    /// Reads `name(key=value, ..)` of Python.
    pub(super) fn call(&mut self) -> Option<(&'a str, Arguments)> {
        Some((self.name("(")?, self.arguments("=", ")")?))
    }

    /// Reads arguments up to `close`, with `between` separating names and values. A comma may follow the last one.
    pub(super) fn arguments(&mut self, between: &str, close: &str) -> Option<Arguments> {
        let mut arguments = Arguments::default();
        self.pairs(between, close, &mut |key, value, text| arguments.insert(key, value, text))?;
        Some(arguments)
    }

    /// Passes keys, values and their texts up to `close` to `give`, with `between` separating each two; a last comma is allowed.
    fn pairs(&mut self, between: &str, close: &str, give: &mut dyn FnMut(String, Value, &str)) -> Option<()> {
        while !self.take(close) {
            let key = match self.string() {
                Some(key) => self.take(between).then_some(key)?,
                None => self.name(between)?.to_owned(),
            };
            let from = self.rest;
            let value = self.value()?;
            give(key, value, &from[..from.len() - self.rest.len()]);
            if !self.take(",") {
                return self.take(close).then_some(());
            }
        }
        Some(())
    }

    /// The next value.
    pub(super) fn value(&mut self) -> Option<Value> {
        if let Some(text) = self.string() {
            return Some(Value::String(text));
        }
        if self.take("{") {
            return self.within(|literals| {
                let (mut pairs, mut object) = (literals.clone(), Map::new());
                if pairs.pairs(":", "}", &mut |key, value, _| drop(object.insert(key, value))).is_some() {
                    *literals = pairs;
                    return Some(Value::Object(object));
                }
                // This is a Python set.
                literals.items("}").map(Value::Array)
            });
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if self.take(open) {
                return self.within(|literals| literals.items(close).map(Value::Array));
            }
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        match word {
            "true" | "True" => Some(Value::Bool(true)),
            "false" | "False" => Some(Value::Bool(false)),
            "null" | "None" => Some(Value::Null),
            _ => number(word).map(Value::Number),
        }
    }

    fn items(&mut self, close: &str) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value()?);
            if !self.take(",") {
                return self.take(close).then_some(items);
            }
        }
        Some(items)
    }

    fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.nested += 1;
        let read = if self.nested > NESTED { None } else { read(self) };
        self.nested -= 1;
        read
    }

    /// Reads a string in quotes; takes nothing if there is none.
    fn string(&mut self) -> Option<String> {
        let rest = self.rest.trim_start();
        if let Some(rest) = rest.strip_prefix(self.quote) {
            let (text, rest) = rest.split_once(self.quote)?;
            self.rest = rest;
            return Some(text.replace(SPECIAL, ""));
        }
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let mut text = String::new();
        let mut characters = rest[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.rest = &rest[1 + at + 1..];
                    return Some(text);
                }
                '\\' => {
                    let escape = characters.next()?.1;
                    match escape {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        'r' => text.push('\r'),
                        'b' => text.push('\u{8}'),
                        'f' => text.push('\u{c}'),
                        '\n' => {}
                        '"' | '\'' | '\\' | '/' => text.push(escape),
                        'x' => text.push(char::from_u32(hex(&mut characters, 2)?)?),
                        'U' => text.push(char::from_u32(hex(&mut characters, 8)?)?),
                        'u' => {
                            let unit = hex(&mut characters, 4)?;
                            text.push(match unit {
                                0xd800..0xdc00 => {
                                    (characters.next()?.1 == '\\' && characters.next()?.1 == 'u').then_some(())?;
                                    let low =
                                        hex(&mut characters, 4)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                                    char::from_u32(0x10000 + ((unit - 0xd800) << 10) + low)?
                                }
                                _ => char::from_u32(unit)?,
                            });
                        }
                        // Python keeps unknown escapes.
                        _ => text.extend(['\\', escape]),
                    }
                }
                _ => text.push(character),
            }
        }
        None
    }
}

fn hex(characters: &mut std::str::CharIndices<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0_u32, |number, _| Some(number << 4 | characters.next()?.1.to_digit(16)?))
}

/// Parses a JSON number, or a Python number with `_`, `+`, or no digits before or after its point.
fn number(word: &str) -> Option<Number> {
    if let Ok(number) = word.parse::<Number>() {
        return Some(number);
    }
    let word = word.replace('_', "");
    if !word.bytes().any(|byte| byte.is_ascii_digit())
        || word.bytes().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E'))
    {
        return None;
    }
    match word.strip_prefix('+').unwrap_or(&word).parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => Number::from_f64(word.parse().ok()?),
    }
}
