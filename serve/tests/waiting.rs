//! Who waits for what, and what ends with a client that goes away.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, demo};
use serde_json::{Value, json};
use std::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

/// A chat of `tokens`.
fn small(tokens: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": tokens, "ignore_eos": true })
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
