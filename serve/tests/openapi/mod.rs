//! The description at `/openapi.json`: it has what the server takes, and answers hold it.

use crate::common::{Server, demo, fixture, read, serve};
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

    fn operation(&self, path: &str, method: &str) -> &Value {
        let (_, item) = self.paths().find(|(known, _)| *known == path).unwrap_or_else(|| panic!("no {path}"));
        &item[method]
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

fn with(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
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
                schema["required"].as_array().or(schema.pointer("/oneOf/0/required").and_then(Value::as_array));
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
            // The model has no tokens to fill in with.
            if schema["properties"]["temperature"].is_object() && path != "/infill" {
                let negative = json!(-1);
                let (status, text) =
                    read(server.send(path, with(&body, "temperature", negative).to_string().as_bytes()));
                assert!(status == 400 && text.contains("temperature"), "{path}: {text}");
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

/// The schema of an answer of this status and type.
fn schema<'d>(operation: &'d Value, status: u16, kind: &str) -> &'d Value {
    let content = &operation["responses"][status.to_string()]["content"][kind];
    let schema = content.get("x-itemSchema").unwrap_or(&content["schema"]);
    assert!(schema.is_object(), "no answer of {status} as {kind}: {operation}");
    schema
}

/// Requests of each operation, most with a stream; the text is what says that an answer is one of several forms.
fn requests() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "Once upon a time" }]);
    let tool = json!({ "type": "function", "function": { "name": "add", "parameters": {
        "type": "object", "properties": { "a": { "type": "integer", "minimum": 0, "maximum": 9 } }, "required": ["a"] } } });
    let own = json!({ "name": "add", "input_schema": tool["function"]["parameters"] });
    let flat = json!({ "type": "function", "name": "add", "parameters": tool["function"]["parameters"] });
    let options = json!({ "num_predict": 4, "temperature": 0 });
    vec![
        ("/v1/chat/completions", json!({ "messages": messages, "max_tokens": 4 })),
        (
            "/v1/chat/completions",
            json!({
                "messages": messages, "max_tokens": 4, "n": 2, "logprobs": true, "top_logprobs": 2, "prompt_logprobs": 1,
                "stream_options": { "include_usage": true, "continuous_usage_stats": true },
            }),
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "tools": [tool], "tool_choice": "required", "seed": 3 }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": messages, "functions": [tool["function"]], "function_call": { "name": "add" }, "seed": 3,
            }),
        ),
        (
            "/chat/completions",
            json!({ "messages": messages, "stop": ["was"], "stop_token_ids": [5], "temperature": 0 }),
        ),
        ("/v1/chat/completions/input_tokens", json!({ "messages": messages })),
        ("/v1/completions", json!({ "prompt": ["Once upon", "The"], "max_tokens": 4, "logprobs": 2, "echo": true })),
        ("/v1/completions", json!({ "prompt": [1, 5, 9], "max_tokens": 4 })),
        ("/v1/responses", json!({ "input": "Once upon a time", "max_output_tokens": 4 })),
        (
            "/v1/responses",
            json!({
                "input": "Once upon a time", "max_output_tokens": 9, "top_logprobs": 2, "include": ["message.output_text.logprobs"],
            }),
        ),
        ("/v1/responses", json!({ "input": "Hi", "tools": [flat], "tool_choice": "required", "seed": 3 })),
        ("/v1/responses/input_tokens", json!({ "input": "Hi" })),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 4 })),
        (
            "/v1/messages",
            json!({ "messages": messages, "max_tokens": 300, "tools": [own], "tool_choice": { "type": "any" } }),
        ),
        ("/v1/messages/count_tokens", json!({ "messages": messages })),
        (
            "/api/chat",
            json!({ "model": "demo", "messages": messages, "options": options, "logprobs": true, "top_logprobs": 1 }),
        ),
        ("/api/generate", json!({ "model": "demo", "prompt": "Once upon", "raw": true, "options": options })),
        ("/api/show", json!({ "model": "demo" })),
        ("/completion", json!({ "prompt": "Once upon", "n_predict": 4, "n_probs": 2, "return_tokens": true })),
        ("/completion", json!({ "prompt": ["Once", [1, 5, "a"]], "n_predict": 2, "response_fields": ["content"] })),
        ("/tokenize", json!({ "content": "Hi", "with_pieces": true })),
        ("/tokenize", json!({ "messages": messages, "return_token_strs": true })),
        ("/detokenize", json!({ "tokens": [5, 9] })),
        ("/apply-template", json!({ "messages": messages })),
    ]
}

