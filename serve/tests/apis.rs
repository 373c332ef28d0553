//! The APIs other than OpenAI's first ones, as their clients meet them.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;
mod openapi;

use common::{Server, demo, fixture, read, serve};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";

fn json_of((status, text): (u16, String)) -> (u16, Value) {
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}")))
}

/// What `DELETE` of `path` answers.
fn delete(server: &Server, path: &str) -> (u16, Value) {
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let answer = agent.delete(format!("http://{}{path}", server.address)).call().expect("it answers");
    json_of(read(answer))
}

/// The text of a response.
fn said(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {response}"))
}

#[test]
fn responses_are_kept_and_go_on_until_they_are_forgotten() {
    let server = demo(&[]);
    let body = |input: Value| json!({ "input": input, "max_output_tokens": 8, "temperature": 0 });
    let (status, first) = server.post(RESPONSES, &body(json!("Once upon a time")));
    assert_eq!((status, &first["status"], &first["model"]), (200, &json!("incomplete"), &json!("demo")), "{first}");
    let chat =
        json!({ "messages": [{ "role": "user", "content": "Once upon a time" }], "max_tokens": 8, "temperature": 0 });
    let (_, chat) = server.post("/v1/chat/completions", &chat);
    assert_eq!(said(&first), chat["choices"][0]["message"]["content"], "the same bits by either API");

    // What is kept is as good as sending all again.
    let id = first["id"].as_str().expect("an id");
    let mut more = body(json!("And then?"));
    more["previous_response_id"] = json!(id);
    let (status, second) = server.post(RESPONSES, &more);
    assert_eq!(status, 200, "{second}");
    let all = json!([{ "role": "user", "content": "Once upon a time" }, first["output"][0], { "role": "user", "content": "And then?" }]);
    let (_, again) = server.post(RESPONSES, &body(all));
    assert_eq!((said(&second), &second["usage"]["input_tokens"]), (said(&again), &again["usage"]["input_tokens"]));
    let counted = json!({ "input": "And then?", "previous_response_id": id });
    let (_, counted) = server.post("/v1/responses/input_tokens", &counted);
    assert_eq!(counted, json!({ "input_tokens": again["usage"]["input_tokens"], "object": "response.input_tokens" }));

    // A streamed one is kept too, and its events have their names.
    let mut streamed = body(json!("The fox"));
    streamed["stream"] = json!(true);
    let (status, text) = read(server.send(RESPONSES, streamed.to_string().as_bytes()));
    assert_eq!(status, 200, "{text}");
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, events.iter().map(|event| event["type"].as_str().expect("a type")).collect::<Vec<_>>());
    assert_eq!(names.last(), Some(&"response.incomplete"), "{text}");
    let last = &events.last().expect("an event")["response"];
    let path = |id: &Value| format!("{RESPONSES}/{}", id.as_str().expect("an id"));
    assert_eq!(json_of(server.get(&path(&last["id"]))), (200, last.clone()));
    assert_eq!(json_of(server.get(&path(&second["id"]))), (200, second.clone()));
    let (_, items) = json_of(server.get(&format!("{}/input_items?order=asc&limit=1", path(&second["id"]))));
    assert_eq!((&items["data"][0]["content"][0]["text"], &items["has_more"]), (&json!("And then?"), &json!(false)));

    let deleted = json!({ "id": id, "object": "response", "deleted": true });
    assert_eq!(delete(&server, &path(&first["id"])), (200, deleted));
    let mut unkept = body(json!("Hi"));
    unkept["store"] = json!(false);
    let (_, unkept) = server.post(RESPONSES, &unkept);
    for gone in [&first["id"], &unkept["id"]] {
        let (status, refused) = json_of(server.get(&path(gone)));
        assert_eq!((status, &refused["error"]["param"]), (404, &json!("response_id")), "{refused}");
        assert_eq!(delete(&server, &path(gone)).0, 404);
        let mut more = body(json!("And then?"));
        more["previous_response_id"] = gone.clone();
        let (status, refused) = server.post(RESPONSES, &more);
        assert_eq!((status, &refused["error"]["code"]), (400, &json!("previous_response_not_found")), "{refused}");
    }
    more["previous_response_id"] = second["id"].clone();
    assert_eq!(server.post(RESPONSES, &more).0, 200, "what others go on with stays");
    for (param, query) in
        [("stream", "?stream=true"), ("limit", "/input_items?limit=0"), ("order", "/input_items?order=up")]
    {
        let (status, refused) = json_of(server.get(&format!("{}{query}", path(&second["id"]))));
        assert_eq!((status, &refused["error"]["param"]), (400, &json!(param)), "{refused}");
    }
}

