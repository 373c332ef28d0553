//! What a request takes is told before it is read: no less than its values take, and not much more.
#![allow(clippy::unwrap_used)] // a test that cannot go on may panic

use crate::counting;

use model_factory_openai::{CompletionRequest, EmbeddingRequest, Outline};
use serde_json::{Value, json};

fn bytes_of(value: &Value, count: usize, place: &str) -> Vec<u8> {
    let values = Value::from(vec![value.clone(); count]);
    let message = json!([{ "role": "user", "content": "Hi" }]);
    let body = match place {
        "prompt" | "input" => json!({ place: values }),
        "messages" => json!({ "messages": values }),
        "kwargs" => json!({ "messages": message, "chat_template_kwargs": { "x": values } }),
        _ => {
            json!({ "messages": message, "tools": [{ "type": "function", "function": { "name": "f", "x": values } }] })
        }
    };
    body.to_string().into_bytes()
}

#[test]
fn an_outline_tells_what_reading_takes() {
    let _alone = counting::alone();
    let mut wrong = Vec::new();
    let turn = json!({ "role": "user", "content": "And then?" });
    let fields = json!({ "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9 });
    // Lists of as many as they have room for: where there is room for more, it takes no memory until it is written.
    for (place, value, count) in [
        ("tools", json!({ "a": 1 }), 1 << 15),
        ("kwargs", json!({ "a": 1 }), 1 << 15),
        ("kwargs", json!({}), 1 << 15),
        ("kwargs", json!([1]), 1 << 16),
        ("kwargs", json!([]), 1 << 16),
        ("kwargs", json!(1), 1 << 18),
        ("kwargs", json!(""), 1 << 18),
        ("kwargs", fields, 1 << 13),
        ("tools", json!([[[[1]]]]), 1 << 14),
        ("messages", turn, 1 << 14),
        ("prompt", json!(7), 1 << 18),
        ("prompt", json!([7]), 1 << 16),
        ("prompt", json!("a"), 1 << 18),
        ("input", json!("word ".repeat(100)), 1 << 11),
    ] {
        let body = bytes_of(&value, count, place);
        let (outline, taken) = counting::peak(|| Outline::of(&body).unwrap());
        assert!(taken < 4096, "{place} {value}: looking took {taken} bytes");
        let (_value, kept) = counting::kept(|| serde_json::from_slice::<Value>(&body).unwrap());
        let (_, peak) = counting::peak(|| match place {
            "prompt" => CompletionRequest::text(&body).map(drop),
            "input" => EmbeddingRequest::parse(&body).map(drop),
            _ => CompletionRequest::chat(&body).map(drop),
        });
        // Texts have their bytes of the body; and an allocator that counts counts a list that grows twice.
        let told = outline.bytes + body.len();
        if !(kept..4 * kept).contains(&told) || peak > 4 * told {
            wrong.push(format!("{place} {count} {value}: {told} told, {kept} kept, {peak} taken"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
