//! Arguments of a call, with the text of each: a number in JSON may have more digits than a machine number holds.

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Map, Value};
use std::collections::HashMap;

/// Arguments by name, and as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// The values by name.
    pub values: Map<String, Value>,
    text: Text,
}

#[derive(Clone, Debug, PartialEq)]
enum Text {
    /// The text of all arguments, as one JSON object.
    Whole(String),
    /// The texts of some arguments, in JSON.
    Each(HashMap<String, String>),
}

impl Default for Text {
    fn default() -> Self {
        Text::Each(HashMap::new())
    }
}

impl Arguments {
    /// The arguments in `text`, a JSON object.
    pub fn json(text: &str) -> Option<Arguments> {
        let text = text.trim();
        Some(Arguments { values: serde_json::from_str(text).ok()?, text: Text::Whole(text.to_owned()) })
    }

    /// Adds an argument whose text is `text`, in any format.
    pub(super) fn insert(&mut self, name: String, value: Value, text: &str) {
        if let Text::Each(texts) = &mut self.text {
            match serde_json::from_str::<Value>(text).is_ok_and(|json| json == value) {
                true => texts.insert(name.clone(), text.trim().to_owned()),
                false => texts.remove(&name),
            };
        }
        self.values.insert(name, value);
    }

    /// All arguments as a JSON object.
    pub fn to_json(&self) -> String {
        let texts = match &self.text {
            Text::Whole(text) => return text.clone(),
            Text::Each(texts) => texts,
        };
        let member = |(name, value): (&String, &Value)| {
            let value = texts.get(name).cloned().unwrap_or_else(|| value.to_string());
            format!("{}:{value}", Value::from(name.as_str()))
        };
        format!("{{{}}}", self.values.iter().map(member).collect::<Vec<_>>().join(","))
    }
}

/// The text of the JSON value at the beginning of `text`, and the rest.
pub(super) fn first(text: &str) -> Option<(&str, &str)> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (value, after) = text.split_at_checked(values.byte_offset())?;
    Some((value.trim(), after))
}

/// The members of the JSON object `text`, with the texts of their values.
pub fn members(text: &str) -> Option<Vec<(String, &str)>> {
    let (mut rest, mut members) = (text.strip_prefix('{')?.trim_start(), Vec::new());
    while !rest.starts_with('}') {
        let mut names = Deserializer::from_str(rest).into_iter::<String>();
        let name = names.next()?.ok()?;
        let (value, after) = first(rest.get(names.byte_offset()..)?.trim_start().strip_prefix(':')?)?;
        members.push((name, value));
        rest = next(after, '}')?;
    }
    Some(members)
}

/// The texts of the items of the JSON list `text`.
pub(super) fn items(text: &str) -> Option<Vec<&str>> {
    let (mut rest, mut items) = (text.strip_prefix('[')?.trim_start(), Vec::new());
    while !rest.starts_with(']') {
        let (item, after) = first(rest)?;
        items.push(item);
        rest = next(after, ']')?;
    }
    Some(items)
}

/// The text after a comma, or the closing sign.
fn next(rest: &str, close: char) -> Option<&str> {
    let rest = rest.trim_start();
    if rest.starts_with(close) { Some(rest) } else { rest.strip_prefix(',').map(str::trim_start) }
}
