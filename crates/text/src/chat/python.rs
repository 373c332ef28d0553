//! Values as Python writes them: `str`, `repr`, and what Python regards as white space.

use super::json::{self, Style};
use super::limits::{Budget, Exceeded};
use super::marks::{self, Bare, bare_char, plain_char};
use super::values::{ensure, invalid};
use minijinja::Error;
use minijinja::formatting::FormatStyle;
use minijinja::value::{Value, ValueKind};
use std::collections::HashSet;
use std::fmt::Write as _;

/// A text that is being written; its cost is counted as it grows.
pub(super) struct Text<'b> {
    written: String,
    budget: &'b Budget,
}

impl<'b> Text<'b> {
    pub(super) fn new(budget: &'b Budget) -> Text<'b> {
        Text { written: String::new(), budget }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        self.budget.spend_text(text.len())?;
        self.written.push_str(text);
        Ok(())
    }

    pub(super) fn into_string(self) -> String {
        self.written
    }

    /// Writes `str(value)`.
    pub(super) fn push_value(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.push(text),
            None if value.is_undefined() => Ok(()),
            None => json::write(value, &Style::repr(), 0, self),
        }
    }
}

pub(super) fn text(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut text = Text::new(budget);
    text.push_value(value)?;
    Ok(text.into_string())
}

/// The shortest digits that read back as `float`, as in Python's `repr`: with an exponent below -4 and from 16 up, which has a
/// sign and at least two digits.
pub(super) fn float(float: f64) -> String {
    let scientific = format!("{float:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..16).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => format!("{float:?}"),
    }
}

/// A string as in Python's `repr`: in single quotes unless it contains only these, with unprintable characters as escapes.
pub(super) fn quoted(text: &str) -> String {
    let has = |wanted: char| text.chars().any(|character| bare_char(character) == wanted);
    let quote = if has('\'') && !has('"') { '"' } else { '\'' };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for character in text.chars() {
        // Writing to a string does not fail.
        let _ = match plain_char(character) {
            '\\' => write!(quoted, "\\\\"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            plain if plain == quote => write!(quoted, "\\{character}"),
            plain if printable(plain) => write!(quoted, "{character}"),
            plain => match u32::from(plain) {
                code @ 0..=0xff => write!(quoted, "\\x{code:02x}"),
                code @ 0x100..=0xffff => write!(quoted, "\\u{code:04x}"),
                code => write!(quoted, "\\U{code:08x}"),
            },
        };
    }
    quoted.push(quote);
    quoted
}

/// Python's `str.isprintable` for one character.
fn printable(character: char) -> bool {
    // The character is checked after another one, as a combining mark is printable there.
    character.is_ascii_graphic()
        || character == ' '
        || (!character.is_ascii() && ['a', character].iter().collect::<String>().escape_debug().count() == 2)
}

/// Python's `str.isspace` for one character: Rust's white space, and the separators of ASCII.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Python's `str.splitlines`, with the line ends if `ends`.
pub(super) fn lines(text: &str, ends: bool) -> Vec<&str> {
    let ends_line = |character: char| matches!(bare_char(character), '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let at = rest.find(ends_line).unwrap_or(rest.len());
        let after = &rest[at..];
        let mut ends_of = after.chars();
        let (first, second) = (ends_of.next(), ends_of.next());
        let pair = first.map(bare_char) == Some('\r') && second.map(bare_char) == Some('\n');
        let end = first.into_iter().chain(second.filter(|_| pair)).map(char::len_utf8).sum::<usize>();
        lines.push(&rest[..at + if ends { end } else { 0 }]);
        rest = &after[end..];
    }
    lines
}

/// Replaces the first `count` of `old` in `text`, or all without a count, as `str.replace` does.
pub(super) fn replaced(text: &str, old: &str, new: &str, count: Option<i64>, budget: &Budget) -> Result<String, Error> {
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let (bare, mut written) = (Bare::new(text, budget)?, Text::new(budget));
    let (text, mut from) = (bare.text(), 0);
    for (at, found) in text.match_indices(&*marks::bare(old)).take(most) {
        written.push(bare.back(&text[from..at]))?;
        written.push(new)?;
        from = at + found.len();
    }
    written.push(bare.back(&text[from..]))?;
    Ok(written.into_string())
}

/// Python's `joint.join(items)` for texts; its cost is counted as it grows.
pub(super) fn joined(items: &[Value], joint: &str, budget: &Budget) -> Result<String, Error> {
    let mut written = Text::new(budget);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            written.push(joint)?;
        }
        written.push_value(item)?;
    }
    Ok(written.into_string())
}

/// The widest margin or field: wider than any text needs, and too narrow to fill memory with.
const WIDTH: usize = 9999;

/// The margin before each level of an indented text: `width` itself if it is a text, or that many spaces.
pub(super) fn margin(width: &Value) -> Result<String, Error> {
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let width = usize::try_from(i64::try_from(width.clone())?).unwrap_or(0);
    Exceeded::check("spaces in a margin", width, WIDTH)?;
    Ok(" ".repeat(width))
}

