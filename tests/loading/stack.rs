//! How much stack a thread needs that calls this library. Each task runs in a process of its own: one that overflows ends it.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common;

use model_factory::{GenerateOptions, Grammar, Message, Model, ModelBuilder, Session};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// KiB that `docs/library.md` states.
const STATED: usize = 256;

/// KiB of it that are enough: a quarter is left over for other compilers' frames.
const ENOUGH: usize = STATED * 3 / 4;

/// What a program does, and the fixtures that take the most for it: each container format, tokenizer and template.
const TASKS: [&str; 6] = ["diagnose", "load", "generate", "chat", "logits", "constrained"];
const MODELS: [&str; 6] = [
    "../demo",
    "../demo-q4_k_m.gguf",
    "llama-3.1/bf16",
    "phi-3.5/bf16",
    "r1-distill-llama/bf16",
    "llama-256/iq2_xxs.gguf",
];

/// Does `task` in a thread with so much stack, in a process of its own; whether that ended well.
fn fits(task: &str, kib: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "stack::in_a_small_thread", "--nocapture"]);
    child.env("STACK_TASK", task).env("STACK_KIB", kib.to_string());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || text.contains("overflowed its stack"), "{task}: {text}");
    output.status.success()
}

#[test]
fn a_thread_with_three_quarters_of_what_is_stated_does_everything() {
    for task in TASKS {
        assert!(fits(task, ENOUGH), "{task} overflows {ENOUGH} KiB");
    }
    let guide = include_str!("../../docs/library.md");
    assert!(guide.contains(&format!("{STATED} KiB of stack")), "the guide states another size");
}

/// `cargo test --release --workspace --test loading -- --ignored the_least --nocapture`
#[test]
#[ignore = "prints the least KiB each task takes"]
fn the_least_stack_of_each_task() {
    for task in TASKS {
        let least = (16..512).step_by(4).find(|kib| fits(task, *kib));
        println!("{task}: {least:?} KiB");
    }
}

/// The demo with JSON that is nested as deep as a parser goes.
fn nested() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(common::demo()).unwrap() {
        let path = entry.unwrap().path();
        let to = folder.path().join(path.file_name().unwrap());
        std::fs::copy(&path, &to).unwrap();
        if path.extension().is_some_and(|extension| extension == "json") {
            let deep = format!("{{\"deep\": {}{},", "[{\"a\":".repeat(62), "1".to_owned() + &"}]".repeat(62));
            std::fs::write(&to, std::fs::read_to_string(&path).unwrap().replacen('{', &deep, 1)).unwrap();
        }
    }
    folder
}

fn options() -> GenerateOptions {
    GenerateOptions::default().max_tokens(6).temperature(0.8).top_p(0.9).logprobs(5).stop("never")
}

// Functions of their own, as a frame of what is not optimised has room for everything that is made in it.
fn diagnose(builder: &ModelBuilder, path: &Path) {
    assert_eq!(builder.diagnose(path).exit_code, 0);
}

fn load(builder: &ModelBuilder, path: &Path) {
    drop(builder.load(path).unwrap());
}

fn generate(model: &Model) {
    drop(model.generate("Once upon a time", &options()).unwrap().text().unwrap());
}

fn chat(model: &Model) {
    if !model.spec().tokenizer.chat_templates.is_empty() {
        drop(model.chat(&[Message::user("Hi")], &options()).unwrap().text().unwrap());
    }
}

fn constrained(model: &Model) {
    let object = serde_json::json!({"type": "object"});
    let nested = format!("{}a{}", "(b*".repeat(80), ")*".repeat(80));
    for grammar in [Grammar::json_schema(object), Grammar::regex(nested)] {
        drop(model.generate("Once", &options().grammar(&grammar)).unwrap().text().unwrap());
    }
}

fn logits(model: &Model) {
    let ids: Vec<u32> = (5..250).collect();
    let (mut one, mut two) = (model.session(), model.session());
    one.logits(&ids).unwrap();
    Session::batch(&mut [(&mut one, &ids[..1]), (&mut two, &ids[..1])]).unwrap();
}

#[test]
#[ignore = "run by the others"]
fn in_a_small_thread() {
    let task = std::env::var("STACK_TASK").unwrap();
    let bytes = std::env::var("STACK_KIB").unwrap().parse::<usize>().unwrap() << 10;
    let nested = nested();
    for path in MODELS.map(common::archives::path).into_iter().chain([nested.path().into()]) {
        let task = task.clone();
        let builder = common::builder().threads(2);
        // What another thread has loaded is enough for what comes after it.
        let loaded = (!matches!(task.as_str(), "diagnose" | "load")).then(|| builder.load(&path).unwrap());
        let work = move || match (task.as_str(), loaded) {
            ("diagnose", _) => diagnose(&builder, &path),
            ("load", _) => load(&builder, &path),
            ("generate", Some(model)) => generate(&model),
            ("chat", Some(model)) => chat(&model),
            ("constrained", Some(model)) => constrained(&model),
            ("logits", Some(model)) => logits(&model),
            (other, _) => panic!("{other} is no task"),
        };
        let thread = std::thread::Builder::new().name("small".into()).stack_size(bytes).spawn(work).unwrap();
        thread.join().unwrap();
    }
}
