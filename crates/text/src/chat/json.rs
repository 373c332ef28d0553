//! Values as Python writes them: `repr`, and `json.dumps`, which is transformers' filter `tojson`.

use super::limits::Budget;
use super::marks::{bare_char, plain_char};
use super::python::{self, Text};
use super::values::{invalid, is_data, items};
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use std::fmt::Write as _;

/// The style in which values are written: like Python's `repr` or `json.dumps`.
pub(super) struct Style {
    /// Writes a string in quotes.
    quoted: fn(&str) -> String,
    is_python: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Style {
    pub(super) fn repr() -> Style {
        let (item, key) = (", ".to_owned(), ": ".to_owned());
        Style { quoted: python::quoted, is_python: true, indent: None, item, key, sort_keys: false }
    }
}

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn dumps(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, ensure_ascii, options): (&Value, Option<bool>, Kwargs) = from_args(args)?;
    let indent = options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none());
    let indent = indent.as_ref().map(python::margin).transpose()?;
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("separators of tojson must be two texts")),
    };
    let ascii = ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false);
    let style = Style {
        quoted: if ascii { |text| quoted(text, true) } else { |text| quoted(text, false) },
        is_python: false,
        indent,
        item,
        key,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut text = Text::new(budget);
    write(value, &style, 0, &mut text)?;
    Ok(Value::from(text.into_string()))
}

pub(super) fn write(value: &Value, style: &Style, depth: usize, text: &mut Text<'_>) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => text.push(&(style.quoted)(value.as_str().unwrap_or_default())),
        ValueKind::Seq => {
            let items: Vec<_> = items(value)?.into_iter().map(|item| (None, item)).collect();
            let brackets = match items.len() {
                _ if !style.is_python || !value.is_tuple() => ("[", "]"),
                1 => ("(", ",)"),
                _ => ("(", ")"),
            };
            container(brackets, items, style, depth, text)
        }
        ValueKind::Map if is_data(value) => {
            let pairs = value.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten();
            let mut items =
                pairs.map(|(key, item)| Ok((Some(name(key, style)?), item))).collect::<Result<Vec<_>, Error>>()?;
            if style.sort_keys {
                items.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            container(("{", "}"), items, style, depth, text)
        }
        _ => text.push(&plain(value, style)?),
    }
}

/// Writes a value that is no text and has no items.
fn plain(value: &Value, style: &Style) -> Result<String, Error> {
    let either = |python: &str, json: &str| if style.is_python { python } else { json }.to_owned();
    match value.kind() {
        ValueKind::Undefined if style.is_python => Ok("Undefined".to_owned()),
        ValueKind::None => Ok(either("None", "null")),
        ValueKind::Bool if value.is_true() => Ok(either("True", "true")),
        ValueKind::Bool => Ok(either("False", "false")),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(match f64::try_from(value.clone())? {
            float if float.is_nan() => either("nan", "NaN"),
            float if float.is_infinite() && !style.is_python => {
                format!("{}Infinity", if float < 0.0 { "-" } else { "" })
            }
            float => python::float(float),
        }),
        _ if style.is_python => Err(invalid("only data has a text: no iterator, namespace, loop or macro")),
        _ => Err(invalid("only texts, numbers, lists and maps are written as JSON")),
    }
}

/// Writes a key, which in JSON is a text.
fn name(key: Value, style: &Style) -> Result<Value, Error> {
    if style.is_python || key.as_str().is_some() { Ok(key) } else { plain(&key, style).map(Value::from) }
}

fn container(
    (open, close): (&str, &str),
    items: Vec<(Option<Value>, Value)>,
    style: &Style,
    depth: usize,
    text: &mut Text<'_>,
) -> Result<(), Error> {
    let empty = items.is_empty();
    let line = |depth: usize, text: &mut Text<'_>| match &style.indent {
        Some(indent) if !empty => {
            text.push("\n")?;
            (0..depth).try_for_each(|_| text.push(indent))
        }
        _ => Ok(()),
    };
    text.push(open)?;
    for (index, (key, item)) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(&style.item)?;
        }
        line(depth + 1, text)?;
        if let Some(key) = key {
            write(&key, style, depth, text)?;
            text.push(&style.key)?;
        }
        write(&item, style, depth + 1, text)?;
    }
    line(depth, text)?;
    text.push(close)
}

fn quoted(string: &str, ensure_ascii: bool) -> String {
    let mut text = String::with_capacity(string.len() + 2);
    text.push('"');
    for character in string.chars() {
        // Writing to a string does not fail.
        let _ = match bare_char(character) {
            '"' => write!(text, "\\\""),
            '\\' => write!(text, "\\\\"),
            '\u{8}' => write!(text, "\\b"),
            '\t' => write!(text, "\\t"),
            '\n' => write!(text, "\\n"),
            '\u{c}' => write!(text, "\\f"),
            '\r' => write!(text, "\\r"),
            bare if bare < ' ' => write!(text, "\\u{:04x}", u32::from(bare)),
            bare if ensure_ascii && (!bare.is_ascii() || bare == '\u{7f}') => {
                let mut units = [0; 2];
                let mut units = plain_char(bare).encode_utf16(&mut units).iter();
                units.try_for_each(|unit| write!(text, "\\u{unit:04x}"))
            }
            _ => {
                text.push(character);
                Ok(())
            }
        };
    }
    text.push('"');
    text
}