#[test]
fn kept_responses_are_bounded() {
    let server = demo(&["--response-memory", "40000", "--body-limit", "20000"]);
    let ask = |input: &str, previous: Option<&Value>| {
        let body = json!({ "input": input, "max_output_tokens": 1, "previous_response_id": previous });
        server.post(RESPONSES, &body)
    };
    let (_, first) = ask("Hi", None);
    let others: Vec<Value> = (0..40).map(|index| ask(&format!("Number {index}"), None).1).collect();
    assert_eq!(ask("Go on", Some(&first["id"])).0, 400, "it was used longest ago");
    assert_eq!(ask("Go on", Some(&others[39]["id"])).0, 200);
    // A conversation is no longer than a request may be.
    let spaces = " ".repeat(9_000);
    let (status, large) = server.post(
        RESPONSES,
        &json!({ "input": [{ "role": "user", "content": "Hi", "id": spaces }], "max_output_tokens": 1 }),
    );
    assert_eq!(status, 200, "{large}");
    assert_eq!(ask("Go on", Some(&large["id"])).0, 200);
    let (status, refused) = ask(&" ".repeat(11_000), Some(&large["id"]));
    assert_eq!(status, 413, "{refused}");
}

#[test]
fn documents_are_ranked_and_texts_are_tokenized() {
    let server = serve(&fixture("embeddings/cross-encoder"), &["--name", "rank"]);
    let asked =
        json!({ "model": "rank", "query": "the cat", "documents": ["The cat sat on the mat.", "running"], "top_n": 1 });
    let (status, first) = server.post("/v1/rerank", &asked);
    assert_eq!((status, first["results"].as_array().map(Vec::len)), (200, Some(1)), "{first}");
    for path in ["/rerank", "/reranking", "/v1/reranking", "/v2/rerank"] {
        assert_eq!(server.post(path, &asked), (200, first.clone()), "{path}");
    }
    let (status, refused) = server.post("/rerank", &json!({ "model": "other", "query": "a", "documents": ["b"] }));
    assert_eq!((status, &refused["error"]["param"]), (404, &json!("model")));
    let (status, refused) = server.post("/rerank", &json!({ "query": "a", "documents": ["word ".repeat(3000)] }));
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("documents")), "{refused}");

    let server = demo(&["--rerank", "Given a question, find its answer"]);
    let (status, refused) = server.post("/rerank", &asked);
    assert_eq!(status, 404, "{refused}");
    let (status, refused) = server.post("/rerank", &json!({ "query": "a", "documents": ["b"] }));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status >= 400 && message.contains("yes"), "the demo model has no token yes: {refused}");
    let (status, tokens) = server.post("/tokenize", &json!({ "content": "Once upon a time" }));
    assert_eq!(status, 200, "{tokens}");
    let (_, text) = server.post("/detokenize", &json!({ "tokens": tokens["tokens"] }));
    assert_eq!(text["content"].as_str().map(str::trim_start), Some("Once upon a time"));
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let (status, prompt) = server.post("/apply-template", &json!({ "messages": messages }));
    assert!(status == 200 && prompt["prompt"].as_str().is_some_and(|prompt| prompt.contains("Hi")), "{prompt}");
    let (_, counted) = server.post("/v1/chat/completions/input_tokens", &json!({ "messages": messages }));
    let (_, tokens) = server.post("/tokenize", &json!({ "messages": messages }));
    assert_eq!(tokens["count"], counted["input_tokens"]);
}

#[test]
fn ollama_is_answered_in_lines() {
    let server = demo(&[]);
    let asked = |stream: bool, model: &str| {
        let messages = json!([{ "role": "user", "content": "Once upon a time" }]);
        let options = json!({ "num_predict": 8, "temperature": 0 });
        json!({ "model": model, "messages": messages, "options": options, "stream": stream })
    };
    let (status, whole) = server.post("/api/chat", &asked(false, "demo:latest"));
    assert_eq!((status, &whole["done_reason"], &whole["eval_count"]), (200, &json!("length"), &json!(8)), "{whole}");
    let chat =
        json!({ "messages": [{ "role": "user", "content": "Once upon a time" }], "max_tokens": 8, "temperature": 0 });
    let (_, chat) = server.post("/v1/chat/completions", &chat);
    assert_eq!(whole["message"]["content"], chat["choices"][0]["message"]["content"], "the same bits by either API");
    let response = server.send("/api/chat", asked(true, "demo").to_string().as_bytes());
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let (_, text) = read(response);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let said: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!(json!(said), whole["message"]["content"]);
    assert_eq!(lines.last().map(|line| &line["done"]), Some(&json!(true)), "{text}");
    let generate = json!({ "model": "demo", "prompt": "Once upon a time", "options": { "num_predict": 8, "temperature": 0 }, "stream": false });
    assert_eq!(server.post("/api/generate", &generate).1["response"], json!(said));

    for (path, body) in [("/api/chat", asked(false, "llama3")), ("/api/show", json!({ "model": "llama3" }))] {
        let (status, refused) = server.post(path, &body);
        assert!(status == 404 && refused["error"].is_string(), "{path}: {refused}");
    }
    let (status, refused) = json_of(server.get("/api/blobs"));
    assert!(status == 404 && refused["error"].is_string(), "{refused}");
    for path in ["/api/tags", "/api/ps"] {
        let (status, listed) = json_of(server.get(path));
        assert_eq!((status, &listed["models"][0]["name"]), (200, &json!("demo:latest")), "{path}: {listed}");
    }
    assert!(json_of(server.get("/api/version")).1["version"].is_string());
    let (_, shown) = server.post("/api/show", &json!({ "model": "demo:latest" }));
    assert_eq!(
        (&shown["details"]["family"], &shown["capabilities"][0]),
        (&json!("llama"), &json!("completion")),
        "{shown}"
    );

    let server = serve(&fixture("embeddings/bert"), &["--name", "bert:latest"]);
    let (status, vectors) = server.post("/api/embed", &json!({ "model": "bert:latest", "input": ["Cats run.", "Hi"] }));
    assert_eq!((status, vectors["embeddings"].as_array().map(Vec::len)), (200, Some(2)), "{vectors}");
    let (_, one) = server.post("/api/embeddings", &json!({ "model": "bert:latest", "prompt": "Cats run." }));
    assert_eq!(one["embedding"], vectors["embeddings"][0]);
    assert_eq!(server.post("/api/embed", &json!({ "model": "bert", "input": "Hi" })).0, 404);
}

