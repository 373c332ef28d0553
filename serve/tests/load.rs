//! Two minutes of 200 connections, most of them unkind: `cargo test --release -p model-factory-serve --test load -- --ignored
//! --nocapture`. `LOAD_SECONDS` and `LOAD_CONNECTIONS` change that. Prints what was asked and what came.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; a table is for reading

mod common;

use common::{Server, fixture, read, rest, serve};
use model_factory::UnifiedModelFactory;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

/// Different prompts, each with its own seed.
const PROMPTS: usize = 24;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Manner {
    Whole,
    Streamed,
    /// Asks by another API, whole or streamed.
    OtherApi,
    /// Asks another model, which may not be loaded.
    OtherModel,
    /// Leaves in the middle of an answer.
    Cancels,
    /// Leaves before the first token.
    Leaves,
    /// Reads a little at a time.
    Slow,
    /// Says that it sends no more, and never reads.
    HalfOpen,
    /// Sends a part of a request.
    Unfinished,
    Oversized,
    Malformed,
}

const MANNERS: [Manner; 11] = [
    Manner::Whole,
    Manner::Streamed,
    Manner::OtherApi,
    Manner::OtherModel,
    Manner::Cancels,
    Manner::Leaves,
    Manner::Slow,
    Manner::HalfOpen,
    Manner::Unfinished,
    Manner::Oversized,
    Manner::Malformed,
];

/// An API: its path, the fields of a request about a text, where the text of a whole answer is, and where that of an event is.
type Api = (&'static str, fn(&str) -> Value, &'static str, &'static str);

const APIS: [Api; 7] = [
    (
        "/v1/completions",
        |text| json!({ "prompt": text, "max_tokens": 20, "temperature": 0 }),
        "/choices/0/text",
        "/choices/0/text",
    ),
    (
        "/v1/responses",
        |text| json!({ "input": text, "max_output_tokens": 20, "temperature": 0 }),
        "/output/0/content/0/text",
        "/delta",
    ),
    (
        "/v1/messages",
        |text| json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 20, "temperature": 0 }),
        "/content/0/text",
        "/delta/text",
    ),
    (
        "/api/chat",
        |text| json!({ "messages": [{ "role": "user", "content": text }], "options": { "num_predict": 20, "temperature": 0 } }),
        "/message/content",
        "/message/content",
    ),
    (
        "/api/generate",
        |text| json!({ "prompt": text, "options": { "num_predict": 20, "temperature": 0 } }),
        "/response",
        "/response",
    ),
    ("/completion", |text| json!({ "prompt": text, "n_predict": 20, "temperature": 0 }), "/content", "/content"),
    ("/tokenize", |text| json!({ "content": text }), "/tokens", ""),
];

/// The models besides the first one, of which one fits beside it at a time.
const OTHERS: [&str; 2] = ["demo", "models/smollm2/bf16"];

/// What `path` of the server answers to a text by this API, `None` where the queue is full.
fn by(
    server: &Server,
    (path, body, whole, part): Api,
    model: &str,
    text: &str,
    stream: bool,
) -> Result<Option<Value>, String> {
    let (mut body, stream) = (body(text), stream && !part.is_empty());
    body["model"] = json!(model);
    if !part.is_empty() {
        body["stream"] = json!(stream);
    }
    let (status, text) = read(server.send(path, body.to_string().as_bytes()));
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    let said = if stream {
        let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        Some(json!(lines.filter_map(|line| Some(json(line)?.pointer(part)?.as_str()?.to_owned())).collect::<String>()))
    } else {
        json(&text).and_then(|answer| answer.pointer(whole).cloned())
    };
    match (status, said) {
        (200, Some(said)) => Ok(Some(said)),
        (429, _) => Ok(None),
        _ => Err(format!("{path}: {status}: {text}")),
    }
}

/// What is known of a server that nobody else asks.
struct Alone {
    /// Ids and log-probabilities of chats by prompt.
    chats: Vec<String>,
    /// Answers by API and model.
    apis: Vec<Vec<Value>>,
}

