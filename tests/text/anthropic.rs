//! Anthropic's Messages without HTTP: what is read, what is refused and by which name, and what is answered.
#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on may panic

use crate::common;
use crate::openai::chunks;
use model_factory::generate::Grammar;
use model_factory::{GenerateOptions, Message, Model, ToolChoice};
use model_factory_openai::anthropic::{MessageBuilder, error, request};
use model_factory_openai::{ApiError, CompletionInput, CompletionRequest, RequestError};
use serde_json::{Value, json};

fn asked(fields: Value) -> Result<CompletionRequest, RequestError> {
    let mut body = json!({ "model": "m", "max_tokens": 6, "messages": [{ "role": "user", "content": "Hi" }] });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request(body.to_string().as_bytes())
}

fn messages(fields: Value) -> Vec<Message> {
    match asked(fields).unwrap().input {
        CompletionInput::Messages(messages) => messages,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_become_options() {
    let schema = json!({ "type": "object", "properties": {} });
    let request = asked(json!({
        "stream": true, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["x"], "metadata": { "user_id": "u" },
        "tools": [{ "name": "add", "description": "Adds.", "input_schema": schema, "cache_control": { "type": "ephemeral" } }],
        "tool_choice": { "type": "any", "disable_parallel_tool_use": true }, "thinking": { "type": "enabled", "budget_tokens": 1024 },
        "output_config": { "effort": "low", "format": { "type": "json_schema", "schema": { "type": "integer" } } },
        "service_tier": "auto",
    }))
    .unwrap();
    let mut expected = GenerateOptions::default().max_tokens(6).temperature(0.5).top_p(0.9).top_k(5).stop("x");
    expected = expected
        .tool_choice(ToolChoice::Required)
        .parallel_tool_calls(false)
        .grammar(&Grammar::json_schema(json!({ "type": "integer" })));
    let tool =
        json!({ "type": "function", "function": { "name": "add", "parameters": schema, "description": "Adds." } });
    expected = expected.thinking_budget(1024);
    expected.chat = expected.chat.tool(tool).variable("enable_thinking", true).variable("reasoning_effort", "low");
    assert_eq!(request.options, expected);
    assert_eq!((request.model.as_deref(), request.stream, request.answers()), (Some("m"), true, 1));
    let strict = json!([{ "name": "add", "input_schema": {}, "strict": true }]);
    assert_eq!(asked(json!({ "tools": strict })).unwrap().options.tool_choice, ToolChoice::Strict);
    for (choice, expected) in [
        (json!({ "type": "auto" }), ToolChoice::Auto),
        (json!({ "type": "none" }), ToolChoice::None),
        (json!({ "type": "tool", "name": "add" }), ToolChoice::Named("add".into())),
    ] {
        assert_eq!(asked(json!({ "tool_choice": choice })).unwrap().options.tool_choice, expected);
    }
}

#[test]
fn parts_become_messages() {
    let system = json!([{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }, { "type": "text", "text": "Be kind." }]);
    let turns = json!([
        { "role": "user", "content": [{ "type": "text", "text": "What is " }, { "type": "text", "text": "2 + 5?" }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "A sum.", "signature": "" }, { "type": "redacted_thinking", "data": "x" },
            { "type": "text", "text": "I add." }, { "type": "tool_use", "id": "a1", "name": "add", "input": { "a": 2 } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "a1", "content": [{ "type": "text", "text": "7" }] }, { "type": "text", "text": "So?" },
        ] },
        { "role": "assistant", "content": "It is " },
    ]);
    let request = asked(json!({ "system": system, "messages": turns })).unwrap();
    assert!(request.options.chat.continue_final_message, "a last message of the assistant is continued");
    let call = json!([{ "id": "a1", "type": "function", "function": { "name": "add", "arguments": { "a": 2 } } }]);
    let expected = [
        Message::system("Be brief.\nBe kind."),
        Message::user("What is 2 + 5?"),
        Message::assistant("I add.").field("reasoning_content", "A sum.").field("tool_calls", call),
        Message::tool("7").field("tool_call_id", "a1").field("name", "add"),
        Message::user("So?"),
        Message::assistant("It is "),
    ];
    assert_eq!(messages(json!({ "system": system, "messages": turns })), expected);
    // Claude Code begins with a stamp that changes with each request, and nothing else is taken for one.
    let head = |stamp: &str| {
        format!("x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch={stamp};You are")
    };
    let told = |system: serde_json::Value| {
        messages(json!({ "system": system, "messages": [{ "role": "user", "content": "Hi" }] }))
    };
    let expected = told(json!(head("fffff")));
    assert_eq!(told(json!(head("a5145"))), expected);
    assert_eq!(told(json!([{ "type": "text", "text": head("00b2c") }])), expected);
    for other in
        [head("a514"), head("a51456"), head("aaé"), head("aaaaé").replace(';', ""), format!("So: {}", head("a5145"))]
    {
        assert_eq!(told(json!(other)), [Message::system(other.clone()), Message::user("Hi")]);
    }
    // Claude Code has reminders of the system between the turns.
    let between = json!([{ "role": "user", "content": "Hi" }, { "role": "system", "content": [{ "type": "text", "text": "It is late." }] }]);
    assert_eq!(messages(json!({ "messages": between })), [Message::user("Hi"), Message::system("It is late.")]);
    // A call cannot be continued.
    let called = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": [
        { "type": "text", "text": "I add." }, { "type": "tool_use", "id": "a", "name": "add", "input": {} },
    ] }]);
    assert!(!asked(json!({ "messages": called })).unwrap().options.chat.continue_final_message);
    // What a model wrote that is no object goes back as it came.
    let odd =
        json!([{ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "add", "input": "a=1" }] }]);
    assert_eq!(messages(json!({ "messages": odd }))[0].fields["tool_calls"][0]["function"]["arguments"], "a=1");
    let calls_only = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "add", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a" }] },
    ]);
    let found = messages(json!({ "messages": calls_only }));
    assert_eq!((found.len(), &found[1].content, found[2].content.as_deref()), (3, &None, Some("")));
    // An image stands where its part does.
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    let parts = json!([{ "type": "text", "text": "Look: " }, { "type": "image", "source": source }, { "type": "text", "text": "What is it?" }]);
    let found = messages(json!({ "messages": [{ "role": "user", "content": parts }] }));
    let kinds: Vec<&str> =
        found[0].fields["content"].as_array().unwrap().iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!((kinds, found[0].images.len()), (vec!["text", "image", "text"], 1));
}

