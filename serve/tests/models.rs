//! Several models in one server: which one answers, and which are in memory.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, demo, fixture, serve, start};
use model_factory::UnifiedModelFactory;
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;

const TEXT: &str = "/v1/completions";
const CONTEXT: &str = "--context=512";

/// A server of the models of these names and paths, none of which is loaded yet.
fn several(models: &[(&str, &Path)], options: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.args(models.iter().map(|(name, path)| format!("--model={name}={}", path.display())));
    start(command.args(["--port", "0", CONTEXT]).args(options))
}

/// A text of `tokens` by the model of this name.
fn text(model: &str, tokens: usize) -> Value {
    json!({ "model": model, "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": true })
}

fn answer(server: &Server, model: &str, tokens: usize) -> Value {
    let (status, answer) = server.post(TEXT, &text(model, tokens));
    assert_eq!((status, &answer["model"]), (200, &json!(model)), "{answer}");
    answer["choices"][0]["text"].clone()
}

/// The same by a stream.
fn streamed(server: &Server, model: &str, tokens: usize) -> Value {
    let mut body = text(model, tokens);
    body["stream"] = json!(true);
    let events = server.events(TEXT, &body);
    events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect::<String>().into()
}

/// A server of models of these names and the same file, as many of which fit as `fit`, and answers that go on until their clients leave.
fn same(names: &[&str], fit: u64, options: &[&str]) -> (Server, impl Fn(&Server, &str) -> TcpStream + use<>) {
    let path = fixture("models/llama-3.1/bf16");
    copies(&names.iter().map(|name| (*name, &*path)).collect::<Vec<_>>(), fit, options)
}

/// The same of models of these names and paths, which are copies of one.
fn copies(
    models: &[(&str, &Path)],
    fit: u64,
    options: &[&str],
) -> (Server, impl Fn(&Server, &str) -> TcpStream + use<>) {
    let report = UnifiedModelFactory::builder().context_length(100_000).sessions(4).diagnose(models[0].1);
    let memory = format!("--model-memory={}", fit * report.plan.expect("a plan").total);
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.args(models.iter().map(|(name, path)| format!("--model={name}={}", path.display())));
    let server = start(command.args(["--port", "0", "--context=100000", &memory]).args(options));
    let endless = |server: &Server, model: &str| {
        let mut body = text(model, 90_000);
        body["stream"] = json!(true);
        let mut client = server.begin(TEXT, &body);
        client.read_exact(&mut [0; 600]).expect("it has begun");
        client
    };
    (server, endless)
}

#[test]
fn who_waited_for_a_model_is_computed_at_once_with_the_others() {
    let (server, endless) = same(&["a", "b"], 1, &[]);
    let first = endless(&server, "a");
    thread::scope(|scope| {
        let long = scope.spawn(|| endless(&server, "b"));
        let short = scope.spawn(|| answer(&server, "b", 5));
        server.wait_for("serve_waiting", |waiting| waiting == 2);
        drop(first);
        let long = long.join().expect("it begins");
        short.join().expect("it ends while the other is computed");
        assert_eq!(server.metric("serve_running"), 1);
        drop(long);
    });
}

#[test]
fn who_waits_for_a_model_takes_no_place_from_others() {
    let (server, endless) = same(&["a", "b", "c"], 2, &["--sessions", "3"]);
    let clients = ["a", "b"].map(|name| endless(&server, name));
    thread::scope(|scope| {
        let waits = scope.spawn(|| answer(&server, "c", 1));
        server.wait_for("serve_waiting", |waiting| waiting == 1);
        answer(&server, "b", 5);
        assert_eq!(server.metric("serve_waiting"), 1, "it waits for the first one's memory");
        drop(clients);
        waits.join().expect("it is computed after them");
    });
}

