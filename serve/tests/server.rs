//! The server as its clients meet it: what it answers, what it refuses, and who is let in.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, demo, fixture, read, rest, serve};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// A chat of one turn that ends after `tokens`.
fn chat(tokens: usize) -> Value {
    json!({ "model": "demo", "messages": [{ "role": "user", "content": "Once upon a time" }], "max_tokens": tokens })
}

/// `base` with the fields of `more`.
fn with(mut base: Value, more: Value) -> Value {
    let more = more.as_object().expect("fields").clone();
    base.as_object_mut().expect("fields").extend(more);
    base
}

#[test]
fn a_stream_is_the_whole_answer_in_parts() {
    let server = demo(&[]);
    let logprobs = json!({ "logprobs": true, "top_logprobs": 2, "seed": 7, "temperature": 0.8, "n": 2 });
    let asked = with(chat(12), logprobs);
    let (status, whole) = server.post(CHAT, &asked);
    assert_eq!((status, &whole["object"]), (200, &json!("chat.completion")), "{whole}");
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");

    let stream = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let events = server.events(CHAT, &with(asked, stream));
    let last = events.last().expect("an event");
    for (field, expected) in [("prompt_tokens", 8), ("completion_tokens", 24), ("total_tokens", 32)] {
        assert_eq!((&last["usage"][field], &whole["usage"][field]), (&json!(expected), &json!(expected)));
    }
    for choice in 0..2 {
        let parts = || events.iter().flat_map(|event| event["choices"].as_array().expect("a list"));
        let own = || parts().filter(|part| part["index"] == choice);
        let text: String = own().filter_map(|part| part["delta"]["content"].as_str()).collect();
        let tokens: Vec<&Value> = own().filter_map(|part| part["logprobs"]["content"].as_array()).flatten().collect();
        let expected = &whole["choices"][choice];
        assert_eq!(json!(text), expected["message"]["content"]);
        assert_eq!(json!(tokens), expected["logprobs"]["content"], "ids and log-probabilities to the bit");
        assert_eq!(tokens.len(), 12);
        assert_eq!(own().filter(|part| part["delta"]["role"] == "assistant").count(), 1);
    }
    assert_ne!(whole["choices"][0]["message"], whole["choices"][1]["message"], "seeds differ");
}

#[test]
fn texts_are_continued_from_texts_and_from_ids() {
    let server = demo(&[]);
    let options = json!({ "max_tokens": 5, "temperature": 0, "logprobs": 1 });
    let ask = |prompt: Value| server.post(TEXT, &with(json!({ "prompt": prompt }), options.clone())).1;
    let (one, two) = (ask(json!("Once upon a time")), ask(json!(["Once upon a time", "The fox was"])));
    assert_eq!(one["object"], "text_completion");
    assert_eq!(one["choices"][0], two["choices"][0]);
    assert_ne!(one["choices"][0]["text"], two["choices"][1]["text"]);
    assert_eq!(one["choices"][0]["logprobs"]["tokens"].as_array().map(Vec::len), Some(5));
    assert_eq!(two["usage"]["completion_tokens"], 10);

    let ids = ask(json!([1, 5, 9]));
    assert_eq!(ids["usage"]["prompt_tokens"], 3);
    assert_eq!(ask(json!([[1, 5, 9], [1, 5]]))["choices"][0], ids["choices"][0]);
}