#[test]
fn what_is_wrong_is_named() {
    let part = |part: Value| json!({ "messages": [{ "role": "user", "content": [part] }] });
    let models = |part: Value| json!({ "messages": [{ "role": "assistant", "content": [part] }] });
    for (field, fields) in [
        ("messages", json!({ "messages": null })),
        ("messages", json!({ "messages": [] })),
        ("messages[0]", json!({ "messages": ["Hi"] })),
        ("messages[0].role", json!({ "messages": [{ "role": "developer", "content": "Hi" }] })),
        (
            "messages[0].content[0].type",
            json!({ "messages": [{ "role": "system", "content": [{ "type": "image" }] }] }),
        ),
        ("messages[0].content", json!({ "messages": [{ "role": "user" }] })),
        ("messages[0].name", json!({ "messages": [{ "role": "user", "content": "Hi", "name": "a" }] })),
        ("messages[0].content[0].type", part(json!({ "text": "Hi" }))),
        ("messages[0].content[0].type", part(json!({ "type": "document", "source": {} }))),
        ("messages[0].content[0].type", part(json!({ "type": "thinking", "thinking": "" }))),
        ("messages[0].content[0].text", part(json!({ "type": "text" }))),
        ("messages[0].content[0].x", part(json!({ "type": "text", "text": "Hi", "x": 1 }))),
        ("messages[0].content[0].source.type", part(json!({ "type": "image", "source": { "type": "url" } }))),
        (
            "messages[0].content[0].source.url",
            part(json!({ "type": "image", "source": { "type": "url", "url": "http://a" } })),
        ),
        (
            "messages[0].content[0].source.data",
            part(json!({ "type": "image", "source": { "type": "base64", "data": "?" } })),
        ),
        ("messages[0].content[0].tool_use_id", part(json!({ "type": "tool_result" }))),
        ("messages[0].content[0].input", models(json!({ "type": "tool_use", "id": "a", "name": "b", "input": 1 }))),
        ("system", json!({ "system": 1 })),
        ("system[0].type", json!({ "system": [{ "type": "image" }] })),
        ("tools[0].type", json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
        ("tools[0].input_schema", json!({ "tools": [{ "name": "a" }] })),
        ("tool_choice.type", json!({ "tool_choice": { "type": "some" } })),
        ("tool_choice.name", json!({ "tool_choice": { "type": "tool" } })),
        ("thinking.type", json!({ "thinking": { "type": "much" } })),
        ("output_format.type", json!({ "output_format": { "type": "xml" } })),
        ("max_tokens", json!({ "max_tokens": "many" })),
        ("stop_sequences", json!({ "stop_sequences": [1] })),
        ("stop_sequences", json!({ "stop_sequences": vec!["a"; 17] })),
        ("mcp_servers", json!({ "mcp_servers": [] })),
        ("n", json!({ "n": 2 })),
        ("stop", json!({ "stop": "x" })),
        ("response_format", json!({ "response_format": { "type": "text" } })),
    ] {
        let found = asked(fields.clone()).unwrap_err();
        assert_eq!(found.field(), Some(field), "{fields}: {found}");
    }
    let body = error(&ApiError::new(429, "full", None, None));
    assert_eq!(body, json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "full" } }));
}