/// Python's `str.strip`, `lstrip` and `rstrip` of `characters`, or of white space.
pub(super) fn stripped<'t>(mut text: &'t str, characters: Option<&str>, start: bool, end: bool) -> &'t str {
    let of: Option<HashSet<char>> = characters.map(|characters| characters.chars().map(bare_char).collect());
    let strip = |character: char| {
        let character = bare_char(character);
        of.as_ref().map_or_else(|| is_space(character), |of| of.contains(&character))
    };
    if start {
        text = text.trim_start_matches(strip);
    }
    if end { text.trim_end_matches(strip) } else { text }
}

/// `str.capitalize`.
pub(super) fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(title).unwrap_or_default();
    first + &characters.as_str().to_lowercase()
}

/// Python's `str.title`: a word is a run of letters that have cases.
pub(super) fn titled(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut within = false;
    for character in text.chars() {
        // Digraphs have only their first letter large in title case, so they are neither upper nor lower case.
        let is_title = || !character.to_lowercase().eq([character]);
        let cased = character.is_lowercase() || character.is_uppercase() || is_title();
        if cased && !within {
            titled.push_str(&title(character));
        } else {
            titled.extend(character.to_lowercase());
        }
        within = cased;
    }
    titled
}

/// The character as the first letter of a word.
fn title(character: char) -> String {
    // Digraphs, of which only the first letter is large, and Greek vowels with an iota below or after them.
    let code = u32::from(character);
    let pair = match code {
        0x1c4..=0x1c6 => Some(0x1c5),
        0x1c7..=0x1c9 => Some(0x1c8),
        0x1ca..=0x1cc => Some(0x1cb),
        0x1f1..=0x1f3 => Some(0x1f2),
        0x1f80..=0x1faf => Some(code | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        0x1fbc | 0x1fcc | 0x1ffc => Some(code),
        _ => None,
    };
    if let Some(pair) = pair.and_then(char::from_u32) {
        return pair.to_string();
    }
    let mut upper = character.to_uppercase();
    if character == '\u{149}' {
        // An apostrophe stands before its letter.
        return upper.collect();
    }
    let first: String = upper.next().into_iter().collect();
    first + &upper.collect::<String>().to_lowercase()
}

/// `template` with its fields as the engine reads them, without marks, and whether one of them writes a character by its number.
fn with_fields(style: FormatStyle, template: &str) -> Result<(String, bool), Error> {
    let (mut written, mut within, mut last, mut numbered) = (String::with_capacity(template.len()), false, ' ', false);
    for character in template.chars() {
        let bare = bare_char(character);
        // A width that is given as an argument is also an error.
        let is_width = within && bare == if style == FormatStyle::Printf { '*' } else { '{' };
        ensure(!is_width, "the width of a field must be written in the template")?;
        let field = within
            || bare == '%' && style == FormatStyle::Printf
            || "{}".contains(bare) && style != FormatStyle::Printf;
        written.push(if field { bare } else { character });
        within = match (style, within) {
            (FormatStyle::Printf, true) => {
                let ends = bare == '%' || bare.is_ascii_alphabetic() && !"hlL".contains(bare);
                numbered |= bare == 'c';
                !ends
            }
            (FormatStyle::Printf, false) => bare == '%',
            (_, true) => {
                numbered |= bare == '}' && last == 'c';
                bare != '}' && bare != '{'
            }
            (_, false) => bare == '{',
        };
        last = bare;
    }
    Ok((written, numbered))
}

/// `template.format(*args)`, or `template % args`. Values are written as in Python, or are an error.
pub(super) fn formatted(style: FormatStyle, template: &str, args: &[Value], budget: &Budget) -> Result<String, Error> {
    budget.spend_text(template.len())?;
    let (template, numbered) = with_fields(style, template)?;
    let template = template.as_str();
    let mark = if style == FormatStyle::Printf { '%' } else { '{' };
    let mut widths = 0;
    for digits in template.split(|character: char| !character.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        let width = digits.parse().unwrap_or(usize::MAX);
        Exceeded::check("characters in a field", width, WIDTH)?;
        widths += width;
    }
    let mut given = Vec::with_capacity(args.len());
    let mut bytes = 0;
    for arg in args {
        ensure(!arg.is_kwargs(), "what is formatted has no names")?;
        let written = text(arg, budget)?;
        bytes += written.len();
        given.push(match arg.kind() {
            // A number must not produce a character with a mark.
            ValueKind::Number if numbered && arg.is_integer() && arg.as_usize().is_none_or(|code| code > 0xffff) => {
                return Err(invalid("only characters up to U+FFFF are written by their numbers"));
            }
            ValueKind::Number if written == arg.to_string() => arg.clone(),
            ValueKind::Number => return Err(invalid("a number of this size")),
            // The engine counts the width of a text in bytes.
            _ if widths > 0 => Value::from(marks::bare(&written)),
            _ => Value::from(written),
        });
    }
    let fields = template.matches(mark).count();
    budget.spend_text(widths.saturating_add(fields.saturating_mul(bytes)))?;
    minijinja::formatting::format(style, template, &given)
}
