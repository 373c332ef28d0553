//! llama.cpp's own test of its server's images, `tools/server/tests/unit/test_vision_api.py`, in its order: what a model that sees
//! answers here, and what is refused on purpose. Its model knows trucks and frogs, ours knows nothing: log-probabilities of answers are compared with each other.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use common::{Server, fixture, serve};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;

const CHAT: &str = "/v1/chat/completions";

/// The folder of a Gemma 3 of random weights with its tower.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let archive = std::fs::File::open(fixture("vision/gemma-3.tar.gz")).expect("the archive");
        let folder = tempfile::tempdir().expect("a folder").keep();
        tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(&folder).expect("a sound archive");
        folder
    })
}

fn picture(index: usize) -> Vec<u8> {
    std::fs::read(folder().join(format!("pictures/{index}.png"))).expect("a picture")
}

fn data_url(index: usize) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(picture(index)))
}

fn seeing() -> Server {
    serve(&folder().join("bf16"), &["--vision", "--name", "gemma"])
}

/// A request with a text and then an image.
fn asked(text: &str, url: &str) -> Value {
    json!({
        "temperature": 0.0, "top_k": 1, "max_tokens": 8, "ignore_eos": true, "logprobs": true,
        "messages": [{ "role": "user", "content": [
            { "type": "text", "text": text }, { "type": "image_url", "image_url": { "url": url } },
        ] }],
    })
}

/// `test_models_supports_multimodal_capability`, `test_v1_models_supports_multimodal_capability`: here by `data`, as OpenAI lists models.
#[test]
fn models_say_what_they_can() {
    let capabilities = |server: &Server| {
        let (status, text) = server.get("/v1/models");
        assert_eq!(status, 200);
        serde_json::from_str::<Value>(&text).expect("JSON")["data"][0]["capabilities"].clone()
    };
    let server = seeing();
    assert_eq!(capabilities(&server), json!(["completion", "multimodal"]));
    assert_eq!(server.get("/models"), server.get("/v1/models"));
    // The same model without its tower, and one that only embeds.
    assert_eq!(capabilities(&serve(&folder().join("bf16"), &[])), json!(["completion"]));
    assert_eq!(capabilities(&serve(&fixture("embeddings/bert"), &[])), json!([]));
}

/// `test_vision_chat_completion`: images of data URLs are seen; what it fetches is refused, and so is what is no image.
#[test]
fn images_of_data_urls_are_seen_and_others_refused() {
    let server = seeing();
    let ask = |text: &str, url: &str| server.post(CHAT, &asked(text, url));
    let mut answers = Vec::new();
    for (text, index) in [("What is this:\n", 0), ("What is this:\n", 1), ("Test test\n", 1), ("What is this:\n", 0)] {
        let (status, answer) = ask(text, &data_url(index));
        assert_eq!((status, &answer["choices"][0]["message"]["role"]), (200, &json!("assistant")), "{answer}");
        // Random weights may say the same of every image, and not as surely.
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
        answers.push(answer["choices"][0]["logprobs"]["content"].clone());
    }
    // The last one is the first one again, after another image in the same place.
    assert_eq!(answers[0], answers[3]);
    assert!(answers[0] != answers[1] && answers[1] != answers[2], "{answers:?}");
    for (url, param) in [
        ("malformed", "messages[0].content[1].image_url"),
        // It would fetch these: nothing is fetched here.
        ("https://google.com/404", "messages[0].content[1].image_url"),
        ("https://ggml.ai", "messages[0].content[1].image_url"),
        ("data:text/html;base64,aGVsbG8=", "messages"),
        ("data:image/png;base64,", "messages"),
        ("data:image/png;base64,aGVsbG8=", "messages"),
    ] {
        let (status, answer) = ask("What is this:\n", url);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{url}: {answer}");
    }
}

/// `test_vision_chat_completion_token_count`: an image counts as the tokens that it becomes, and is not computed for that.
#[test]
fn tokens_of_images_are_counted() {
    let server = seeing();
    let count = |body: &Value| server.post(&format!("{CHAT}/input_tokens"), body);
    let with = asked("What is this:", &data_url(0));
    let (status, counted) = count(&with);
    assert_eq!(status, 200, "{counted}");
    let tokens = counted["input_tokens"].as_u64().expect("a number");
    assert_eq!(server.post(CHAT, &with).1["usage"]["prompt_tokens"], tokens);
    let text = json!({ "messages": [{ "role": "user", "content": "What is this:" }] });
    let without = count(&text).1["input_tokens"].as_u64().expect("a number");
    // Four rows between two marks, and blank lines around them.
    assert!(tokens >= without + 6, "{tokens} and {without}");
    assert_eq!(count(&asked("", "https://ggml.ai")).0, 400);
    assert_eq!(count(&json!({ "messages": [] })).0, 400);
    assert_eq!(count(&json!({ "messages": [{ "role": "user", "content": "word ".repeat(2000) }] })).0, 400);
    assert_eq!(count(&json!({ "model": "gpt-4o", "messages": text["messages"] })).0, 404);
}

/// `test_vision_completion`, `test_vision_embeddings`, `test_vision_embeddings_oai_content`: images stand in messages only, where the
/// template writes their marks and no text can; what llama.cpp's server takes in their place is refused by the field.
#[test]
fn images_stand_in_messages_only() {
    let server = seeing();
    let encoded = BASE64_STANDARD.encode(picture(0));
    let object = json!({ "prompt_string": "What is this: <__media__>\n", "multimodal_data": [encoded] });
    let parts = json!({ "content": [{ "type": "image_url", "image_url": { "url": data_url(0) } }] });
    for (path, field, body) in [
        ("/v1/completions", "prompt", json!({ "prompt": object })),
        ("/v1/completions", "prompt", json!({ "prompt": [object] })),
        ("/v1/embeddings", "content", json!({ "input": "What is this:", "content": [object] })),
        ("/v1/embeddings", "input", json!({ "input": [object] })),
        ("/v1/embeddings", "input", json!({ "input": [parts] })),
    ] {
        let (status, answer) = server.post(path, &body);
        assert_eq!(status, 400, "{path}: {answer}");
        // The field, or what is in it.
        assert!(answer["error"]["param"].as_str().is_some_and(|param| param.starts_with(field)), "{path}: {answer}");
    }
    // A mark in a text is a text.
    let (status, answer) =
        server.post("/v1/completions", &json!({ "prompt": "What is this: <__media__>\n", "max_tokens": 1 }));
    assert_eq!(status, 200, "{answer}");
}