#[test]
fn answers_keep_schemas_stops_and_tools() {
    let server = demo(&[]);
    let schema = json!({
        "type": "object",
        "properties": { "age": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["age"],
        "additionalProperties": false,
    });
    let format =
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "age", "schema": schema } } });
    let (_, answer) = server.post(CHAT, &with(chat(100), format));
    let text = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    let value: Value = serde_json::from_str(text).expect("JSON");
    assert!(value["age"].as_u64().is_some_and(|age| age <= 9), "{text}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");

    let (_, free) = server.post(CHAT, &with(chat(30), json!({ "temperature": 0 })));
    let (_, stopped) = server.post(CHAT, &with(chat(30), json!({ "temperature": 0, "stop": "was" })));
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].as_str().map(str::to_owned).expect("a text");
    let (before, _) = text(&free).split_once("was").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("it says was");
    assert_eq!((text(&stopped), &stopped["choices"][0]["finish_reason"]), (before, &json!("stop")));

    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let tool = json!({ "type": "function", "function": {
        "name": "add",
        "parameters": { "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"] },
    } });
    let named = json!({ "type": "function", "function": { "name": "add" } });
    let tools = with(chat(300), json!({ "tools": [tool], "tool_choice": named, "seed": 3 }));
    let (_, answer) = server.post(CHAT, &tools);
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null),
        "{answer}"
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("add")));
    let arguments = call["function"]["arguments"].as_str().expect("a text");
    assert!(serde_json::from_str::<Value>(arguments).expect("JSON")["b"].is_u64(), "{arguments}");

    let id_of = |seed: usize| {
        let (_, answer) = server.post(CHAT, &with(tools.clone(), json!({ "seed": seed })));
        answer["choices"][0]["message"]["tool_calls"][0]["id"].clone()
    };
    assert_eq!(id_of(3), call["id"]);
    assert_ne!(id_of(4), call["id"], "another answer has other ids");

    // The call and its result, as a client sends them back.
    let messages = json!([
        { "role": "user", "content": "What is 1 + 2?" },
        choice["message"],
        { "role": "tool", "tool_call_id": call["id"], "content": "3" },
    ]);
    let (status, answer) = server.post(CHAT, &with(chat(5), json!({ "messages": messages, "tools": tools["tools"] })));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn thought_is_apart_from_the_answer() {
    // Its template opens a thought, and random weights do not end it.
    let server = serve(&fixture("models/r1-distill-qwen/bf16"), &["--name", "demo"]);
    let (_, answer) = server.post(CHAT, &with(chat(12), json!({ "temperature": 0, "ignore_eos": true })));
    let message = &answer["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().is_some_and(|thought| !thought.is_empty()), "{answer}");
    assert_eq!(message["content"], Value::Null);
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 12);

    // The budget of the server, that of a request, and the one of Anthropic's requests.
    let limited = serve(&fixture("models/r1-distill-qwen/bf16"), &["--name", "demo", "--reasoning-budget", "5"]);
    let thought = |server: &Server, fields: Value| {
        let asked = with(with(chat(30), json!({ "temperature": 0, "ignore_eos": true })), fields);
        let (_, answer) = server.post(CHAT, &asked);
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().expect("a number")
    };
    // The mark counts as thought, and up to three tokens complete a character.
    for (server, fields, most) in [
        (&limited, json!({}), 5),
        (&limited, json!({ "thinking_budget_tokens": 0 }), 0),
        (&limited, json!({ "thinking_budget": 12 }), 12),
        (&server, json!({ "thinking_token_budget": 9 }), 9),
    ] {
        let found = thought(server, fields.clone());
        assert!((most + 1..=most + 4).contains(&found), "{fields}: {found}");
    }
    assert_eq!((thought(&limited, json!({ "thinking_budget": -1 })), thought(&server, json!({}))), (30, 30));
    let thinking = json!({ "type": "enabled", "budget_tokens": 3 });
    let asked = json!({ "max_tokens": 20, "temperature": 0, "thinking": thinking, "messages": [{ "role": "user", "content": "Hi" }] });
    let (_, answer) = server.post("/v1/messages", &asked);
    let kinds: Vec<&str> =
        answer["content"].as_array().into_iter().flatten().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(kinds, ["thinking", "text"], "{answer}");

    // `</think>` is the likeliest token now, and in the answer the schema leaves no place for it.
    let schema = json!({ "type": "json_schema", "json_schema": { "schema": { "const": 7 } } });
    let asked = with(chat(12), json!({ "temperature": 0, "logit_bias": { "311": 100 }, "response_format": schema }));
    let (_, answer) = server.post(CHAT, &asked);
    assert_eq!(
        answer["choices"][0]["message"],
        json!({ "content": "7", "refusal": null, "role": "assistant" }),
        "{answer}"
    );
}

