//! What is answered without generating, without HTTP: scores of documents, tokens and prompts.
#![allow(clippy::unwrap_used)] // a test that cannot go on may panic

use crate::common;
use model_factory::{Message, Model, Reranker};
use model_factory_openai::{DetokenizeRequest, RequestError, RerankRequest, TemplateRequest, TokenizeRequest};
use serde_json::{Value, json};

fn rerank(fields: Value) -> Result<RerankRequest, RequestError> {
    RerankRequest::parse(fields.to_string().as_bytes())
}

fn tokens(fields: Value) -> Result<TokenizeRequest, RequestError> {
    TokenizeRequest::parse(fields.to_string().as_bytes())
}

#[test]
fn documents_come_by_their_scores() {
    let model = Model::load(common::fixtures().join("embeddings/cross-encoder")).unwrap();
    let documents = ["The cat sat on the mat.", "running", "The cat sat."];
    let scores = model.rank("the cat", &documents, &Reranker::classifier()).unwrap();
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let ask = |more: Value| {
        let mut body = json!({ "model": "m", "query": "the cat", "documents": documents });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rerank(body).unwrap().rank(&model, "name", &Reranker::classifier()).unwrap()
    };
    let whole = ask(json!({}));
    assert_eq!((&whole["model"], &whole["object"]), (&json!("name"), &json!("list")));
    let scored = order.map(|index| json!({ "index": index, "relevance_score": scores[index] }));
    assert_eq!(whole["results"], json!(scored), "the bits of the library");
    // Two pairs have the tokens of both, and a pair one more separator than its texts.
    let of = |text: &str| model.tokenizer().encode_pair("the cat", text).unwrap().unwrap().0.len();
    let tokens: usize = documents.iter().map(|text| of(text)).sum();
    assert!(tokens > 20);
    assert_eq!(whole["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
    for (top, expected) in [(1, 1), (2, 2), (99, 3)] {
        let some = ask(json!({ "top_n": top }));
        assert_eq!(some["results"], json!(scored[..expected]), "{top}");
    }
    let objects = json!([{ "text": documents[0] }, documents[1], { "text": documents[2] }]);
    let given = ask(json!({ "documents": objects, "return_documents": true }));
    assert_eq!(given["results"][0]["document"], json!({ "text": documents[order[0]] }));
    // As text-embeddings-inference has it.
    let texts =
        json!({ "query": "the cat", "texts": documents, "return_text": true, "truncate": true, "raw_scores": false });
    let list = rerank(texts).unwrap().rank(&model, "name", &Reranker::classifier()).unwrap();
    let listed = order.map(|index| json!({ "index": index, "score": scores[index], "text": documents[index] }));
    assert_eq!(list, json!(listed));
    // Equal documents stay in their order.
    let same = json!({ "query": "the cat", "documents": ["running", "running", "running"] });
    let same = rerank(same).unwrap().rank(&model, "name", &Reranker::classifier()).unwrap();
    let places: Vec<u64> = same["results"].as_array().unwrap().iter().filter_map(|one| one["index"].as_u64()).collect();
    assert_eq!(places, [0, 1, 2]);
    let demo = Model::load(common::demo()).unwrap();
    let one = rerank(json!({ "query": "a", "documents": ["b"] })).unwrap();
    assert!(one.rank(&demo, "name", &Reranker::classifier()).is_err(), "it has no head for that");
}

#[test]
fn texts_become_tokens_and_texts_again() {
    let model = Model::load(common::demo()).unwrap();
    let text = "Once upon a time <|eos|> 媽 🤗";
    let ask =
        |fields: Value| -> Value { serde_json::from_str(&tokens(fields).unwrap().tokenize(&model).unwrap()).unwrap() };
    let tokenizer = model.tokenizer();
    for (fields, expected) in [
        (json!({ "content": text }), tokenizer.encode(text, false).unwrap()),
        (json!({ "content": text, "add_special": true }), tokenizer.encode(text, true).unwrap()),
        (json!({ "content": text, "parse_special": false }), tokenizer.encode_ordinary(text, false).unwrap()),
        (json!({ "prompt": text }), tokenizer.encode(text, true).unwrap()),
        (json!({ "model": "m", "prompt": text, "add_special_tokens": false }), tokenizer.encode(text, false).unwrap()),
    ] {
        let answer = ask(fields.clone());
        let [count, most] = [expected.len(), model.context_length()];
        assert_eq!(answer, json!({ "count": count, "max_model_len": most, "tokens": expected }), "{fields}");
    }
    assert_ne!(ask(json!({ "content": text })), ask(json!({ "content": text, "parse_special": false })));
    let with_texts = ask(json!({ "prompt": text, "return_token_strs": true }));
    assert_eq!(with_texts["token_strs"].as_array().unwrap().len(), with_texts["tokens"].as_array().unwrap().len());

    let pieces = ask(json!({ "content": text, "with_pieces": true }));
    let mut bytes = Vec::new();
    for token in pieces["tokens"].as_array().unwrap() {
        assert!(token["id"].is_u64());
        match &token["piece"] {
            Value::String(text) => bytes.extend_from_slice(text.as_bytes()),
            list => {
                bytes.extend(list.as_array().unwrap().iter().map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()))
            }
        }
    }
    assert_eq!(String::from_utf8(bytes).unwrap().trim_start(), text, "pieces are the bytes of the text");

    let detokenize = |ids: Value| {
        let request = DetokenizeRequest::parse(json!({ "tokens": ids }).to_string().as_bytes()).unwrap();
        request.detokenize(&model)
    };
    let back = detokenize(json!(tokenizer.encode(text, false).unwrap())).unwrap();
    assert_eq!((back["content"].as_str().unwrap().trim_start(), &back["prompt"]), (text, &back["content"]));
    assert!(detokenize(json!([5, 1_000_000])).is_err());
    assert_eq!(detokenize(json!([])).unwrap()["content"], "");
}

#[test]
fn conversations_become_prompts() {
    let model = Model::load(common::fixtures().join("models/r1-distill-llama/bf16")).unwrap();
    let messages = json!([{ "role": "user", "content": "Once upon a time" }]);
    let render = |more: Value| {
        let mut body = json!({ "messages": messages });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = TemplateRequest::parse(body.to_string().as_bytes()).unwrap();
        let prompt = request.render(&model).unwrap()["prompt"].as_str().unwrap().to_owned();
        body["return_token_strs"] = json!(false);
        let ids = tokens(body).unwrap().tokenize(&model).unwrap();
        let ids: Vec<u32> =
            serde_json::from_value(serde_json::from_str::<Value>(&ids).unwrap()["tokens"].take()).unwrap();
        assert_eq!(ids, model.tokenizer().encode_prompt(&prompt).unwrap(), "the tokens are those of the prompt");
        prompt
    };
    let whole = render(json!({}));
    assert_eq!(whole, model.chat_prompt(&[Message::user("Once upon a time")], &Default::default()).unwrap());
    let without = render(json!({ "add_generation_prompt": false }));
    assert!(whole.starts_with(&without) && whole != without, "{without}");
    let continued = json!({ "messages": [{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "It was" }], "continue_final_message": true });
    assert!(render(continued).ends_with("It was"));
}

#[test]
fn what_is_wrong_is_named() {
    let parse = |kind: &str, fields: &Value| {
        let body = fields.to_string();
        let body = body.as_bytes();
        match kind {
            "rerank" => RerankRequest::parse(body).map(drop),
            "tokenize" => TokenizeRequest::parse(body).map(drop),
            "detokenize" => DetokenizeRequest::parse(body).map(drop),
            _ => TemplateRequest::parse(body).map(drop),
        }
    };
    for (kind, field, fields) in [
        ("rerank", "query", json!({ "documents": ["a"] })),
        ("rerank", "query", json!({ "query": 1, "documents": ["a"] })),
        ("rerank", "documents", json!({ "query": "a" })),
        ("rerank", "documents", json!({ "query": "a", "documents": [] })),
        ("rerank", "documents", json!({ "query": "a", "documents": 123 })),
        ("rerank", "documents", json!({ "query": "a", "documents": vec!["a"; 2049] })),
        ("rerank", "documents[1]", json!({ "query": "a", "documents": ["a", 1] })),
        ("rerank", "documents[0].image", json!({ "query": "a", "documents": [{ "image": "x" }] })),
        ("rerank", "top_n", json!({ "query": "a", "documents": ["a"], "top_n": 0 })),
        ("rerank", "raw_scores", json!({ "query": "a", "texts": ["a"], "raw_scores": true })),
        ("rerank", "documents", json!({ "query": "a", "texts": ["a"], "documents": ["b"] })),
        ("rerank", "max_tokens_per_doc", json!({ "query": "a", "documents": ["a"], "max_tokens_per_doc": 5 })),
        ("tokenize", "content", json!({})),
        ("tokenize", "content", json!({ "content": 5 })),
        ("tokenize", "with_pieces", json!({ "prompt": "a", "with_pieces": true })),
        ("tokenize", "content", json!({ "prompt": "a", "content": "b" })),
        ("tokenize", "add_special_tokens", json!({ "messages": [], "add_special_tokens": true })),
        ("tokenize", "messages", json!({ "messages": [] })),
        ("detokenize", "tokens", json!({ "tokens": ["a"] })),
        ("detokenize", "x", json!({ "tokens": [], "x": 1 })),
        ("template", "messages", json!({})),
        (
            "template",
            "add_generation_prompt",
            json!({ "messages": [{ "role": "user", "content": "a" }], "add_generation_prompt": 3 }),
        ),
    ] {
        let found = parse(kind, &fields).unwrap_err();
        assert_eq!(found.field(), Some(field), "{kind} {fields}: {found}");
    }
}
