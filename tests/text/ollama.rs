//! Ollama's API without HTTP: what is read, what is refused and by which name, and what is answered.
#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on may panic

use crate::common;
use crate::openai::chunks;
use model_factory::generate::Grammar;
use model_factory::{GenerateOptions, Message, Model, ToolChoice};
use model_factory_openai::ollama::{EmbedRequest, LineBuilder, chat, generate, show, time};
use model_factory_openai::{CompletionInput, CompletionRequest, RequestError};
use serde_json::{Value, json};

fn with(mut body: Value, fields: &Value) -> Vec<u8> {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn asked(fields: Value) -> Result<CompletionRequest, RequestError> {
    chat(&with(json!({ "model": "m", "messages": [{ "role": "user", "content": "Once upon a time" }] }), &fields))
}

fn continued(fields: Value) -> Result<CompletionRequest, RequestError> {
    generate(&with(json!({ "model": "m", "prompt": "Once upon a time" }), &fields))
}

fn messages(request: CompletionRequest) -> Vec<Message> {
    match request.input {
        CompletionInput::Messages(messages) => messages,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_become_options() {
    let tool = json!({ "type": "function", "function": { "name": "add", "parameters": {} } });
    let request = asked(json!({
        "tools": [tool], "think": true, "format": { "type": "integer" }, "keep_alive": "5m", "logprobs": true, "top_logprobs": 2,
        "options": {
            "num_predict": 6, "seed": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "stop": ["x"], "repeat_penalty": 1.1,
            "presence_penalty": 1, "frequency_penalty": -1, "num_ctx": 4096, "num_gpu": 99, "mirostat": 0, "repeat_last_n": -1, "tfs_z": 1.0,
        },
    }))
    .unwrap();
    let mut expected =
        GenerateOptions::default().max_tokens(6).temperature(0.5).top_p(0.9).top_k(5).min_p(0.1).seed(7).stop("x");
    expected = expected.repetition_penalty(1.1).presence_penalty(1.0).frequency_penalty(-1.0).logprobs(2);
    expected = expected.grammar(&Grammar::json_schema(json!({ "type": "integer" })));
    expected.chat = expected.chat.tool(tool).variable("enable_thinking", true);
    assert_eq!(request.options, expected);
    assert_eq!(
        (request.model.as_deref(), request.stream, request.include_usage),
        (Some("m"), true, true),
        "it streams by itself"
    );
    let whole = asked(json!({ "stream": false, "think": "low", "format": "json" })).unwrap();
    assert!(!whole.stream && whole.options.grammar.is_some() && whole.options.max_tokens == usize::MAX);
    assert_eq!(
        (&whole.options.chat.variables["enable_thinking"], &whole.options.chat.variables["reasoning_effort"]),
        (&json!(true), &json!("low"))
    );
    for (limit, expected) in [(-1, usize::MAX), (-2, usize::MAX), (3, 3)] {
        assert_eq!(asked(json!({ "options": { "num_predict": limit } })).unwrap().options.max_tokens, expected);
    }
    assert!(asked(json!({ "format": "" })).unwrap().options.grammar.is_none());
    let strict = json!([{ "type": "function", "function": { "name": "add", "strict": true } }]);
    assert_eq!(asked(json!({ "tools": strict })).unwrap().options.tool_choice, ToolChoice::Strict);
    assert_eq!(asked(json!({ "tools": [] })).unwrap().options, asked(json!({})).unwrap().options);
}

#[test]
fn messages_and_prompts_are_the_same_conversation() {
    let picture = "iVBORw0KGgo=";
    let turns = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "2 + 5?" },
        { "role": "assistant", "content": "", "thinking": "A sum.", "tool_calls": [{ "function": { "name": "add", "arguments": { "a": 2 } } }] },
        { "role": "tool", "content": "7", "tool_name": "add" },
        { "role": "user", "content": "What is it?", "images": [picture] },
    ]);
    let call = json!([{ "type": "function", "function": { "name": "add", "arguments": { "a": 2 } } }]);
    let found = messages(asked(json!({ "messages": turns })).unwrap());
    let expected = [
        Message::system("Be brief."),
        Message::user("2 + 5?"),
        Message::tool_calls(call).field("reasoning_content", "A sum."),
        Message::tool("7").field("name", "add"),
    ];
    assert_eq!(found[..4], expected);
    let kinds: Vec<&str> =
        found[4].fields["content"].as_array().unwrap().iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!((kinds, found[4].images.len()), (vec!["image", "text"], 1));

    let one = continued(json!({ "system": "Be brief.", "context": [], "suffix": "", "template": "" })).unwrap();
    assert_eq!(messages(one), [Message::system("Be brief."), Message::user("Once upon a time")]);
    assert_eq!(messages(continued(json!({ "images": [picture], "prompt": "What is it?" })).unwrap())[0], found[4]);
    let raw = continued(json!({ "raw": true })).unwrap();
    assert_eq!(raw.input, CompletionInput::Texts(vec!["Once upon a time".into()]));
}