#[test]
fn vectors_are_the_same_as_numbers_and_as_bytes() {
    let server = serve(&fixture("embeddings/bert"), &[]);
    let asked = json!({ "input": ["The cat sat on the mat.", "Cats run."] });
    let (status, numbers) = server.post("/v1/embeddings", &asked);
    assert_eq!(status, 200, "{numbers}");
    assert_eq!(numbers["data"][1]["embedding"].as_array().map(Vec::len), Some(16));
    assert!(numbers["usage"]["prompt_tokens"].as_u64().is_some_and(|tokens| tokens > 6));
    let (_, bytes) = server.post("/v1/embeddings", &with(asked, json!({ "encoding_format": "base64" })));
    assert_eq!(bytes["data"][1]["embedding"].as_str().map(str::len), Some(88), "64 bytes, in base64");
    let (_, one) = server.post("/v1/embeddings", &json!({ "input": "Cats run.", "dimensions": 8 }));
    assert_eq!(one["data"][0]["embedding"].as_array().map(Vec::len), Some(8));
    let (status, refused) = server.post(TEXT, &json!({ "prompt": "Hi" }));
    assert_eq!((status, &refused["error"]["type"]), (501, &json!("server_error")), "an encoder says nothing");
    let (status, refused) = server.post(TEXT, &json!({ "prompt": "Hi", "stream": true }));
    assert_eq!((status, &refused["error"]["type"]), (501, &json!("server_error")), "nor does it begin to");
    assert_eq!(server.post("/v1/embeddings", &json!({ "input": [1, 2] })).0, 200);
}