const NAMES: [&str; 3] = ["first", OTHERS[0], OTHERS[1]];
const TEXT: &str = "Once upon a time";

/// A number from `LOAD_..`.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn ask(prompt: usize, stream: bool) -> Value {
    let content = format!("Tell me story {prompt} {}", "of a fox and a bear ".repeat(prompt % 7));
    json!({
        "messages": [{ "role": "user", "content": content }],
        "max_tokens": 24 + prompt, "seed": prompt, "temperature": 0.9, "ignore_eos": true,
        "logprobs": true, "stream": stream,
    })
}

/// The ids and log-probabilities of an answer, as JSON.
fn tokens(answer: &str, stream: bool) -> Option<String> {
    let of = |value: &Value| value["choices"][0]["logprobs"]["content"].as_array().cloned();
    let all: Vec<Value> = if stream {
        let events = answer.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|event| *event != "[DONE]");
        events.filter_map(|event| of(&serde_json::from_str(event).ok()?)).flatten().collect()
    } else {
        of(&serde_json::from_str(answer).ok()?)?
    };
    Some(json!(all).to_string())
}

/// Asks once. What came, in a word; an error where it is not what should come.
fn once(server: &Server, manner: Manner, prompt: usize, alone: &Alone) -> Result<&'static str, String> {
    let body = ask(prompt, manner != Manner::Whole);
    let failed = |error: std::io::Error| error.to_string();
    match manner {
        Manner::Whole | Manner::Streamed => {
            let (status, text) = read(server.send(CHAT, body.to_string().as_bytes()));
            match (status, tokens(&text, manner == Manner::Streamed)) {
                (200, Some(ids)) if ids == alone.chats[prompt] => Ok("the ids as alone"),
                (429, _) => Ok("refused: the queue is full"),
                _ => Err(format!("{status}: {text}")),
            }
        }
        Manner::OtherApi | Manner::OtherModel => {
            let (api, model) = (prompt % APIS.len(), if manner == Manner::OtherModel { 1 + prompt % 2 } else { 0 });
            match by(server, APIS[api], NAMES[model], TEXT, prompt.is_multiple_of(3))? {
                Some(said) if said == alone.apis[api][model] => Ok("the answer as alone"),
                None => Ok("refused: the queue is full"),
                Some(said) => Err(format!("{}: {said}", APIS[api].0)),
            }
        }
        Manner::Cancels => {
            let mut client = server.begin(CHAT, &body);
            client.read_exact(&mut [0; 600]).map_err(failed)?;
            Ok("left in the middle")
        }
        Manner::Leaves => {
            drop(server.begin(CHAT, &body));
            Ok("left at once")
        }
        Manner::Slow => {
            let mut client = server.begin(CHAT, &body);
            let mut text = Vec::new();
            let mut part = [0; 512];
            loop {
                match client.read(&mut part).map_err(failed)? {
                    0 => break Err(format!("it ended: {}", String::from_utf8_lossy(&text))),
                    some => text.extend_from_slice(&part[..some]),
                }
                if text.windows(6).any(|end| end == b"[DONE]") {
                    break Ok("read to its end");
                } else if text.starts_with(b"HTTP/1.1 429") {
                    break Ok("refused: the queue is full");
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Manner::HalfOpen => {
            let client = server.begin(CHAT, &body);
            client.shutdown(Shutdown::Write).map_err(failed)?;
            thread::sleep(Duration::from_secs(3));
            Ok("half open for 3 s")
        }
        Manner::Unfinished => {
            let mut client = server.connect(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local");
            let begun = Instant::now();
            rest(&mut client);
            if begun.elapsed() < Duration::from_secs(30) { Ok("closed by the server") } else { Err("left open".into()) }
        }
        Manner::Oversized => {
            let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
            let mut client = server.connect(format!("{head}content-length: 99999999\r\n\r\n").as_bytes());
            let _ = (0..64).try_for_each(|_| client.write_all(&[b' '; 1 << 16])); // the server may be gone
            let answer = rest(&mut client);
            if answer.is_empty() || answer.contains(" 413 ") { Ok("refused: 413") } else { Err(answer) }
        }
        Manner::Malformed => {
            let bodies: [&[u8]; 4] = [b"{", b"{\"messages\": 3}", b"\xff", b"{\"messages\": [], \"no\": 1}"];
            let (status, text) = read(server.send(CHAT, bodies[prompt % bodies.len()]));
            if status == 400 { Ok("refused: 400") } else { Err(format!("{status}: {text}")) }
        }
    }
}

#[test]
#[ignore = "takes two minutes"]
fn two_minutes_of_unkind_clients_leave_nothing_behind() {
    let (seconds, connections) = (number("LOAD_SECONDS", 120), number("LOAD_CONNECTIONS", 200) as usize);
    let first = fixture("models/llama-3.1/bf16");
    let planned = |path: &Path| {
        let report = UnifiedModelFactory::builder().context_length(512).sessions(8).diagnose(path);
        report.plan.expect("a plan").total
    };
    let of_others = OTHERS.map(|name| planned(&fixture(name)));
    let memory = format!("--model-memory={}", planned(&first) + of_others.iter().max().expect("two"));
    let others = OTHERS.map(|name| format!("--model={name}={}", fixture(name).display()));
    let options = ["--client-timeout=5", "--idle-timeout=5", "--sessions=32", "--context=512", "--model-contexts=8"];
    let own = ["--name=first", &memory, &others[0], &others[1]];
    let server = serve(&first, &[options.as_slice(), &own].concat());
    let chats = (0..PROMPTS)
        .map(|prompt| tokens(&server.post(CHAT, &ask(prompt, false)).1.to_string(), false).expect("an answer"))
        .collect();
    let of_api = |api: &Api| {
        NAMES.map(|name| by(&server, *api, name, TEXT, false).expect("it answers").expect("a place")).into()
    };
    let alone = Alone { chats, apis: APIS.iter().map(of_api).collect() };
    let came = Mutex::new(BTreeMap::<(Manner, Result<&str, String>), usize>::new());
    let round = |time: Duration| {
        let begun = Instant::now();
        thread::scope(|scope| {
            for client in 0..connections {
                let (server, alone, came) = (&server, &alone, &came);
                scope.spawn(move || {
                    for turn in 0.. {
                        if begun.elapsed() > time {
                            return;
                        }
                        let manner = MANNERS[(client + turn) % MANNERS.len()];
                        let result = once(server, manner, (client * 7 + turn) % PROMPTS, alone);
                        *came.lock().expect("no panic").entry((manner, result)).or_default() += 1;
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
        });
        server.wait_for("serve_running", |running| running == 0);
        thread::sleep(Duration::from_secs(12)); // threads for blocking work end after 10 s without any
        let cache = server.metric("serve_kv_cache_bytes") - server.metric("serve_kv_cache_unused_bytes");
        (server.metric("serve_resident_bytes"), server.threads(), cache)
    };
    // What is made once is there after a while: buffers of the allocator, the connections' among them.
    let before = round(Duration::from_secs(seconds / 4));
    let after = round(Duration::from_secs(seconds));
    let came = came.into_inner().expect("no panic");
    for ((manner, result), count) in &came {
        let (Ok(said) | Err(said)) = result.as_ref().map(|said| *said).map_err(String::as_str);
        println!("{:>12} {count:>7} {said}", format!("{manner:?}"));
    }
    println!("resident bytes, threads, bytes of caches that somebody holds: {before:?} before, {after:?} after");
    assert!(came.keys().all(|(_, result)| result.is_ok()), "all errors are the client's");
    assert!(came.contains_key(&(Manner::Streamed, Ok("the ids as alone"))));
    for manner in [Manner::OtherApi, Manner::OtherModel] {
        assert!(came.contains_key(&(manner, Ok("the answer as alone"))), "{manner:?}");
    }
    assert_eq!((after.1, after.2), (before.1, 0), "threads, and caches that somebody holds");
    // What an allocator keeps differs by some pages for each of its arenas.
    assert!(after.0 < before.0 + (16 << 20), "memory");
}
