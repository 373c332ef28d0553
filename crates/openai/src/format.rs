//! What an answer must be, by the names of several servers -> a grammar.

use super::fields::Fields;
use crate::error::RequestError;
use model_factory::generate::Grammar;
use serde_json::{Value, json};

/// The grammar of the answer, if there is one: `response_format` of the OpenAI API, `structured_outputs` and `guided_json` and the
/// like of vLLM, `regex` and `json_schema` of SGLang and llama.cpp's server.
///
/// # Errors
/// An error that names the field, for more than one and for a wrong one.
pub(super) fn grammar(fields: &mut Fields) -> Result<Option<Grammar>, RequestError> {
    let mut found = response_format(fields)?.map(|schema| ("response_format", Grammar::json_schema(schema)));
    if let Some(mut outputs) = fields.object("structured_outputs")? {
        let mut of = None;
        for (name, _, kind) in STRUCTURED {
            take(&mut outputs, name, kind, &mut of)?;
        }
        if outputs.take("json_object")? == Some(true) {
            put(&outputs, "json_object", Grammar::json_schema(object()), &mut of)?;
        }
        for unused in ["disable_any_whitespace", "disable_fallback", "disable_additional_properties"] {
            outputs.take::<bool>(unused)?;
        }
        outputs.end()?;
        if let Some((_, grammar)) = of {
            put(fields, "structured_outputs", grammar, &mut found)?;
        }
    }
    let guided = STRUCTURED.map(|(_, name, kind)| (name, kind));
    for (name, kind) in guided.into_iter().chain([("regex", regex as Kind), ("json_schema", schema)]) {
        take(fields, name, kind, &mut found)?;
    }
    Ok(found.map(|(_, grammar)| grammar))
}

type Kind = fn(Value) -> Option<Grammar>;

/// The names in `structured_outputs`, and those of vLLM before it.
const STRUCTURED: [(&str, &str, Kind); 4] = [
    ("json", "guided_json", schema),
    ("regex", "guided_regex", regex),
    ("choice", "guided_choice", choice),
    ("grammar", "guided_grammar", lark),
];

fn regex(value: Value) -> Option<Grammar> {
    value.as_str().map(Grammar::regex)
}

fn choice(value: Value) -> Option<Grammar> {
    let texts: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| Grammar::choice(&texts))
}

/// GBNF and the other kinds of EBNF write `::=`, which no Lark grammar has outside of a text.
fn lark(value: Value) -> Option<Grammar> {
    value.as_str().filter(|text| !text.contains("::=")).map(Grammar::lark)
}

/// A schema, or its JSON in a text, as some clients send it.
fn schema(value: Value) -> Option<Grammar> {
    match value {
        Value::Object(_) | Value::Bool(_) => Some(Grammar::json_schema(value)),
        Value::String(text) => serde_json::from_str(&text).ok().map(|value: Value| Grammar::json_schema(value)),
        _ => None,
    }
}

fn object() -> Value {
    json!({ "type": "object" })
}

/// Takes the field `name`, and puts its grammar into `found`.
fn take<'n>(
    fields: &mut Fields,
    name: &'n str,
    kind: Kind,
    found: &mut Option<(&'n str, Grammar)>,
) -> Result<(), RequestError> {
    let Some(value) = fields.take::<Value>(name)? else { return Ok(()) };
    let expected = match name.rsplit('_').next() {
        Some("choice") => "expected a list of texts",
        Some("grammar") => "expected a text with a Lark grammar",
        Some("regex") => "expected a text with a regular expression",
        _ => "expected a JSON schema",
    };
    let grammar = kind(value).ok_or_else(|| fields.at(name).wrong(expected))?;
    put(fields, name, grammar, found)
}

fn put<'n>(
    fields: &Fields,
    name: &'n str,
    grammar: Grammar,
    found: &mut Option<(&'n str, Grammar)>,
) -> Result<(), RequestError> {
    match found {
        Some((first, _)) => Err(fields.at(name).wrong(format_args!("{first} is given too, expected one of them"))),
        None => {
            *found = Some((name, grammar));
            Ok(())
        }
    }
}

/// The schema of `response_format`, if there is one.
fn response_format(fields: &mut Fields) -> Result<Option<Value>, RequestError> {
    let Some(mut format) = fields.object("response_format")? else { return Ok(None) };
    let kind: String = format.require("type")?;
    let schema = match kind.as_str() {
        "text" => None,
        // llama.cpp's server and others take a schema here.
        "json_object" => Some(format.take("schema")?.unwrap_or_else(object)),
        "json_schema" => {
            let json_schema = format.object("json_schema")?;
            let mut json_schema = json_schema.ok_or_else(|| format.at("json_schema").wrong("it is missing"))?;
            for unused in ["name", "description", "strict"] {
                json_schema.take::<Value>(unused)?;
            }
            let schema = json_schema.require("schema")?;
            json_schema.end()?;
            Some(schema)
        }
        _ => return Err(format.at("type").wrong("expected text, json_object or json_schema")),
    };
    format.end()?;
    Ok(schema)
}
