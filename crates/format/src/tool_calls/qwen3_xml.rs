//! `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, with line breaks between.

use super::arguments::Arguments;
use super::literal::{self, SPECIAL};
use super::{Description, Part, Several, Tool, Written, json, takes};
use serde_json::Value;

pub(super) const FORMAT: Description = Description {
    name: "qwen3_xml",
    shown_by: &[&["<function=", "<parameter="]],
    shares_marks: true,
    opens: &["<tool_call>"],
    closes: &["</tool_call>"],
    unmarked: Some("<function="),
    read: calls,
    call: &[
        Part::Name("\n<function=", ">\n"),
        Part::Each("<parameter=", ">\n", "\n</parameter>\n"),
        Part::Text("</function>\n"),
    ],
    several: Several::Each { between: "\n" },
    ..Description::JSON
};

/// Reads `<function=NAME>`, `<parameter=KEY>`, a line break, the value, a line break, `</parameter>`; or JSON.
fn calls(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    const CLOSE: &str = "</parameter>";
    const NEXT: &str = "\n<parameter=";
    let text = &text.replace(SPECIAL, "");
    if text.trim_start().starts_with(['[', '{']) {
        return json::calls(text, tools);
    }
    let (mut rest, mut calls) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let (name, body) = rest.strip_prefix("<function=")?.split_once('>')?;
        let (name, mut body) = (name.trim(), body.trim_start());
        let tool = tools.iter().find(|tool| tool.name == name);
        let property = |key: &str| tool.and_then(|tool| tool.parameter(key));
        let mut arguments = Arguments::default();
        while let Some(parameter) = body.strip_prefix("<parameter=") {
            let (key, value) = parameter.split_once('>')?;
            // A value may contain the mark; the one that ends the value is followed by another mark.
            let ends = |at: &usize| {
                let after = value[at + CLOSE.len()..].trim_start();
                after.starts_with("<parameter=") || after.starts_with("</function>")
            };
            let end = value.match_indices(CLOSE).map(|(at, _)| at).find(ends)?;
            // If the closing mark is missing, another parameter of the tool begins.
            let begins = |at: &usize| {
                let other = value[at + NEXT.len()..].split_once('>').map(|(other, _)| other);
                other.is_some_and(|other| {
                    other != key && !arguments.values.contains_key(other) && property(other).is_some()
                })
            };
            let next = value[..end].match_indices(NEXT).map(|(at, _)| at).find(begins);
            let (inner, rest) =
                next.map_or_else(|| (&value[..end], &value[end + CLOSE.len()..]), |next| value.split_at(next));
            let inner = inner.strip_prefix('\n').unwrap_or(inner);
            let inner = if next.is_some() { inner } else { inner.strip_suffix('\n').unwrap_or(inner) };
            arguments.insert(key.to_owned(), typed(inner, property(key)), inner);
            body = rest.trim_start();
        }
        calls.push(Written::new(name, arguments));
        rest = body.strip_prefix("</function>")?.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// `text` as the type that its schema wants: a string, unless the schema allows none and the text is another value.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    const SAYING: [&str; 7] = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"];
    let Some(schema) = schema.filter(|schema| SAYING.iter().any(|key| schema.get(key).is_some())) else {
        return text.into();
    };
    match literal::value(text) {
        Some(Value::Null) if takes(schema, "null") => Value::Null,
        Some(value) if !takes(schema, "string") => value,
        _ => text.into(),
    }
}
