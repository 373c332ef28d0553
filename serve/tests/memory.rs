//! What requests may take before they are computed: bytes of all together, off the thread that all clients share.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, demo, fixture, read, rest, start};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

fn message() -> Value {
    json!([{ "role": "user", "content": "Hi" }])
}

/// Bodies with `count` small values, in the places where values are taken as they are.
fn bodies(count: usize) -> Vec<String> {
    let values = Value::from(vec![json!({ "a": 1 }); count]);
    let tool = json!({ "type": "function", "function": { "name": "f", "x": values } });
    [
        json!({ "messages": message(), "max_tokens": 2, "tools": [tool] }),
        json!({ "messages": message(), "max_tokens": 2, "chat_template_kwargs": { "x": values } }),
        json!({ "messages": [{ "role": "user", "content": "Hi", "x": values }], "max_tokens": 2 }),
    ]
    .map(|body| body.to_string())
    .into()
}

fn ask(server: &Server, body: &str) -> u16 {
    read(server.send(CHAT, body.as_bytes())).0
}

#[test]
fn many_values_are_refused_before_they_are_read() {
    let server = demo(&[]);
    for body in bodies(230_000) {
        assert!(body.len() < 2 << 20);
        assert_eq!(ask(&server, &body), 413);
    }
    // Of an error no more is said than somebody reads.
    let long = json!({ "messages": message(), "store": "no".repeat(400_000), "no".repeat(400_000): 1 });
    let (status, text) = read(server.send(CHAT, long.to_string().as_bytes()));
    assert_eq!(status, 400);
    assert!(text.len() < 4000, "{} bytes", text.len());
}

/// As many at once as there may be, each as large as one may be.
#[cfg(target_os = "linux")]
#[test]
fn large_requests_at_once_leave_memory_for_the_others() {
    let limited = format!("ulimit -v {}; exec \"$@\"", 1 << 20);
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_serve")]).arg(fixture("demo")).args(["--port", "0"]);
    // Each arena of glibc reserves 64 MiB of addresses, and one for each thread leaves none for a stack.
    command.env("MALLOC_ARENA_MAX", "2");
    let server = start(&mut command);
    assert_eq!(ask(&server, &json!({ "messages": message(), "max_tokens": 2 }).to_string()), 200);
    let before = server.metric("serve_resident_bytes");
    let all: Vec<String> = [bodies(43_000), bodies(230_000)].concat();
    thread::scope(|scope| {
        for client in 0..48 {
            let (server, body) = (&server, &all[client % all.len()]);
            scope.spawn(move || {
                for _ in 0..3 {
                    let (status, text) = read(server.send(CHAT, body.as_bytes()));
                    // 503 is a thread that the system does not start: what it reserves counts here.
                    assert!(matches!(status, 200 | 400 | 413 | 429 | 503), "{status}: {text}");
                }
            });
        }
    });
    assert_eq!(ask(&server, &json!({ "messages": message(), "max_tokens": 2 }).to_string()), 200);
    let after = server.metric("serve_resident_bytes");
    assert!(after < before + (256 << 20), "{before} bytes were resident, {after} are");
}

#[test]
fn bodies_that_come_take_no_more_than_there_is_for_them() {
    // 512 KiB for bodies, next to 64 of each.
    let server = demo(&["--request-memory", "1048576"]);
    let head = |length| {
        let host = &server.address;
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let long = " ".repeat(200_000) + &json!({ "messages": message(), "max_tokens": 2 }).to_string();
    let begun = Instant::now();
    let (refused, slow) = loop {
        let mut slow = server.connect(head(600_000).as_bytes());
        slow.write_all(&[b' '; 550_000]).expect("it reads");
        thread::sleep(Duration::from_millis(200));
        let answer = server.send(CHAT, long.as_bytes());
        if answer.status() != 200 || begun.elapsed() > Duration::from_secs(60) {
            break (answer, slow);
        }
    };
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().expect("a value")));
    assert_eq!(
        ask(&server, &json!({ "messages": message(), "max_tokens": 2 }).to_string()),
        200,
        "a short one is taken"
    );
    drop(slow);
    while ask(&server, &long) == 429 {
        assert!(begun.elapsed() < Duration::from_secs(60), "what the other took is free");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ask(&server, &long), 200);
    // More than all of it for what is read.
    let ids = json!({ "prompt": vec![7; 20_000], "max_tokens": 1 }).to_string();
    assert_eq!(read(server.send("/v1/completions", ids.as_bytes())).0, 413);
    let mut announced = server.connect(head(3 << 20).as_bytes());
    assert!(rest(&mut announced).starts_with("HTTP/1.1 413"), "before any of it has come");
}

/// The issue asks for a second at most while somebody attacks; this bounds it with room.
#[test]
fn clients_do_not_wait_for_bodies_that_are_refused() {
    let server = demo(&[]);
    let wrong = json!({ "messages": message(), "max_tokens": "many", "x": vec![1; 390_000] }).to_string();
    let (dense, done, begun) = (&bodies(230_000)[0], AtomicBool::new(false), Instant::now());
    let slowest = thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!((ask(&server, &wrong), ask(&server, dense)), (400, 413));
                }
            });
        }
        let mut slowest = Duration::ZERO;
        while begun.elapsed() < Duration::from_secs(4) {
            let asked = Instant::now();
            assert_eq!(server.get("/health").0, 200);
            assert_eq!(ask(&server, &json!({ "messages": message(), "max_tokens": 1 }).to_string()), 200);
            slowest = slowest.max(asked.elapsed());
            thread::sleep(Duration::from_millis(50));
        }
        done.store(true, Ordering::Relaxed);
        slowest
    });
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}