#[test]
fn what_is_wrong_is_named() {
    let turn = |turn: Value| json!({ "messages": [turn] });
    for (field, fields) in [
        ("messages", json!({ "messages": null })),
        ("messages", json!({ "messages": [] })),
        ("messages[0]", turn(json!("Hi"))),
        ("messages[0].role", turn(json!({ "role": "critic", "content": "Hi" }))),
        ("messages[0].content", turn(json!({ "role": "user", "content": [] }))),
        ("messages[0].x", turn(json!({ "role": "user", "content": "Hi", "x": 1 }))),
        ("messages[0].images", turn(json!({ "role": "user", "content": "Hi", "images": "x" }))),
        ("messages[0].images[0]", turn(json!({ "role": "user", "content": "Hi", "images": ["?"] }))),
        ("messages[0].tool_calls[0].function", turn(json!({ "role": "assistant", "tool_calls": [{}] }))),
        (
            "messages[0].tool_calls[0].function.arguments",
            turn(json!({ "role": "assistant", "tool_calls": [{ "function": { "name": "a", "arguments": "{}" } }] })),
        ),
        ("model", json!({ "model": null })),
        ("tools[0]", json!({ "tools": [{ "name": "add" }] })),
        ("format", json!({ "format": "xml" })),
        ("think", json!({ "think": 3 })),
        ("options.mirostat", json!({ "options": { "mirostat": 2 } })),
        ("options.repeat_last_n", json!({ "options": { "repeat_last_n": 64 } })),
        ("options.num_predict", json!({ "options": { "num_predict": 1.5 } })),
        ("options.n", json!({ "options": { "n": 2 } })),
        ("options.max_tokens", json!({ "options": { "max_tokens": 2 } })),
        ("options.temperature", json!({ "options": { "temperature": "hot" } })),
        ("temperature", json!({ "temperature": 1 })),
        ("max_tokens", json!({ "max_tokens": 5 })),
    ] {
        let found = asked(fields.clone()).unwrap_err();
        assert_eq!(found.field(), Some(field), "{fields}: {found}");
    }
    for (field, fields) in [
        ("prompt", json!({ "prompt": null })),
        ("prompt", json!({ "prompt": "" })),
        ("suffix", json!({ "suffix": "end" })),
        ("template", json!({ "template": "{{ .Prompt }}" })),
        ("context", json!({ "context": [1] })),
        ("system", json!({ "raw": true, "system": "a" })),
        ("images", json!({ "raw": true, "images": [] })),
        ("width", json!({ "width": 512 })),
    ] {
        let found = continued(fields.clone()).unwrap_err();
        assert_eq!(found.field(), Some(field), "{fields}: {found}");
    }
    let embed = |fields: Value| EmbedRequest::embed(fields.to_string().as_bytes()).map(drop).unwrap_err();
    for (field, fields) in [
        ("input", json!({ "model": "m" })),
        ("input", json!({ "model": "m", "input": [1, 2] })),
        ("model", json!({ "input": "a" })),
        ("x", json!({ "model": "m", "input": "a", "x": 1 })),
    ] {
        assert_eq!(embed(fields.clone()).field(), Some(field), "{fields}");
    }
    let one = json!({ "model": "m", "prompt": ["a"] }).to_string();
    assert_eq!(EmbedRequest::embeddings(one.as_bytes()).map(drop).unwrap_err().field(), Some("prompt"));
    assert_eq!(show(b"{\"name\": \"m\"}").unwrap(), "m");
    assert_eq!(show(b"{}").unwrap_err().field(), Some("model"));
}