/// Anthropic's Messages: whole, as events with names, with its own header for the key and its own form of errors.
#[test]
fn messages_are_answered_in_the_form_of_anthropic() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "secret").expect("it is written");
    let server = demo(&["--api-key-file", file.to_str().expect("UTF-8")]);
    let ask = |key: &str, body: &Value| {
        let (host, body) = (&server.address, body.to_string());
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        rest(&mut server.connect(request.as_bytes()))
    };
    let body = |stream: bool| json!({ "max_tokens": 4, "temperature": 0, "stream": stream, "messages": [{ "role": "user", "content": "Once" }] });
    let refused = ask("wrong", &body(false));
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.to_lowercase().contains("www-authenticate: bearer"),
        "{refused}"
    );
    assert!(refused.contains(r#""type":"authentication_error""#), "{refused}");
    let wrong = ask("secret", &json!({ "messages": 3 }));
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains(r#""type":"invalid_request_error""#), "{wrong}");
    let missing = rest(
        &mut server.connect(
            format!(
                "GET /v1/messages/batches HTTP/1.1\r\nhost: {}\r\nx-api-key: secret\r\nconnection: close\r\n\r\n",
                server.address
            )
            .as_bytes(),
        ),
    );
    assert!(missing.starts_with("HTTP/1.1 404") && missing.contains(r#""type":"not_found_error""#), "{missing}");
    let whole = ask("secret", &body(false));
    let (head, answer) = whole.split_once("\r\n\r\n").expect("a body");
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert!(head.starts_with("HTTP/1.1 200") && answer["stop_reason"] == "max_tokens", "{whole}");
    let text = answer["content"][0]["text"].as_str().expect("a text");
    let stream = ask("secret", &body(true));
    let events = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let deltas: String = events.filter_map(|event| Some(event["delta"]["text"].as_str()?.to_owned())).collect();
    assert_eq!(deltas, text);
    assert!(stream.contains("event: message_start") && stream.contains("event: message_stop"), "{stream}");
}

#[test]
fn what_is_wrong_is_named() {
    let server = demo(&["--body-limit", "20000"]);
    let long = "word ".repeat(600);
    for (status, param, fields) in [
        (400, "messages", json!({ "messages": null })),
        (400, "messages[0].role", json!({ "messages": [{ "content": "no role" }] })),
        (400, "messages", json!({ "messages": [] })),
        (
            400,
            "messages[0].content[0].image_url",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }),
        ),
        (400, "messages", json!({ "messages": [{ "role": "user", "content": long }] })),
        (400, "temperature", json!({ "temperature": -1 })),
        (400, "top_p", json!({ "top_p": "much" })),
        (400, "n", json!({ "n": 1000 })),
        (400, "stop", json!({ "stop": [""] })),
        (400, "top_logprobs", json!({ "logprobs": true, "top_logprobs": 21 })),
        (400, "top_logprobs", json!({ "top_logprobs": 2 })),
        (400, "tools[0]", json!({ "tools": [{ "type": "web_search" }] })),
        (400, "tools", json!({ "tool_choice": "required" })),
        (400, "tool_choice", json!({ "tool_choice": "sometimes" })),
        (400, "response_format.type", json!({ "response_format": { "type": "xml" } })),
        (
            400,
            "response_format",
            json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": { "not": {} } } } }),
        ),
        (400, "echo", json!({ "echo": true })),
        (400, "audio", json!({ "audio": { "voice": "alloy" } })),
        (404, "model", json!({ "model": "gpt-4o" })),
    ] {
        let (found, answer) = server.post(CHAT, &with(chat(4), fields.clone()));
        assert_eq!((found, &answer["error"]["param"]), (status, &json!(param)), "{fields}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    for prompt in [json!([]), json!(3), json!(["a", 3]), json!([[]]), json!([70_000])] {
        let (status, answer) = server.post(TEXT, &json!({ "prompt": prompt }));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt")), "{prompt}: {answer}");
    }
    // What asks for nothing else than is done.
    let (status, answer) = server.post(
        CHAT,
        &with(chat(4), json!({ "user": "somebody", "store": false, "parallel_tool_calls": false, "audio": null })),
    );
    assert_eq!(status, 200, "{answer}");

    let too_large = vec![b' '; 20_001];
    assert_eq!(read(server.send(CHAT, &too_large)).0, 413);
    for body in [&b""[..], b"{", b"[]", b"\xff\xfe", b"{\"messages\": "] {
        assert_eq!(read(server.send(CHAT, body)).0, 400, "{body:?}");
    }
    assert_eq!(server.get("/v1/nothing").0, 404);
    assert_eq!(server.get(CHAT).0, 405);
    assert_eq!(server.get("/v1/models/demo").0, 200);
    assert_eq!(server.get("/v1/models/other").0, 404);
    assert!(server.get("/metrics").1.contains("serve_requests_total{path=\"/v1/chat/completions\",status=\"413\"} 1"));
}

#[test]
fn only_who_may_ask_is_let_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "secret\n").expect("it is written");
    let mut server = demo(&["--api-key-file", file.to_str().expect("UTF-8"), "--cors", "https://example.com"]);
    for key in [None, Some("wrong"), Some("secret2"), Some("")] {
        server.key = key.map(str::to_owned);
        assert_eq!(server.get("/v1/models").0, 401, "{key:?}");
        assert_eq!(server.get("/metrics").0, 401, "{key:?}");
        assert_eq!(server.post(CHAT, &chat(4)).1["error"]["code"], "invalid_api_key");
        assert_eq!((server.get("/").0, server.get("/health").0), (200, 200), "{key:?}");
    }
    server.key = Some("secret".into());
    assert_eq!(server.get("/v1/models").0, 200);
    let host = &server.address;
    let ask = |head: &str| rest(&mut server.connect(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()));
    let preflight = ask(&format!("OPTIONS {CHAT} HTTP/1.1\r\nhost: {host}"));
    assert!(
        preflight.starts_with("HTTP/1.1 200") && preflight.contains("access-control-allow-origin: https://example.com")
    );

    // A name that somebody made to mean this machine, and a form of somebody's page.
    let (server, key) = (demo(&[]), "authorization: bearer secret");
    let ask = |head: &str| rest(&mut server.connect(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()));
    assert!(ask("GET / HTTP/1.1\r\nhost: example.com:80").starts_with("HTTP/1.1 403"));
    for host in ["localhost:80", "LOCALHOST", "[::1]:80"] {
        assert!(ask(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n{key}")).starts_with("HTTP/1.1 200"), "{host}");
    }
    let named = ask("GET /health HTTP/1.1\r\nhost: localhost\r\nx-request-id: mine");
    assert!(
        named.contains("x-request-id: mine")
            && ask("GET /health HTTP/1.1\r\nhost: localhost").contains("x-request-id: req_")
    );
    let form =
        |kind| format!("POST {CHAT} HTTP/1.1\r\nhost: [::1]\r\ncontent-type: {kind}\r\ncontent-length: 2\r\n\r\n{{}}");
    for (kind, status) in [
        ("text/plain", 415),
        ("application/jsonp", 415),
        ("application/json", 400),
        ("Application/JSON", 400),
        ("application/json; charset=utf-8", 400),
    ] {
        let found = ask_whole(&server, &form(kind));
        assert!(found.starts_with(&format!("HTTP/1.1 {status}")), "{kind}: {found}");
    }
    assert!(!ask("GET /health HTTP/1.1\r\nhost: localhost").contains("access-control"));
}

/// What comes for a whole request, in a connection that ends after it.
fn ask_whole(server: &Server, request: &str) -> String {
    rest(&mut server.connect(request.replacen("host:", "connection: close\r\nhost:", 1).as_bytes()))
}

/// Where neither a key nor the address keeps pages of elsewhere out, names do.
#[test]
fn an_open_server_answers_to_its_addresses_and_its_names() {
    let names = ["--host", "0.0.0.0", "--allowed-host", "model.example.com", "--allowed-host", "Other.Example.com"];
    let server = demo(&names);
    for (host, status) in [
        ("evil.example.com", 403),
        ("127.0.0.1:80", 200),
        ("192.168.0.7", 200),
        ("localhost", 200),
        ("Model.example.com:80", 200),
        ("other.example.com", 200),
    ] {
        let found = ask_whole(&server, &format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert!(found.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {found}");
    }
}

/// A story that goes on until somebody ends it.
fn endless() -> Value {
    with(chat(100_000), json!({ "stream": true, "ignore_eos": true }))
}

#[test]
fn a_client_that_goes_away_ends_its_generation_and_a_full_queue_says_so() {
    // A model that is not done in a moment: its context is long.
    let server = serve(&fixture("models/llama-3.1/bf16"), &["--sessions", "1", "--queue", "1", "--name", "demo"]);
    let mut first = server.begin(CHAT, &endless());
    first.read_exact(&mut [0; 15]).expect("it answers");
    server.wait_for("serve_running", |running| running == 1);
    let whole = with(endless(), json!({ "stream": false }));
    let second = server.begin(CHAT, &whole);
    server.wait_for("serve_waiting", |waiting| waiting == 1);
    let refused = server.send(CHAT, chat(1).to_string().as_bytes());
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().expect("a value")));

    drop(first);
    server.wait_for("serve_waiting", |waiting| waiting == 0);
    assert_eq!(server.metric("serve_running"), 1, "the second is computed");
    drop(second);
    server.wait_for("serve_running", |running| running == 0);
    assert_eq!(server.post(CHAT, &chat(1)).0, 200);
}

#[test]
fn slow_clients_are_left() {
    let server = demo(&["--idle-timeout", "1", "--connections", "3"]);
    // Nothing at all, and a head that never ends.
    let mut silent = [server.connect(b""), server.connect(b"POST /v1/chat/comple")];
    let begun = Instant::now();
    for client in &mut silent {
        rest(client);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "they are closed");
    assert_eq!(server.get("/health").0, 200);

    // An answer that nobody reads is cancelled when all buffers on the way are full.
    let server = serve(&fixture("models/llama-3.1/bf16"), &["--client-timeout", "1", "--name", "demo"]);
    let unread = server.begin(CHAT, &with(endless(), json!({ "logprobs": true, "top_logprobs": 20 })));
    server.wait_for("serve_running", |running| running == 1);
    server.wait_for("serve_running", |running| running == 0);
    drop(unread);
}

#[cfg(unix)]
#[test]
fn answers_end_before_the_server_does() {
    let mut server = demo(&[]);
    let mut client = server.begin(CHAT, &with(chat(300), json!({ "stream": true, "ignore_eos": true })));
    client.read_exact(&mut [0; 15]).expect("it answers");
    server.stop();
    let text = rest(&mut client);
    assert!(text.contains("[DONE]"), "{text}");
    assert!(server.process.wait().expect("it ends").success());

    let mut server = serve(&fixture("models/llama-3.1/bf16"), &["--shutdown-timeout", "0", "--name", "demo"]);
    let mut client = server.begin(CHAT, &endless());
    client.read_exact(&mut [0; 15]).expect("it answers");
    server.stop();
    let text = rest(&mut client);
    assert!(text.contains("shutting down") && !text.contains("[DONE]"), "{text}");
    assert!(server.process.wait().expect("it ends").success());
    let _ = client.flush();

    // A grammar that is compiled meanwhile, or refused: nobody waits for its thread.
    let mut server = demo(&["--shutdown-timeout", "1"]);
    let schema =
        json!({ "type": "json_schema", "json_schema": { "schema": { "type": "integer", "multipleOf": 62_710_561 } } });
    let client = server.begin(CHAT, &with(chat(4), json!({ "response_format": schema })));
    std::thread::sleep(Duration::from_secs(1));
    server.stop();
    let begun = Instant::now();
    assert!(server.process.wait().expect("it ends").success());
    assert!(begun.elapsed() < Duration::from_secs(10), "a second for the answer, and one for clients to be told");
    drop(client);
}

#[test]
fn wrong_options_end_it() {
    let output = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_serve"));
        command.args(arguments).output().expect("it runs")
    };
    let run = |arguments: &[&str]| output(arguments).status.code();
    let said = |arguments: &[&str]| String::from_utf8_lossy(&output(arguments).stderr).into_owned();
    assert_eq!(run(&["--help"]), Some(0));
    assert_eq!(run(&["--no-such-option"]), Some(2));
    assert_eq!(run(&["no-such-model"]), Some(1));
    assert_eq!(run(&["--api-key-file", "no-such-file"]), Some(1));
    assert_eq!(run(&["--allowed-host", "http://example.com"]), Some(2));
    assert_eq!(run(&["--model", "a=no-such-model"]), Some(1));
    let more = "--model=a=no-such-model";
    for wrong in [
        &["--model", "path"][..],
        &[more, more],
        &[more, "--name", "b"],
        &[more, "--vision"],
        &["--model-memory", "1G"],
    ] {
        assert_eq!(run(wrong), Some(2), "{wrong:?}");
    }
    // Keys that no request could give.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    for key in ["", " \n", "one\ntwo", "a\tb", "k\u{1}", "clé", "\u{feff}key", "key\u{7f}"] {
        std::fs::write(path, key).expect("it is written");
        assert_eq!(run(&["no-such-model", "--api-key-file", path]), Some(1), "{key:?}");
        let text = said(&["no-such-model", "--api-key-file", path]);
        assert!(text.contains(path), "{key:?} is refused by its file: {text}");
    }
    let server = demo(&[]);
    let (_, port) = server.address.rsplit_once(':').expect("a port");
    assert_eq!(run(&["--port", port]), Some(1), "the port is taken");
}

/// Writes an adapter of the demo model that changes the output of its first layer's attention.
fn write_adapter(folder: &std::path::Path) {
    let config = std::fs::read(fixture("demo/config.json")).expect("keys of the model");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let size = |key: &str| config[key].as_u64().expect("a size");
    let inputs = size("num_attention_heads")
        * config["head_dim"].as_u64().unwrap_or(size("hidden_size") / size("num_attention_heads"));
    let (a, b) = (4 * inputs, 4 * size("hidden_size"));
    let front = "base_model.model.model.layers.0.self_attn.o_proj";
    let header = json!({
        format!("{front}.lora_A.weight"): { "dtype": "F32", "shape": [1, inputs], "data_offsets": [0, a] },
        format!("{front}.lora_B.weight"): { "dtype": "F32", "shape": [size("hidden_size"), 1], "data_offsets": [a, a + b] },
    });
    let header = header.to_string();
    let floats = (0..(a + b) / 4).flat_map(|index| (index as f32 * 0.7).sin().to_le_bytes());
    let bytes = (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes()).chain(floats);
    std::fs::write(folder.join("adapter_model.safetensors"), bytes.collect::<Vec<u8>>()).expect("tensors are written");
    let keys = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 8, "target_modules": ["o_proj"] });
    std::fs::write(folder.join("adapter_config.json"), keys.to_string()).expect("keys are written");
}