#[test]
fn clients_of_llama_cpp_find_their_paths() {
    let server = demo(&["--sessions", "2", "--context", "128"]);
    let body = json!({ "prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "return_tokens": true });
    let (status, own) = server.post("/completion", &body);
    assert_eq!((status, &own["stop"], &own["stop_type"]), (200, &json!(true), &json!("limit")), "{own}");
    let openai = json!({ "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0 });
    let (_, openai) = server.post("/v1/completions", &openai);
    assert_eq!(own["content"], openai["choices"][0]["text"], "the same bits by either API");
    let fingerprint = openai["system_fingerprint"].as_str().expect("a text");
    assert!(fingerprint.len() == 17 && fingerprint.starts_with('b'), "{fingerprint}");

    // A stream ends by its last event, without [DONE].
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (status, text) = read(server.send("/completions", streamed.to_string().as_bytes()));
    assert_eq!(status, 200, "{text}");
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let said: String = events.iter().filter_map(|event| event["content"].as_str()).collect();
    assert_eq!(
        (said.as_str(), &events[events.len() - 1]["stop"]),
        (own["content"].as_str().expect("text"), &json!(true))
    );
    let both = json!({ "prompt": ["Once upon a time", own["tokens"]], "n_predict": 2 });
    assert_eq!(server.post("/completion", &both).1.as_array().map(Vec::len), Some(2));

    // The names of paths without /v1 are theirs too, but for those that have another form there.
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2, "temperature": 0 });
    let told = |path: &str| server.post(path, &chat).1["choices"][0]["message"]["content"].clone();
    assert_eq!(told("/chat/completions"), told("/v1/chat/completions"));
    assert_eq!(json_of(server.get("/models")), json_of(server.get("/v1/models")));
    assert_eq!(server.get("/v1/health"), server.get("/health"));
    assert_eq!(server.post("/responses", &json!({ "input": "Hi", "max_output_tokens": 2 })).0, 200);
    for (path, body) in
        [("/chat/completions/input_tokens", chat.clone()), ("/responses/input_tokens", json!({ "input": "Hi" }))]
    {
        assert!(server.post(path, &body).1["input_tokens"].as_u64() > Some(0), "{path}");
    }

    let (status, props) = json_of(server.get("/props"));
    let settings = &props["default_generation_settings"];
    assert_eq!((status, &props["total_slots"], &settings["n_ctx"]), (200, &json!(2), &json!(128)), "{props}");
    assert_eq!((&props["bos_token"], &props["model_path"]), (&json!("<|bos|>"), &json!("demo")));
    let (_, slots) = json_of(server.get("/slots?fail_on_no_slot=1"));
    let slot = |id| json!({ "id": id, "n_ctx": 128, "speculative": false, "is_processing": false });
    assert_eq!(slots, json!([slot(0), slot(1)]));

    // Errors have their form.
    let long = json!({ "prompt": "Once upon a time ".repeat(200) });
    for (path, body, status, kind) in [
        ("/completion", json!({ "prompt": "a", "x": 1 }), 400, "invalid_request_error"),
        ("/completion", json!({ "prompt": "a", "model": "other" }), 404, "not_found_error"),
        ("/completion", long, 400, "exceed_context_size_error"),
        ("/infill", json!({ "input_prefix": "a", "input_suffix": "b" }), 400, "invalid_request_error"),
        ("/embedding", json!({}), 400, "invalid_request_error"),
    ] {
        let (found, error) = server.post(path, &body);
        assert_eq!(
            (found, &error["error"]["code"], &error["error"]["type"]),
            (status, &json!(status), &json!(kind)),
            "{error}"
        );
    }
    let server = serve(&fixture("embeddings/bert"), &[]);
    let (_, openai) = server.post("/v1/embeddings", &json!({ "input": "a cat" }));
    let vector = json!([{ "index": 0, "embedding": [openai["data"][0]["embedding"]] }]);
    assert_eq!(server.post("/embedding", &json!({ "content": "a cat" })), (200, vector.clone()));
    assert_eq!(server.post("/embeddings", &json!({ "input": "a cat" })), (200, vector));
}