#[test]
fn lines_build_the_whole_answer() {
    let demo = Model::load(common::demo()).unwrap();
    let thinks = Model::load(common::fixtures().join("models/r1-distill-llama/bf16")).unwrap();
    let limit = |tokens: usize| json!({ "options": { "num_predict": tokens, "temperature": 0 } });
    let stops = json!({ "options": { "num_predict": 100, "temperature": 0, "stop": ["a"] } });
    let mut logs = limit(6);
    (logs["logprobs"], logs["top_logprobs"]) = (json!(true), json!(2));
    type Read = fn(Value) -> Result<CompletionRequest, RequestError>;
    let raw: Read = |mut fields| {
        fields["raw"] = json!(true);
        continued(fields)
    };
    for (model, read, fields, reason) in [
        (&demo, asked as Read, limit(6), "length"),
        (&demo, asked, stops, "stop"),
        (&demo, asked, logs.clone(), "length"),
        (&demo, continued, limit(6), "length"),
        (&demo, raw, logs, "length"),
        (&thinks, asked, limit(6), "length"),
    ] {
        let of = |stream: bool| {
            let mut fields = fields.clone();
            fields["stream"] = stream.into();
            read(fields).unwrap()
        };
        let is_chat = std::ptr::fn_addr_eq(read, asked as Read);
        let (_, whole) = chunks(model, &of(false));
        let mut whole = LineBuilder::new(is_chat).whole(&whole);
        let (streamed, _) = chunks(model, &of(true));
        let mut builder = LineBuilder::new(is_chat);
        let lines: Vec<Value> = streamed.iter().filter_map(|chunk| builder.push(chunk)).collect();
        let (last, before) = lines.split_last().unwrap();
        assert!(
            last["done"] == true
                && before.iter().all(|line| line["done"] == false && line.get("done_reason").is_none())
        );
        assert_eq!(last["done_reason"], reason, "{fields}");
        let mut built = last.clone();
        let texts = |name: &str| -> String {
            let place = |line: &Value| if is_chat { line["message"][name].clone() } else { line[name].clone() };
            lines.iter().filter_map(|line| place(line).as_str().map(str::to_owned)).collect()
        };
        let thought = texts("thinking");
        if is_chat {
            built["message"]["content"] = texts("content").into();
            if !thought.is_empty() {
                built["message"]["thinking"] = thought.clone().into();
            }
        } else {
            built["response"] = texts("response").into();
        }
        let logprobs: Vec<Value> =
            lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten().cloned().collect();
        if !logprobs.is_empty() {
            assert!(logprobs.len() == 6 && logprobs[0]["top_logprobs"].as_array().unwrap().len() == 2, "{logprobs:?}");
            built["logprobs"] = logprobs.into();
        }
        assert_eq!(fields.get("logprobs").is_some(), whole.get("logprobs").is_some());
        assert!(whole["total_duration"].as_u64() > Some(0) && whole["eval_count"].as_u64() > Some(0));
        for line in [&mut built, &mut whole] {
            for name in ["created_at", "total_duration", "prompt_eval_duration", "eval_duration"] {
                line[name] = json!(null);
            }
        }
        assert_eq!(built, whole, "{fields}");
        assert_eq!(std::ptr::eq(model, &thinks), !thought.is_empty());
    }
    // Calls have their arguments as objects.
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let parameters = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let mut request = asked(json!({ "stream": false, "tools": [{ "type": "function", "function": { "name": "add", "parameters": parameters } }] })).unwrap();
    request.options =
        request.options.tool_choice(ToolChoice::Required).parallel_tool_calls(false).max_tokens(400).temperature(0.0);
    let line = LineBuilder::new(true).whole(&chunks(&demo, &request).1);
    let called = &line["message"]["tool_calls"][0]["function"];
    assert!(called["name"] == "add" && called["arguments"]["a"].as_u64().is_some_and(|a| a <= 9), "{line}");
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_798_761_599, "2026-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(time(seconds), expected);
    }
}

#[test]
fn vectors_are_those_of_the_library() {
    let model = Model::load(common::fixtures().join("embeddings/bert")).unwrap();
    let texts = ["The cat sat on the mat.", "Cats run."];
    let body = json!({ "model": "m", "input": texts, "dimensions": 8, "keep_alive": 0, "options": {} }).to_string();
    let answer = EmbedRequest::embed(body.as_bytes()).unwrap().answer(&model, "m").unwrap();
    let expected = model.embeddings(&texts, &model_factory::EmbedOptions::default().dimensions(8)).unwrap();
    let vectors: Vec<Value> = expected.vectors().map(Value::from).collect();
    assert_eq!((&answer["embeddings"], &answer["prompt_eval_count"]), (&json!(vectors), &json!(expected.tokens())));
    let one = json!({ "model": "m", "prompt": texts[1] }).to_string();
    let one = EmbedRequest::embeddings(one.as_bytes()).unwrap().answer(&model, "m").unwrap();
    let whole = model.embeddings(&texts[1..], &Default::default()).unwrap();
    assert_eq!(one, json!({ "embedding": whole.vectors().next().map(Value::from) }));
    let long = json!({ "model": "m", "input": "word ".repeat(2000) }).to_string();
    assert!(EmbedRequest::embed(long.as_bytes()).unwrap().answer(&model, "m").is_ok(), "it is cut");
    let long = json!({ "model": "m", "input": "word ".repeat(2000), "truncate": false }).to_string();
    assert!(EmbedRequest::embed(long.as_bytes()).unwrap().answer(&model, "m").is_err());
}