#[test]
fn who_waits_for_a_model_to_go_keeps_no_others_from_being_loaded() {
    let (server, endless) = same(&["a", "b", "c", "d", "e"], 2, &[]);
    let [first, second] = ["a", "b"].map(|name| endless(&server, name));
    thread::scope(|scope| {
        let waits = scope.spawn(|| answer(&server, "c", 1));
        server.wait_for("serve_waiting", |waiting| waiting == 1);
        drop(second);
        server.wait_for("serve_running", |running| running == 1);
        // The memory of the first one is promised, and that of the second one can be had.
        answer(&server, "d", 1);
        answer(&server, "b", 1);
        assert_eq!(server.metric("serve_waiting"), 1, "it waits for the first one's answer");
        assert_eq!(loaded(&server), ["a", "b"], "the first one still answers");
        drop(first);
        waits.join().expect("it is computed then");
    });
    server.wait_for("serve_running", |running| running == 0);
    // All that could be let go is promised, so who comes then waits, and nobody waits forever.
    let clients = ["b", "c"].map(|name| endless(&server, name));
    thread::scope(|scope| {
        let waiting = ["a", "d", "e", "a"].map(|name| scope.spawn(|| answer(&server, name, 1)));
        server.wait_for("serve_waiting", |waiting| waiting == 4);
        drop(clients);
        for waits in waiting {
            waits.join().expect("it is computed");
        }
    });
}

