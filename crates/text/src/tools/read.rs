//! The text of a call, in each format -> its name and arguments. `None` is no call: the text is one of the answer then.

use super::Tool;
use super::arguments::{Arguments, first, items, members};
use super::literal::{self, Literals, SPECIAL};
use serde_json::Value;

/// A call as a model wrote it.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Arguments,
}

impl Written {
    fn new(name: &str, arguments: Arguments) -> Written {
        Written { id: None, name: name.to_owned(), arguments }
    }
}

pub(super) type Read = fn(&str, &[Tool]) -> Option<Vec<Written>>;

/// JSON objects with a name and arguments, alone, in lists, or with blanks, `;` or `,` between them.
pub(super) fn json(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (mut rest, mut calls) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let (value, behind) = first(rest)?;
        match value.starts_with('[') {
            true => calls.extend(items(value)?.into_iter().map(object).collect::<Option<Vec<_>>>()?),
            false => calls.push(object(value)?),
        }
        rest = behind.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ';' | ','));
    }
    (!calls.is_empty()).then_some(calls)
}

/// `{"name": .., "arguments" or "parameters": .., "id": ..}`, or that within `function`.
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

/// An object, or the text of one; nothing is none.
fn arguments(given: &str) -> Option<Arguments> {
    let inner: Option<String> = given.starts_with('"').then(|| serde_json::from_str(given).ok()).flatten();
    match inner.as_deref().unwrap_or(given).trim() {
        "" => Some(Arguments::default()),
        "null" if inner.is_none() => Some(Arguments::default()),
        object => Arguments::json(object),
    }
}

/// Llama 3: as [`json`], or `name.call(key="value")`, of tools that there are: what says no more than that it is JSON may be
/// an answer.
pub(super) fn llama(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let calls = json(text, tools).or_else(|| {
        let mut literals = Literals::new(text);
        let (name, arguments) = literals.call()?;
        literals.is_done().then(|| vec![Written::new(name.strip_suffix(".call").unwrap_or(name), arguments)])
    })?;
    calls.iter().all(|call| tools.iter().any(|tool| tool.name == call.name)).then_some(calls)
}

/// Mistral: a list of objects; or the name, an id behind `[CALL_ID]`, and the arguments behind `[ARGS]`.
pub(super) fn mistral(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    if text.trim_start().starts_with(['[', '{']) {
        return json(text, tools);
    }
    let (head, object) = text.split_once("[ARGS]").or_else(|| Some(text.split_at(text.find('{')?)))?;
    let (name, id) = head.split_once("[CALL_ID]").map_or((head, None), |(name, id)| (name, Some(id.trim().to_owned())));
    let call = Written::new(name.trim(), Arguments::json(object)?);
    let is_name = !call.name.is_empty() && !call.name.contains(|c: char| c.is_whitespace() || matches!(c, '[' | ']'));
    is_name.then(|| vec![Written { id, ..call }])
}

/// DeepSeek: `function<｜tool▁sep｜>`, the name and the arguments as a block of JSON, or the name, `<｜tool▁sep｜>` and the arguments.
pub(super) fn deepseek(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (first, rest) = text.split_once(DEEPSEEK_SEPARATOR)?;
    let (name, object) = match rest.split_once("```json") {
        Some((name, block)) if first.trim() == "function" => (name, block.trim_end().strip_suffix("```")?),
        _ => (first, rest),
    };
    let call = Written::new(name.trim(), Arguments::json(object)?);
    (!call.name.is_empty()).then(|| vec![call])
}

pub(super) const DEEPSEEK_SEPARATOR: &str = "<｜tool▁sep｜>";

/// Qwen3-Coder: `<function=NAME>`, `<parameter=KEY>`, a line end, the value, a line end, `</parameter>`; or as [`json`].
pub(super) fn xml(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    const CLOSE: &str = "</parameter>";
    const NEXT: &str = "\n<parameter=";
    let text = &text.replace(SPECIAL, "");
    if text.trim_start().starts_with(['[', '{']) {
        return json(text, tools);
    }
    let (mut rest, mut calls) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let (name, body) = rest.strip_prefix("<function=")?.split_once('>')?;
        let (name, mut body) = (name.trim(), body.trim_start());
        let tool = tools.iter().find(|tool| tool.name == name);
        let property = |key: &str| tool.and_then(|tool| tool.parameters.pointer("/properties")?.get(key));
        let mut arguments = Arguments::default();
        while let Some(parameter) = body.strip_prefix("<parameter=") {
            let (key, value) = parameter.split_once('>')?;
            // A value may spell the mark; the one that ends it has another mark behind it.
            let ends = |at: &usize| {
                let behind = value[at + CLOSE.len()..].trim_start();
                behind.starts_with("<parameter=") || behind.starts_with("</function>")
            };
            let end = value.match_indices(CLOSE).map(|(at, _)| at).find(ends)?;
            // Where its mark is missing, another parameter of the tool begins.
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

/// `text` as the value that its schema wants: a string, unless it wants none and this is another value.
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

/// Whether a schema takes values of this type, `string` or `null`, as far as its own keywords say.
pub(super) fn takes(schema: &Value, name: &str) -> bool {
    let is = |value: &Value| if name == "null" { value.is_null() } else { value.is_string() };
    if let Some(types) = schema.get("type") {
        return types == name || types.as_array().is_some_and(|types| types.iter().any(|one| one == name));
    }
    let all = |key: &str| schema.get(key).and_then(Value::as_array);
    match (all("enum"), all("anyOf").or_else(|| all("oneOf"))) {
        (Some(values), _) => values.iter().any(is),
        (None, Some(schemas)) => schemas.iter().any(|schema| takes(schema, name)),
        _ => schema.get("const").is_some_and(is),
    }
}

/// Gemma 4: `call:NAME{key:value}`; the model leaves `call` out at times.
pub(super) fn gemma(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let (mut literals, mut calls) = (Literals::new(text), Vec::new());
    while !literals.is_done() {
        (literals.take("call:") || literals.take(":")).then_some(())?;
        let name = literals.name("{")?;
        calls.push(Written::new(name, literals.arguments(":", "}")?));
        literals.take(",");
    }
    (!calls.is_empty()).then_some(calls)
}

/// LFM2 and OLMo 3: calls as Python writes them, in a list or one behind the other.
pub(super) fn python(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (mut literals, mut calls) = (Literals::new(text), Vec::new());
    let listed = literals.take("[");
    while !(literals.is_done() || listed && literals.take("]")) {
        if calls.is_empty() && literals.clone().call().is_none() {
            return json(text, tools);
        }
        let (name, arguments) = literals.call()?;
        calls.push(Written::new(name, arguments));
        literals.take(",");
    }
    (literals.is_done() && !calls.is_empty()).then_some(calls)
}
