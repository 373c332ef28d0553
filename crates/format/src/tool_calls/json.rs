//! Calls as JSON objects, which several formats have.

use super::arguments::{Arguments, first, items, members};
use super::literal::SPECIAL;
use super::{Part, Tool, Written};

/// A call `{"name": .., "arguments": {..}}`.
pub(super) const CALL: [Part; 3] = [Part::JsonName("{\"name\": ", ", \"arguments\": "), Part::Json, Part::Text("}")];

/// Reads JSON objects with a name and arguments: a single one, in lists, or separated by blanks, `;` or `,`.
pub(super) fn calls(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (mut rest, mut calls) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let (value, after) = first(rest)?;
        match value.starts_with('[') {
            true => calls.extend(items(value)?.into_iter().map(object).collect::<Option<Vec<_>>>()?),
            false => calls.push(object(value)?),
        }
        rest = after.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ';' | ','));
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads `{"name": .., "arguments" or "parameters": .., "id": ..}`, or that within `function`.
fn object(text: &str) -> Option<Written> {
    let outer = members(text)?;
    fn last<'t>(members: &[(String, &'t str)], name: &str) -> Option<&'t str> {
        members.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
    let id = last(&outer, "id").and_then(|id| serde_json::from_str(id).ok());
    let inner = last(&outer, "function").filter(|function| function.starts_with('{')).map(members);
    let call = inner.unwrap_or(Some(outer))?;
    let name = serde_json::from_str(last(&call, "name")?).ok()?;
    let given = last(&call, "arguments").or_else(|| last(&call, "parameters"));
    Some(Written { id, name, arguments: arguments(given.unwrap_or("null"))? })
}

/// Reads an object, or a string that contains one; no text means no arguments.
fn arguments(given: &str) -> Option<Arguments> {
    let inner: Option<String> = given.starts_with('"').then(|| serde_json::from_str(given).ok()).flatten();
    match inner.as_deref().unwrap_or(given).trim() {
        "" => Some(Arguments::default()),
        "null" if inner.is_none() => Some(Arguments::default()),
        object => Arguments::json(object),
    }
}