/// The models that are loaded, by `/v1/models`.
fn loaded(server: &Server) -> Vec<String> {
    let (_, models) = server.get("/v1/models");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    let each = models["data"].as_array().expect("a list").iter();
    let loaded = each.filter(|model| model["status"]["value"] == "loaded");
    loaded.map(|model| model["id"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn each_model_is_loaded_when_it_is_asked_for() {
    let (llama, bert) = (fixture("models/llama-3.1/bf16"), fixture("embeddings/bert"));
    let models = [format!("--model=org/llama={}", llama.display()), format!("--model=bert={}", bert.display())];
    let server = demo(&[CONTEXT, &models[0], &models[1], "--name=demo", "--name=story"]);
    assert_eq!(loaded(&server), ["demo", "story"]);
    let expected = answer(&demo(&[CONTEXT]), "demo", 12);
    let of_llama = answer(&serve(&llama, &[CONTEXT, "--name", "org/llama"]), "org/llama", 12);
    assert_eq!([answer(&server, "demo", 12), answer(&server, "story", 12)], [expected.clone(), expected.clone()]);
    let (_, unnamed) = server.post(TEXT, &json!({ "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0 }));
    assert_eq!((&unnamed["model"], &unnamed["choices"][0]["text"]), (&json!("demo"), &expected), "the first one");
    assert_eq!(loaded(&server), ["demo", "story"]);

    let (status, refused) = server.post(TEXT, &text("other", 1));
    assert_eq!((status, &refused["error"]["code"]), (404, &json!("model_not_found")), "{refused}");
    assert!(refused.to_string().contains("bert"), "it names those that are there: {refused}");
    let (status, listed) = server.get("/v1/models/org/llama");
    assert!(status == 200 && listed.contains("\"unloaded\""), "{listed}");
    assert_eq!(server.get("/v1/models/org/llama:latest"), (status, listed), "Ollama's clients add a tag");
    let names = |path: &str| -> Vec<Value> {
        let listed: Value = serde_json::from_str(&server.get(path).1).expect("JSON");
        listed["models"].as_array().expect("a list").iter().map(|model| model["name"].clone()).collect()
    };
    let all = ["demo:latest", "story:latest", "org/llama:latest", "bert:latest"];
    assert_eq!(
        (names("/api/tags"), names("/api/ps")),
        (all.map(Value::from).into(), all[..2].iter().map(|name| json!(name)).collect())
    );

    assert_eq!(answer(&server, "org/llama", 12), of_llama);
    let asked = json!({ "model": "bert", "input": ["The cat sat on the mat."] });
    let (status, vectors) = server.post("/v1/embeddings", &asked);
    assert_eq!((status, vectors["data"][0]["embedding"].as_array().map(Vec::len)), (200, Some(16)), "{vectors}");
    let (status, vectors) = server.post("/api/embed", &asked);
    assert_eq!((status, &vectors["model"]), (200, &json!("bert")), "{vectors}");
    assert_eq!(loaded(&server), ["demo", "story", "org/llama", "bert"]);
    assert_eq!(server.metric("serve_loaded_models"), 3);
}

#[test]
fn a_model_waits_until_others_have_answered_and_takes_their_memory() {
    let paths = ["demo", "models/llama-3.1/bf16", "models/r1-distill-qwen/bf16"].map(fixture);
    let names = ["demo", "llama", "qwen"];
    let planned = paths.each_ref().map(|path| {
        let report = UnifiedModelFactory::builder().context_length(512).sessions(4).diagnose(path);
        report.plan.expect("a plan").total
    });
    // The largest one fits, and no two.
    let most = planned.iter().max().expect("three");
    let of_two: u64 = planned.iter().sum::<u64>() - most;
    assert!(*most < of_two, "{planned:?}");
    let memory = format!("--model-memory={most}");
    let models: Vec<(&str, &Path)> = names.into_iter().zip(paths.iter().map(|path| &**path)).collect();
    let alone = paths.each_ref().map(|path| answer(&serve(path, &[CONTEXT, "--name", "x"]), "x", 40));

    let server = several(&models, &[&memory]);
    assert!(loaded(&server).is_empty());
    // All at once, in an order that makes them change places; every second one is streamed.
    thread::scope(|scope| {
        for index in 0..12 {
            let (server, name, expected) = (&server, names[index % 3], &alone[index % 3]);
            scope.spawn(move || {
                let said = if index % 2 == 0 { answer(server, name, 40) } else { streamed(server, name, 40) };
                assert_eq!(said, *expected, "{name}: as by itself, and to its end");
            });
        }
    });
    server.wait_for("serve_running", |running| running == 0);
    assert_eq!((loaded(&server).len(), server.metric("serve_loaded_models")), (1, 1));
    assert_eq!(names.map(|name| answer(&server, name, 40)), alone, "again, after they were let go");
}

#[test]
fn a_model_that_cannot_be_loaded_any_more_keeps_no_others_from_answering() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gone.gguf");
    std::fs::copy(fixture("demo-q4_k_m.gguf"), &file).expect("it is copied");
    let server = several(&[("gone", &file), ("demo", &fixture("demo"))], &[]);
    std::fs::rename(&file, folder.path().join("away.gguf")).expect("it is moved");
    for _ in 0..2 {
        let (status, refused) = server.post(TEXT, &text("gone", 1));
        assert_eq!((status, &refused["error"]["code"]), (503, &json!("model_not_loaded")), "{refused}");
        assert!(!refused.to_string().contains("gguf"), "the path is private: {refused}");
    }
    answer(&server, "demo", 1);
    std::fs::rename(folder.path().join("away.gguf"), &file).expect("it is moved");
    answer(&server, "gone", 1);
}

#[test]
fn those_that_wait_for_a_model_share_the_failure_of_its_load() {
    let (path, folder) = (fixture("models/llama-3.1/bf16"), tempfile::tempdir().expect("a folder"));
    for file in std::fs::read_dir(&path).expect("a folder").map(|file| file.expect("a file").path()) {
        std::fs::copy(&file, folder.path().join(file.file_name().expect("a name"))).expect("it is copied");
    }
    let (server, endless) = copies(&[("a", &path), ("gone", folder.path())], 1, &[]);
    let first = endless(&server, "a");
    thread::scope(|scope| {
        let waiting = [(); 3].map(|()| scope.spawn(|| server.post(TEXT, &text("gone", 1)).0));
        server.wait_for("serve_waiting", |waiting| waiting == 3);
        std::fs::remove_file(folder.path().join("model.safetensors")).expect("it is removed");
        drop(first);
        assert_eq!(waiting.map(|waits| waits.join().expect("it is answered")), [503; 3]);
    });
    let log = server.log();
    assert_eq!(log.iter().filter(|line| line.contains("gone could not be loaded")).count(), 1, "{log:?}");
}
