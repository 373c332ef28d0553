//! The description at `/openapi.json`: it has what the server takes, and answers hold it.

use crate::common::{Server, demo, fixture, read};
use jsonschema::Validator;
use serde_json::{Value, json};

const BODY: &str = "/requestBody/content/application~1json/schema";

/// The description with what its operations and schemas are looked up by.
struct Description(Value);

impl Description {
    fn of(server: &Server) -> Description {
        let (status, text) = server.get("/openapi.json");
        assert_eq!(status, 200, "{text}");
        Description(serde_json::from_str(&text).expect("JSON"))
    }

    /// The paths, each with what it has for each of its methods.
    fn paths(&self) -> impl Iterator<Item = (&str, &Value)> {
        let paths = self.0["paths"].as_object().expect("an object");
        paths.iter().map(|(path, item)| match item["$ref"].as_str() {
            None => (path.as_str(), item),
            Some(other) => (path.as_str(), self.0.pointer(&other[1..]).expect("a path")),
        })
    }

    /// A validator of a schema in the description.
    fn validator(&self, schema: &Value) -> Validator {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        jsonschema::draft202012::new(&schema).expect("a schema")
    }

    /// The schemas of one kind of the request at `path`: all that a reference or a choice leads to.
    fn kinds<'d>(&'d self, schema: &'d Value) -> Vec<&'d Value> {
        if let Some(name) = schema["$ref"].as_str() {
            return self.kinds(self.0.pointer(&name[1..]).expect("a schema"));
        }
        let choices = schema["anyOf"].as_array().filter(|_| schema.get("properties").is_none());
        choices.map_or_else(|| vec![schema], |choices| choices.iter().flat_map(|one| self.kinds(one)).collect())
    }
}

/// What a method of `path` answers without a body.
fn status(server: &Server, method: &str, path: &str) -> u16 {
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let answer = crate::common::rest(&mut server.connect(request.as_bytes()));
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{method} {path}: {answer}"))
}

#[test]
fn the_methods_of_every_path_are_those_that_are_described() {
    let server = demo(&[]);
    let description = Description::of(&server);
    let mut count = 0;
    for (path, item) in description.paths() {
        let at = path.replace("{id}", if path.starts_with("/v1/models") { "demo" } else { "none" });
        for method in ["get", "post", "delete", "put", "patch"] {
            let found = status(&server, &method.to_uppercase(), &at);
            assert_eq!(found != 405, item.get(method).is_some(), "{method} {path}: {found}");
            count += usize::from(found != 405);
        }
    }
    assert!(count > 45, "{count}");
    for path in
        ["/v1", "/v1/files", "/v1/audio/speech", "/api/pull", "/v1/complete", "/openapi.yaml", "/docs", "/v1/models"]
    {
        assert_eq!(status(&server, "GET", path) == 404, !description.paths().any(|(known, _)| known == path), "{path}");
    }
}

/// Each field that is described is one that the server reads, and others are refused where they are told to be.
#[test]
fn fields_of_requests_are_those_that_are_described() {
    let server = demo(&["--context", "64"]); // ignored fields do not keep it from answering
    let description = Description::of(&server);
    let mut count = 0;
    for (path, item) in description.paths().filter(|(_, item)| item["post"].is_object()) {
        for schema in description.kinds(item["post"].pointer(BODY).expect("a schema")) {
            let required =
                schema["required"].as_array().or(schema.pointer("/anyOf/0/required").and_then(Value::as_array));
            let mut body = json!({});
            for name in required.expect("required fields").iter().filter_map(Value::as_str) {
                body[name] = match name {
                    "messages" => json!([{ "role": "user", "content": "Hi" }]),
                    "documents" | "texts" => json!(["a"]),
                    "tokens" => json!([1]),
                    "max_tokens" => json!(1),
                    "model" => json!("demo"),
                    _ => json!("a"),
                };
            }
            let validator = description.validator(schema);
            assert!(validator.is_valid(&body), "{path}: {body}");
            let refused = |name: &str, value: Value| {
                let mut body = body.clone();
                body[name] = value;
                for other in schema["dependentRequired"][name].as_array().into_iter().flatten() {
                    body[other.as_str().expect("a name")] = json!([]);
                }
                let (status, text) = read(server.send(path, body.to_string().as_bytes()));
                (status, text.contains(&format!("there is no field {name}")))
            };
            for name in schema["properties"].as_object().expect("an object").keys() {
                // No field has such a value, but those that are ignored, which are known.
                assert!(!refused(name, json!([[[]]])).1, "{path}: {name} is unknown");
                count += 1;
            }
            if schema["additionalProperties"] == false {
                assert_eq!(refused("no_such_field", json!(1)), (400, true), "{path}");
                assert!(!validator.is_valid(&json!({ "no_such_field": 1 })));
            }
        }
    }
    assert!(count > 500, "{count}");
}

#[test]
fn the_table_of_the_documentation_is_described() {
    let server = demo(&[]);
    let description = Description::of(&server);
    let chat = &description.0["components"]["schemas"]["ChatRequest"];
    let validator = description.validator(&json!({ "$ref": "#/components/schemas/ChatRequest" }));
    let docs = std::fs::read_to_string(fixture("../docs/serve.md")).expect("the page");
    let (before, section) = docs.split_once("## What clients of other servers send").expect("the section");
    let section = section.split("\n## ").next().expect("a section");
    let mut named: Vec<String> = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        for field in row.split('|').nth(1).expect("a cell").split('`').skip(1).step_by(2) {
            let mut body: Value = serde_json::from_str(&format!("{{{field}}}")).expect("JSON");
            named.extend(body.as_object().expect("an object").keys().cloned());
            body["messages"] = json!([{ "role": "user", "content": "Hi" }]);
            let wrong: Vec<String> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{field}: {wrong:?}");
        }
    }
    assert!(named.len() > 50, "{}", named.len());
    // Those of OpenAI are in the row of the path, or in what is said of it.
    for name in chat["properties"].as_object().expect("an object").keys() {
        assert!(named.contains(name) || before.contains(&format!("`{name}")), "docs/serve.md has no {name}");
    }
}
