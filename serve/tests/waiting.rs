//! Who waits for what: a request that needs memory, a large one, or one whose grammar is compiled keeps no others from theirs.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, demo, fixture, read, serve};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

/// Bytes that what is read of a [`large`] request takes: more than a request that is not counted.
const LARGE: usize = 2000 * 688;

/// A chat of `tokens`.
fn small(tokens: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": tokens, "ignore_eos": true })
}

/// The same, with many values that its prompt does not show.
fn large(tokens: usize) -> Value {
    let mut body = small(tokens);
    body["chat_template_kwargs"] = json!({ "x": vec![json!({ "a": 1 }); 2000] });
    body
}

/// `body` with a schema of its own, which takes 1,000,000 steps to refuse.
fn slow(mut body: Value, index: usize) -> Value {
    let schema = json!({ "type": "integer", "multipleOf": 50_021 + 2 * index });
    body["response_format"] = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
    body
}

/// Processor time of the server, in ticks.
#[cfg(target_os = "linux")]
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process.id())).expect("it runs");
    stat.split(' ').skip(13).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

#[cfg(target_os = "linux")]
#[test]
fn nobody_compiles_for_clients_that_went_away() {
    let server = demo(&["--sessions", "64"]);
    let before = ticks(&server);
    for index in 0..4 {
        assert_eq!(server.post(CHAT, &slow(small(1), index)).0, 400);
    }
    let four = ticks(&server) - before;
    let clients: Vec<TcpStream> = (4..64).map(|index| server.begin(CHAT, &slow(small(1), index))).collect();
    server.wait_for("serve_running", |running| running > 40);
    drop(clients);
    server.wait_for("serve_running", |running| running == 0);
    let all = ticks(&server) - before - four;
    assert!(all < 8 * four, "four took {four} ticks, sixty whose clients left {all}");
}

/// A server of two sessions with `memory` for what is read of requests, and a client whose large request is generated and keeps
/// its tools.
fn generating(memory: usize) -> (Server, TcpStream) {
    let memory = (2 * memory).to_string();
    let server = serve(&fixture("models/llama-3.1/bf16"), &["--sessions", "2", "--request-memory", &memory]);
    let mut body = large(100_000);
    body["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    body["stream"] = true.into();
    let mut client = server.begin(CHAT, &body);
    let mut status = [0; 15];
    client.read_exact(&mut status).expect("it answers");
    assert_eq!(&status, b"HTTP/1.1 200 OK");
    (server, client)
}

#[test]
fn who_waits_for_memory_takes_no_place() {
    let (server, first) = generating(LARGE * 5 / 2);
    let mut second = server.begin(CHAT, &large(1));
    server.wait_for("serve_waiting", |waiting| waiting == 1);
    assert_eq!(server.metric("serve_running"), 1);
    assert_eq!(server.post(CHAT, &small(1)).0, 200, "another one has the place");
    drop(first);
    let mut status = [0; 15];
    second.read_exact(&mut status).expect("it answers");
    assert_eq!(&status, b"HTTP/1.1 200 OK");
}

#[test]
fn an_answer_holds_no_memory_for_reading_it() {
    let (server, first) = generating(LARGE * 7 / 2);
    assert_eq!(server.post(CHAT, &large(1)).0, 200);
    assert_eq!(server.metric("serve_running"), 1, "the first is not at its end");
    drop(first);
}

#[test]
fn large_requests_do_not_wait_for_grammars_of_others() {
    let server = demo(&[]);
    let slow: Vec<TcpStream> = (0..32).map(|index| server.begin(CHAT, &slow(large(1), index))).collect();
    server.wait_for("serve_running", |running| running > 16);
    assert_eq!(read(server.send(CHAT, large(1).to_string().as_bytes())).0, 200);
    assert_ne!(server.metric("serve_running"), 0, "theirs are compiled");
    drop(slow);
}

/// All that comes on a connection until `until` is there.
fn read_until(client: &mut TcpStream, until: &str) -> String {
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&said).into_owned();
        if text.contains(until) {
            return text;
        }
        let bytes = client.read(&mut part).expect("it says something");
        assert!(bytes > 0, "no {until:?} in {text}");
        said.extend_from_slice(&part[..bytes]);
    }
}

#[test]
fn a_stream_that_waits_says_so_and_why_it_is_refused() {
    // Its context is long, so that the first one does not end.
    let options = ["--sessions", "1", "--keep-alive", "1", "--context", "100000"];
    let server = serve(&fixture("models/llama-3.1/bf16"), &options);
    let stream = |mut body: Value| {
        body["stream"] = json!(true);
        body
    };
    let first = server.begin(CHAT, &stream(small(90_000)));
    server.wait_for("serve_running", |running| running == 1);
    let mut too_long = stream(small(1));
    too_long["messages"][0]["content"] = json!("word ".repeat(100_000));
    let mut waiting = [small(3), too_long].map(|body| server.begin(CHAT, &stream(body)));
    for client in &mut waiting {
        let begun = read_until(client, "\n:\n");
        assert!(begun.starts_with("HTTP/1.1 200"), "{begun}");
        assert!(!begun.contains("data:"), "nothing is computed yet: {begun}");
    }
    assert_eq!(server.metric("serve_waiting"), 2);
    drop(first);
    let [answered, refused] = &mut waiting;
    read_until(answered, "data: [DONE]");
    let said = read_until(refused, "context_length_exceeded");
    assert!(said.contains("data: {\"error\"") && !said.contains("[DONE]"), "{said}");
}

#[test]
fn a_request_of_more_answers_than_sessions_is_computed_in_turns() {
    let server = demo(&["--sessions", "3", "--queue", "97"]);
    let texts = ["Once upon a time", "The fox", "A", "In the wood"];
    let ask =
        |prompt: Value| server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 }));
    let alone = texts.map(|text| ask(json!(text)).1["choices"][0]["text"].clone());
    let prompts = |count: usize| -> Value { texts.iter().cycle().take(count).map(|text| json!(text)).collect() };
    let (status, answer) = ask(prompts(100));
    assert_eq!(status, 200, "{answer}");
    let choices = answer["choices"].as_array().expect("a list");
    assert_eq!(choices.len(), 100);
    for (choice, expected) in choices.iter().zip(alone.iter().cycle()) {
        assert_eq!(choice["text"], *expected);
    }
    let (status, refused) = ask(prompts(101));
    assert!(status == 400 && refused.to_string().contains("100 answers at most"), "{refused}");
}
