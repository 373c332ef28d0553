//! The description of the server's APIs by OpenAPI 3.1: one file for each of them, which have their types in common.

use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Each has `paths`, `schemas`, and the name of the schema of its errors, which every request may be answered with.
const FILES: [&str; 7] = [
    include_str!("openapi/server.json"),
    include_str!("openapi/openai.json"),
    include_str!("openapi/responses.json"),
    include_str!("openapi/anthropic.json"),
    include_str!("openapi/ollama.json"),
    include_str!("openapi/llama_cpp.json"),
    include_str!("openapi/tokens.json"),
];

/// The statuses of errors that any request may get, and those that one with a body may get too.
const ANY: [(&str, &str); 2] = [("401", "the key is missing or wrong"), ("403", "the host name is another one")];
const WITH_BODY: [(&str, &str); 9] = [
    ("400", "a field is wrong or unknown, or the context too short"),
    ("404", "no such model"),
    ("408", "the body took too long to arrive"),
    ("413", "the body is too large"),
    ("415", "the content type is not JSON"),
    ("429", "too many requests wait"),
    ("500", "an error of the server"),
    ("501", "the model cannot do this"),
    ("503", "no memory, or the server is shutting down"),
];

/// The description as JSON.
pub(crate) fn description() -> &'static str {
    static DESCRIPTION: LazyLock<String> = LazyLock::new(|| {
        let [mut paths, mut schemas] = [Map::new(), Map::new()];
        for file in FILES {
            let mut file: Value = serde_json::from_str(file).unwrap_or_default();
            let errors = file["errors"].take();
            if let (Value::Object(mut of_paths), Value::Object(of_schemas)) =
                (file["paths"].take(), file["schemas"].take())
            {
                let items = of_paths.values_mut().flat_map(Value::as_object_mut);
                items.flat_map(Map::values_mut).for_each(|operation| add_errors(operation, &errors));
                paths.extend(of_paths);
                schemas.extend(of_schemas);
            }
        }
        json!({
            "openapi": "3.1.0",
            "info": { "title": "model-factory", "version": env!("CARGO_PKG_VERSION") },
            "paths": paths,
            "components": { "schemas": schemas, "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } } },
            "security": [{}, { "key": [] }],
        })
        .to_string()
    });
    &DESCRIPTION
}

/// Adds the answers that are errors, whose schema has the name `schema`, to those of an operation.
fn add_errors(operation: &mut Value, schema: &Value) {
    let has_body = operation.get("requestBody").is_some();
    let Some(answers) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    let schema = format!("#/components/schemas/{}", schema.as_str().unwrap_or_default());
    for (status, description) in ANY.iter().chain(WITH_BODY.iter().filter(|_| has_body)) {
        let content = json!({ "application/json": { "schema": { "$ref": schema } } });
        let answer = json!({ "description": description, "content": content });
        answers.entry(*status).or_insert(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_is_described_and_no_other() {
        let description: Value = serde_json::from_str(description()).expect("JSON");
        let described: BTreeSet<&str> =
            description["paths"].as_object().expect("an object").keys().map(String::as_str).collect();
        let routes = routes();
        let paths: Vec<String> = routes.iter().map(|(path, _)| path.replace("{*", "{")).collect();
        assert_eq!(paths.iter().map(String::as_str).collect::<BTreeSet<_>>(), described);
        assert_eq!(paths.len(), described.len(), "each is there once");
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
        let text = description();
        let description: Value = serde_json::from_str(text).expect("JSON");
        let used: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let named = description["components"]["schemas"].as_object().expect("an object");
        assert_eq!(used, named.keys().map(String::as_str).collect());
        for file in FILES {
            serde_json::from_str::<Value>(file).expect("JSON");
        }
    }
}
