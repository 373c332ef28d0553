//! What an answer must be, by the names of several servers -> a grammar.

use super::fields::Fields;
use super::llama_cpp::gbnf;
use crate::error::RequestError;
use model_factory::generate::Grammar;
use serde_json::{Value, json};

/// The grammar of the answer, if there is one: `response_format` of the OpenAI API, `structured_outputs` and `guided_json` and the
/// like of vLLM, `regex`, `json_schema` and `grammar` of SGLang and llama.cpp's server.
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
    for (name, kind) in guided.into_iter().chain([("regex", regex as Kind), ("json_schema", schema), ("grammar", lark)])
    {
        take(fields, name, kind, &mut found)?;
    }
    Ok(found.map(|(_, grammar)| grammar))
}

type Kind = fn(Value) -> Result<Grammar, String>;

/// The names in `structured_outputs`, and those of vLLM before it.
const STRUCTURED: [(&str, &str, Kind); 4] = [
    ("json", "guided_json", schema),
    ("regex", "guided_regex", regex),
    ("choice", "guided_choice", choice),
    ("grammar", "guided_grammar", lark),
];

fn regex(value: Value) -> Result<Grammar, String> {
    value.as_str().map(Grammar::regex).ok_or_else(|| "expected a text with a regular expression".into())
}

fn choice(value: Value) -> Result<Grammar, String> {
    let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
    let texts = texts.filter(|texts| !texts.is_empty()).ok_or("expected a list of texts")?;
    Ok(Grammar::choice(&texts))
}

/// A grammar of llama.cpp writes `::=`, which no Lark grammar has outside of a text.
fn lark(value: Value) -> Result<Grammar, String> {
    match value.as_str() {
        Some(text) if text.contains("::=") => gbnf::lark(text).map(|text| Grammar::lark(&text)),
        Some(text) => Ok(Grammar::lark(text)),
        None => Err("expected a text with a Lark grammar, or one of llama.cpp (GBNF)".into()),
    }
}

/// A schema, or its JSON in a text, as some clients send it.
fn schema(value: Value) -> Result<Grammar, String> {
    let value = match value {
        Value::Object(_) | Value::Bool(_) => Some(value),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    };
    value.map(Grammar::json_schema).ok_or_else(|| "expected a JSON schema".into())
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
    // llama.cpp's clients send no grammar as an empty one.
    if name == "grammar" && value == "" {
        return Ok(());
    }
    let grammar = kind(value).map_err(|reason| fields.at(name).wrong(reason))?;
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
