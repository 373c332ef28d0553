//! The `tojson` filter of transformers: what Python's `json.dumps` writes.

use super::limits::Budget;
use super::marks::{bare_char, plain_char};
use super::python::{self, Text};
use super::values::{invalid, is_data, items};
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use std::fmt::Write as _;

/// How `json.dumps` writes.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
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
    let style = Style {
        ensure_ascii: ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false),
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

fn write(value: &Value, style: &Style, depth: usize, text: &mut Text<'_>) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => text.push(&quoted(value.as_str().unwrap_or_default(), style.ensure_ascii)),
        ValueKind::Seq => {
            let items = items(value)?.into_iter().map(|item| (None, item)).collect();
            container(("[", "]"), items, style, depth, text)
        }
        ValueKind::Map if is_data(value) => {
            let pairs = value.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten();
            let mut items =
                pairs.map(|(key, item)| Ok((Some(name(&key)?), item))).collect::<Result<Vec<_>, Error>>()?;
            if style.sort_keys {
                items.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            container(("{", "}"), items, style, depth, text)
        }
        _ => text.push(&plain(value)?),
    }
}

/// What is no text and holds nothing.
fn plain(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(match f64::try_from(value.clone())? {
            float if float.is_nan() => "NaN".to_owned(),
            float if float.is_infinite() => format!("{}Infinity", if float < 0.0 { "-" } else { "" }),
            float => python::float(float),
        }),
        _ => Err(invalid("only texts, numbers, lists and maps are written as JSON")),
    }
}

/// A key as `json.dumps` writes it.
fn name(key: &Value) -> Result<String, Error> {
    key.as_str().map_or_else(|| plain(key), |key| Ok(key.to_owned()))
}

fn container(
    (open, close): (&str, &str),
    items: Vec<(Option<String>, Value)>,
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
            text.push(&quoted(&key, style.ensure_ascii))?;
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