/// The message that the events of a stream build, as Anthropic's own clients build it.
fn built(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    assert_eq!(
        (&events[0]["type"], &events.last().unwrap()["type"]),
        (&json!("message_start"), &json!("message_stop"))
    );
    let (mut open, mut json_text) = (None, String::new());
    for event in &events[1..events.len() - 1] {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(open.is_none());
                open = event["index"].as_u64();
                assert_eq!(open, Some(message["content"].as_array().unwrap().len() as u64));
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                json_text.clear();
            }
            "content_block_delta" => {
                assert_eq!(event["index"].as_u64(), open);
                let part = message["content"].as_array_mut().unwrap().last_mut().unwrap();
                let (kind, delta) = (part["type"].as_str().unwrap().to_owned(), &event["delta"]);
                if kind == "tool_use" {
                    json_text += delta["partial_json"].as_str().unwrap();
                    part["input"] = serde_json::from_str(&json_text).unwrap();
                } else {
                    let text = part[&kind].as_str().unwrap().to_owned() + delta[&kind].as_str().unwrap();
                    part[&kind] = text.into();
                }
            }
            "content_block_stop" => assert_eq!(event["index"].as_u64(), open.take()),
            "message_delta" => {
                for name in ["stop_reason", "stop_sequence"] {
                    message[name] = event["delta"][name].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            other => panic!("{other}"),
        }
    }
    message["id"] = json!(null);
    message
}

#[test]
fn events_build_the_whole_message() {
    let demo = Model::load(common::demo()).unwrap();
    let thinks = Model::load(common::fixtures().join("models/r1-distill-llama/bf16")).unwrap();
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let schema = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let tools = json!([{ "name": "add", "input_schema": schema }]);
    for (model, fields, reason, kinds) in [
        (&demo, json!({}), "max_tokens", vec!["text"]),
        (&demo, json!({ "stop_sequences": ["a"], "max_tokens": 100 }), "stop_sequence", vec!["text"]),
        (
            &demo,
            json!({ "tools": tools, "tool_choice": { "type": "tool", "name": "add" }, "max_tokens": 400 }),
            "tool_use",
            vec!["tool_use"],
        ),
        (&thinks, json!({}), "max_tokens", vec!["thinking"]),
    ] {
        let of = |stream: bool| {
            let mut fields = fields.clone();
            (fields["stream"], fields["temperature"]) = (stream.into(), 0.into());
            asked(fields).unwrap()
        };
        let (_, whole) = chunks(model, &of(false));
        let mut whole = MessageBuilder::whole(&whole);
        let (streamed, _) = chunks(model, &of(true));
        let mut builder = MessageBuilder::default();
        let events: Vec<Value> = streamed.iter().flat_map(|chunk| builder.push(chunk)).collect();
        assert!(whole["id"].as_str().unwrap().starts_with("msg_"));
        whole["id"] = json!(null);
        // The second run of a prompt finds it cached.
        let mut built = built(&events);
        for message in [&mut whole, &mut built] {
            message["usage"]["cache_read_input_tokens"] = json!(null);
            message["usage"]["input_tokens"] = json!(null);
            // Two answers, though they say the same: their calls have other ids.
            message["content"].as_array_mut().unwrap().iter_mut().for_each(|part| part["id"] = json!(null));
        }
        assert_eq!(built, whole, "{fields}");
        let found: Vec<&str> =
            whole["content"].as_array().unwrap().iter().filter_map(|part| part["type"].as_str()).collect();
        assert_eq!((whole["stop_reason"].as_str(), found), (Some(reason), kinds), "{whole}");
        assert!(events[0]["message"]["usage"].is_object() && whole["usage"]["output_tokens"].as_u64() > Some(0));
    }
}
