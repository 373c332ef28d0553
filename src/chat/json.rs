//! The `tojson` filter of transformers: what Python's `json.dumps` writes.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;
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
pub(super) fn dumps(value: &Value, ensure_ascii: Option<bool>, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            // Wider than any text is read, and too narrow to fill memory with.
            None => " ".repeat(usize::try_from(i64::try_from(indent)?.clamp(0, 64)).unwrap_or(0)),
        }),
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators of tojson must be two texts")),
    };
    let style = Style {
        ensure_ascii: ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false),
        indent,
        item,
        key,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let json = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, "tojson").with_source(error))?;
    let mut text = String::new();
    write(&json, &style, 0, &mut text);
    Ok(Value::from(text))
}

fn write(value: &Json, style: &Style, depth: usize, text: &mut String) {
    match value {
        Json::String(string) => quoted(string, style.ensure_ascii, text),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| (None, item)).collect();
            container(('[', ']'), &items, style, depth, text);
        }
        Json::Object(object) => {
            let mut items: Vec<_> = object.iter().map(|(key, item)| (Some(key.as_str()), item)).collect();
            if style.sort_keys {
                items.sort_by_key(|(key, _)| *key);
            }
            container(('{', '}'), &items, style, depth, text);
        }
        Json::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => text.push_str(&python_float(float)),
            None => text.push_str(&number.to_string()),
        },
        plain => text.push_str(&plain.to_string()),
    }
}

/// The shortest digits that read back as `float`, as Python's `repr` has them: an exponent below -4 and from 16 up, with a
/// sign and at least two digits.
fn python_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..16).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => format!("{float:?}"),
    }
}

fn container(
    (open, close): (char, char),
    items: &[(Option<&str>, &Json)],
    style: &Style,
    depth: usize,
    text: &mut String,
) {
    let line = |depth: usize, text: &mut String| {
        if let Some(indent) = style.indent.as_ref().filter(|_| !items.is_empty()) {
            text.push('\n');
            (0..depth).for_each(|_| text.push_str(indent));
        }
    };
    text.push(open);
    for (index, (key, item)) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(&style.item);
        }
        line(depth + 1, text);
        if let Some(key) = key {
            quoted(key, style.ensure_ascii, text);
            text.push_str(&style.key);
        }
        write(item, style, depth + 1, text);
    }
    line(depth, text);
    text.push(close);
}

fn quoted(string: &str, ensure_ascii: bool, text: &mut String) {
    let json = Json::from(string).to_string();
    if !ensure_ascii {
        text.push_str(&json);
        return;
    }
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
}