#[test]
fn answers_and_events_hold_the_description() {
    let chat = demo(&[]);
    let description = Description::of(&chat);
    let mut seen = std::collections::BTreeSet::new();
    let mut hold = |path: &str, method: &str, status: u16, kind: &str, text: &str| {
        let operation = description.operation(path, method);
        let validator = description.validator(schema(operation, status, kind));
        let values: Vec<&str> = match kind {
            "text/event-stream" => {
                text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]").collect()
            }
            "application/x-ndjson" => text.lines().collect(),
            _ => vec![text],
        };
        assert!(!values.is_empty(), "{path}: nothing in {text}");
        for value in values {
            let value: Value = serde_json::from_str(value).unwrap_or_else(|error| panic!("{path}: {error} in {value}"));
            let wrong: Vec<String> =
                validator.iter_errors(&value).map(|error| format!("{} at {}", error, error.instance_path())).collect();
            assert!(wrong.is_empty(), "{method} {path}, {status}, {kind}: {wrong:?} in {value}");
        }
        if status == 200 {
            seen.insert((operation["operationId"].as_str().expect("a name").to_owned(), kind.to_owned()));
        }
    };
    let vectors = serve(&fixture("embeddings/bert"), &[]);
    let ranks = serve(&fixture("embeddings/cross-encoder"), &[]);
    let of_vectors = [
        ("/v1/embeddings", json!({ "input": ["a cat", "Hi"] })),
        ("/v1/embeddings", json!({ "input": [5, 9], "encoding_format": "base64" })),
        ("/embedding", json!({ "content": "a cat" })),
        ("/api/embed", json!({ "model": "bert", "input": "a cat" })),
        ("/api/embeddings", json!({ "model": "bert", "prompt": "a cat" })),
    ];
    let of_ranks = [
        ("/v1/rerank", json!({ "query": "a", "documents": ["b", { "text": "c" }], "return_documents": true })),
        ("/rerank", json!({ "query": "a", "texts": ["b", "c"], "return_text": true })),
    ];
    let asked = requests().into_iter().map(|(path, body)| (&chat, path, body));
    let asked = asked.chain(of_vectors.map(|(path, body)| (&vectors, path, body)));
    for (server, path, mut body) in asked.chain(of_ranks.map(|(path, body)| (&ranks, path, body))) {
        let operation = description.operation(path, "post");
        let validator = description.validator(operation.pointer(BODY).expect("a body"));
        let streams: Vec<&String> =
            operation["responses"]["200"]["content"].as_object().expect("an object").keys().collect();
        for kind in streams {
            if operation["responses"]["200"]["content"].as_object().is_some_and(|kinds| kinds.len() > 1) {
                body["stream"] = json!(kind != "application/json");
            }
            assert!(validator.is_valid(&body), "{path}: {body}");
            let (status, text) = read(server.send(path, body.to_string().as_bytes()));
            assert_eq!(status, 200, "{path}: {text}");
            hold(path, "post", 200, kind, &text);
        }
        // What every operation may be refused with.
        for (status, body) in [
            (400, "{"),
            (404, &*{
                body["model"] = json!("other");
                body.to_string()
            }),
        ] {
            let (found, text) = read(server.send(path, body.as_bytes()));
            assert_eq!(found, status, "{path}: {text}");
            hold(path, "post", status, "application/json", &text);
        }
    }
    let others = [
        ("/health", "/health"),
        ("/v1/models", "/v1/models"),
        ("/v1/models/{id}", "/v1/models/demo"),
        ("/lora-adapters", "/lora-adapters"),
        ("/openapi.json", "/openapi.json"),
        ("/props", "/props"),
        ("/slots", "/slots"),
        ("/api/tags", "/api/tags"),
        ("/api/ps", "/api/ps"),
        ("/api/version", "/api/version"),
    ];
    for (path, at) in others {
        let (status, text) = chat.get(at);
        hold(path, "get", status, "application/json", &text);
    }
    let (_, kept) = chat.post("/v1/responses", &json!({ "input": "Hi", "max_output_tokens": 2 }));
    let at = format!("/v1/responses/{}", kept["id"].as_str().expect("an id"));
    let id = "/v1/responses/{id}";
    hold(id, "get", 200, "application/json", &chat.get(&at).1);
    hold(&format!("{id}/input_items"), "get", 200, "application/json", &chat.get(&format!("{at}/input_items")).1);
    hold(id, "delete", 200, "application/json", &super::delete(&chat, &at).1.to_string());
    hold(id, "get", 404, "application/json", &chat.get(&at).1);

    let mut unseen = Vec::new();
    for operation in description.paths().flat_map(|(_, item)| item.as_object().expect("an object").values()) {
        let name = operation["operationId"].as_str().expect("a name");
        let kinds = operation["responses"]["200"]["content"].as_object().expect("an object").keys();
        unseen.extend(kinds.filter(|kind| !seen.contains(&(name.to_owned(), (*kind).clone()))).map(|_| name));
    }
    unseen.sort_unstable();
    // The demo has no tokens to fill in with, and the others are no JSON.
    assert_eq!(unseen, ["infill", "infill", "metrics", "page"]);
}