#[test]
fn adapters_are_asked_for_as_models_are() {
    let folder = tempfile::tempdir().expect("a folder");
    write_adapter(folder.path());
    let twice = std::process::Command::new(env!("CARGO_BIN_EXE_serve"))
        .args(["--lora", "a=x", "--lora", "a=y", "--port", "0"])
        .output()
        .unwrap();
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("of two models or adapters"), "{twice:?}");
    let (server, plain) = (demo(&["--lora", &format!("tuned={}", folder.path().display())]), demo(&[]));
    let (_, models) = server.get("/v1/models");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    let listed = models["data"].as_array().expect("a list");
    assert_eq!(listed.len(), 2, "{models}");
    assert_eq!(
        (&listed[0]["id"], &listed[1]["id"], &listed[1]["parent"]),
        (&json!("demo"), &json!("tuned"), &json!("demo"))
    );
    assert_eq!(server.get("/v1/models/tuned").0, 200);
    assert_eq!(server.get("/v1/models/other").0, 404);

    let ask = |server: &Server, model: &str| {
        let asked = json!({ "model": model, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0 });
        let (status, answer) = server.post(TEXT, &asked);
        assert_eq!((status, &answer["model"]), (200, &json!(model)), "{answer}");
        answer["choices"][0]["text"].clone()
    };
    let expected = ask(&plain, "demo");
    assert_eq!(ask(&server, "demo"), expected);
    assert_ne!(ask(&server, "tuned"), expected);
    assert_eq!(ask(&server, "demo"), expected, "nothing is left of the adapter");
    assert_eq!(server.post(TEXT, &json!({ "model": "other", "prompt": "a" })).0, 404);

    // By its number, as llama.cpp's server has it.
    let by_number = |lora: Value| {
        let asked = json!({ "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "lora": lora });
        let (status, answer) = server.post(TEXT, &asked);
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].clone()
    };
    assert_eq!(by_number(json!([{ "id": 0, "scale": 1.0 }])), ask(&server, "tuned"));
    assert_eq!(by_number(json!([{ "id": 0, "scale": 0.0 }])), expected);
    assert_eq!(by_number(json!([])), expected);
    assert_ne!(by_number(json!([{ "id": 0, "scale": -3.5 }])), expected);
    for (lora, says) in [
        (json!([{ "id": 1, "scale": 1 }]), "there is no adapter 1, there are 1"),
        (json!([{ "id": 0, "scale": 1 }, { "id": 0, "scale": 2 }]), "adapter 0 is there twice"),
        (json!([{ "id": 0, "scale": 1e39 }]), "finite"),
        (json!([{ "id": -1, "scale": 1 }]), "lora"),
        (json!([{ "id": 0 }]), "scale"),
        (json!([{ "id": 0, "scale": 1, "more": 2 }]), "more"),
        (json!({ "id": 0, "scale": 1 }), "lora"),
    ] {
        let (status, answer) = server.post(TEXT, &json!({ "prompt": "a", "lora": lora }));
        assert!(status == 400 && answer.to_string().contains(says), "{lora}: {status}, {answer}");
    }
    let both = json!({ "model": "tuned", "prompt": "a", "lora": [{ "id": 0, "scale": 1 }] });
    let (status, answer) = server.post(TEXT, &both);
    assert!(status == 400 && answer["error"]["param"] == "lora", "{answer}");
    let (status, listed) = server.get("/lora-adapters");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((status, listed), (200, json!([{ "id": 0, "name": "tuned", "scale": 0.0 }])));
    // Nobody sets a scale for others.
    assert_eq!(server.post("/lora-adapters", &json!([{ "id": 0, "scale": 1.0 }])).0, 405);
    assert_eq!(ask(&server, "demo"), expected);
}
