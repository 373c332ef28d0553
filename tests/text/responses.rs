//! OpenAI's Responses without HTTP: what is read, what is refused and by which name, and what is answered.
#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on may panic

use crate::common;
use crate::openai::chunks;
use model_factory::generate::Grammar;
use model_factory::{GenerateOptions, Message, Model, ToolChoice};
use model_factory_openai::responses::{KeptResponse, ResponseBuilder, missing, previous, request};
use model_factory_openai::{ApiError, CompletionInput, CompletionRequest, RequestError};
use serde_json::{Value, json};

fn read(fields: Value, earlier: &[&str]) -> Result<(CompletionRequest, ResponseBuilder), RequestError> {
    let mut body = json!({ "model": "m", "input": "Once upon a time", "max_output_tokens": 6 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request(body.to_string().as_bytes(), earlier)
}

fn asked(fields: Value) -> Result<CompletionRequest, RequestError> {
    read(fields, &[]).map(|(request, _)| request)
}

fn messages_after(fields: Value, earlier: &[&str]) -> Vec<Message> {
    match read(fields, earlier).unwrap().0.input {
        CompletionInput::Messages(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn messages(input: Value) -> Vec<Message> {
    messages_after(json!({ "input": input }), &[])
}

#[test]
fn fields_become_options() {
    let schema = json!({ "type": "object", "properties": {} });
    let tool =
        json!({ "type": "function", "name": "add", "description": "Adds.", "parameters": schema, "strict": null });
    let request = asked(json!({
        "instructions": "Be brief.", "stream": true, "temperature": 0.5, "top_p": 0.9, "tools": [tool], "parallel_tool_calls": false,
        "tool_choice": { "type": "function", "name": "add" }, "reasoning": { "effort": "low", "summary": "auto" },
        "text": { "format": { "type": "json_schema", "name": "n", "strict": true, "schema": { "type": "integer" } }, "verbosity": "low" },
        "top_logprobs": 2, "include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "metadata": { "a": "b" },
        "truncation": "disabled", "user": "u", "background": false, "max_tool_calls": 3, "service_tier": "auto", "conversation": null,
        "prompt_cache_key": "k", "prompt_cache_options": { "mode": "implicit" }, "top_k": 5, "seed": 7, "cache_salt": "somebody",
    }))
    .unwrap();
    let mut expected =
        GenerateOptions::default().max_tokens(6).temperature(0.5).top_p(0.9).top_k(5).seed(7).logprobs(2);
    expected = expected
        .tool_choice(ToolChoice::Named("add".into()))
        .parallel_tool_calls(false)
        .cache_salt("somebody")
        .grammar(&Grammar::json_schema(json!({ "type": "integer" })));
    let function = json!({ "name": "add", "description": "Adds.", "parameters": schema });
    let function = json!({ "type": "function", "function": function });
    expected.chat = expected.chat.tool(function).variable("reasoning_effort", "low");
    assert_eq!(request.options, expected);
    let head = (request.model.as_deref(), request.stream, request.include_usage, request.answers());
    assert_eq!(head, (Some("m"), true, true, 1), "the usage ends the stream");
    let instructed = [Message::system("Be brief."), Message::user("Once upon a time")];
    assert_eq!(request.input, CompletionInput::Messages(instructed.into()));
    let free = asked(json!({ "max_output_tokens": null, "top_logprobs": 2, "reasoning": { "effort": "none" } }))
        .unwrap()
        .options;
    assert_eq!((free.max_tokens, free.logprobs), (usize::MAX, None), "only include asks for log-probabilities");
    assert_eq!(free.chat.variables["enable_thinking"], false);

    let add = json!({ "type": "function", "name": "add", "strict": true });
    let stop = json!({ "type": "function", "name": "stop" });
    let allowed = |mode: &str| json!({ "type": "allowed_tools", "mode": mode, "tools": [{ "type": "function", "name": "stop" }] });
    for (choice, expected, names) in [
        (json!("auto"), ToolChoice::Strict, 2),
        (json!("none"), ToolChoice::None, 2),
        (json!("required"), ToolChoice::Required, 2),
        (allowed("auto"), ToolChoice::Auto, 1),
        (allowed("required"), ToolChoice::Required, 1),
    ] {
        let options = asked(json!({ "tools": [add, stop], "tool_choice": choice })).unwrap().options;
        assert_eq!((options.tool_choice, options.chat.tools.unwrap().len()), (expected, names), "{choice}");
    }
    let budget = asked(json!({ "thinking_budget_tokens": 9 })).unwrap().options.thinking_budget;
    assert_eq!(budget, Some(9), "as vLLM and llama.cpp's server take it in chats");
    assert!(asked(json!({ "text": { "format": { "type": "json_object" } } })).unwrap().options.grammar.is_some());
    assert!(asked(json!({ "text": { "format": { "type": "text" } } })).unwrap().options.grammar.is_none());
}

#[test]
fn items_become_messages() {
    let items = json!([
        { "role": "developer", "content": "Be brief." },
        { "type": "message", "role": "user", "content": [
            { "type": "input_text", "text": "What is " }, { "type": "input_text", "text": "2 + 5?" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [], "content": [{ "type": "reasoning_text", "text": "A sum." }], "encrypted_content": null },
        { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
            { "type": "output_text", "text": "I add.", "annotations": [], "logprobs": [] }] },
        { "type": "function_call", "id": "fc_1", "call_id": "a1", "name": "add", "arguments": "{\"a\": 2}", "status": "completed" },
        { "type": "function_call", "call_id": "a2", "name": "stop", "arguments": "" },
        { "type": "function_call_output", "call_id": "a1", "output": "7" },
        { "type": "function_call_output", "call_id": "a2", "output": [{ "type": "input_text", "text": "o" }, { "type": "input_text", "text": "k" }] },
        { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Short." }] },
        { "role": "assistant", "content": "It is 7." },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "No." }] },
        { "role": "user", "content": "So?" },
    ]);
    let call = |id: &str, name: &str, arguments: Value| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let calls = json!([call("a1", "add", json!({ "a": 2 })), call("a2", "stop", json!({}))]);
    let result = |id: &str, name: &str, text: &str| Message::tool(text).field("tool_call_id", id).field("name", name);
    let expected = [
        Message::new("developer", "Be brief."),
        Message::user("What is 2 + 5?"),
        Message::assistant("I add.").field("reasoning_content", "A sum.").field("tool_calls", calls),
        result("a1", "add", "7"),
        result("a2", "stop", "ok"),
        Message::assistant("It is 7.").field("reasoning_content", "Short."),
        Message::assistant("No."),
        Message::user("So?"),
    ];
    assert_eq!(messages(items), expected);
    // A turn of calls only, whose arguments are no object and stay as they came.
    let odd = messages(json!([{ "type": "function_call", "call_id": "a", "name": "add", "arguments": "a=1" }]));
    assert_eq!((&odd[0].content, &odd[0].fields["tool_calls"][0]["function"]["arguments"]), (&None, &json!("a=1")));
    // An image stands where its part does.
    let image = json!({ "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo=" });
    let parts =
        json!([{ "type": "input_text", "text": "Look: " }, image, { "type": "input_text", "text": "What is it?" }]);
    let found = messages(json!([{ "role": "user", "content": parts }]));
    let kinds: Vec<&str> =
        found[0].fields["content"].as_array().unwrap().iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!((kinds, found[0].images.len()), (vec!["text", "image", "text"], 1));
}

#[test]
fn what_is_wrong_is_named() {
    let part = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
    let item = |item: Value| json!({ "input": [item] });
    let tool = json!([{ "type": "function", "name": "add" }]);
    for (field, fields) in [
        ("input", json!({ "input": null })),
        ("input", json!({ "input": 1 })),
        ("input", json!({ "input": [] })),
        ("input[0]", item(json!("Hi"))),
        ("input[0].type", item(json!({ "text": "Hi" }))),
        ("input[0].type", item(json!({ "type": "item_reference", "id": "msg_1" }))),
        ("input[0].type", item(json!({ "type": "web_search_call", "id": "w" }))),
        ("input[0].role", item(json!({ "role": "tool", "content": "Hi" }))),
        ("input[0].content", item(json!({ "role": "user" }))),
        ("input[0].name", item(json!({ "role": "user", "content": "Hi", "name": "a" }))),
        ("input[0].content[0].type", part(json!({ "type": "input_file", "file_id": "f" }))),
        ("input[0].content[0].type", part(json!({ "type": "input_audio" }))),
        ("input[0].content[0].type", part(json!({ "type": "output_text", "text": "Hi" }))),
        ("input[0].content[0].text", part(json!({ "type": "input_text" }))),
        ("input[0].content[0].x", part(json!({ "type": "input_text", "text": "Hi", "x": 1 }))),
        ("input[0].content[0].file_id", part(json!({ "type": "input_image", "file_id": "f" }))),
        (
            "input[0].content[0].image_url",
            part(json!({ "type": "input_image", "image_url": "https://localhost/cat.png" })),
        ),
        ("input[0].call_id", item(json!({ "type": "function_call", "name": "a", "arguments": "" }))),
        ("input[0].arguments", item(json!({ "type": "function_call", "call_id": "a", "name": "a", "arguments": {} }))),
        ("input[0].output", item(json!({ "type": "function_call_output", "call_id": "a" }))),
        (
            "input[0].output[0].type",
            item(json!({ "type": "function_call_output", "call_id": "a", "output": [{ "type": "input_image" }] })),
        ),
        ("input[0].content[0].type", item(json!({ "type": "reasoning", "content": [{ "type": "text", "text": "" }] }))),
        ("tools[0].type", json!({ "tools": [{ "type": "web_search" }] })),
        ("tools[0].type", json!({ "tools": [{ "type": "file_search", "vector_store_ids": [] }] })),
        ("tools[0].name", json!({ "tools": [{ "type": "function", "function": { "name": "add" } }] }).clone()),
        ("tool_choice", json!({ "tools": tool, "tool_choice": { "type": "web_search" } })),
        ("tool_choice", json!({ "tools": tool, "tool_choice": { "type": "mcp", "name": "add" } })),
        ("text.format.type", json!({ "text": { "format": { "type": "grammar" } } })),
        ("text.format.schema", json!({ "text": { "format": { "type": "json_schema", "name": "n" } } })),
        ("reasoning.summary", json!({ "reasoning": { "summary": "long" } })),
        ("reasoning.x", json!({ "reasoning": { "x": 1 } })),
        ("include[1]", json!({ "include": ["reasoning.encrypted_content", "file_search_call.results"] })),
        ("background", json!({ "background": true })),
        ("truncation", json!({ "truncation": "auto" })),
        ("metadata", json!({ "metadata": { "a": 1 } })),
        ("conversation", json!({ "conversation": "conv_1" })),
        ("prompt", json!({ "prompt": { "id": "p" } })),
        ("max_output_tokens", json!({ "max_output_tokens": "many" })),
        ("previous_response_id", json!({ "previous_response_id": 1 })),
        ("messages", json!({ "messages": [] })),
        ("max_tokens", json!({ "max_tokens": 5 })),
        ("n", json!({ "n": 2 })),
        ("response_format", json!({ "response_format": { "type": "text" } })),
        ("chat_template_kwargs", json!({ "chat_template_kwargs": { "messages": [] } })),
    ] {
        let found = asked(fields.clone()).unwrap_err();
        let is_tool = field == "tools[0].name"; // which unknown field is named first is not said
        assert!(
            found.field() == Some(field) || is_tool && found.field() == Some("tools[0].function"),
            "{fields}: {found}"
        );
    }
    let gone = missing("resp_1", true);
    assert_eq!((gone.status, gone.code), (400, Some("previous_response_not_found")));
    assert_eq!(gone.message, "Previous response with id 'resp_1' not found.");
    assert_eq!(missing("resp_1", false).status, 404);
    let find = |body: Value| previous(body.to_string().as_bytes());
    assert_eq!(find(json!({ "input": "Hi", "previous_response_id": "resp_1" })).as_deref(), Some("resp_1"));
    assert_eq!((find(json!({ "input": "Hi" })), find(json!({ "previous_response_id": 1 }))), (None, None));
}

/// The response that the events of a stream build. Each must come in its order and belong to the item and the part that is open.
fn built(events: &[Value]) -> Value {
    let kind = |event: &Value| event["type"].as_str().unwrap().strip_prefix("response.").unwrap().to_owned();
    let (mut output, mut item, mut part): (Vec<Value>, Option<Value>, Option<Value>) = (Vec::new(), None, None);
    let last = events.len() - 1;
    let mut arguments = String::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], index);
        match index {
            0 => assert_eq!(kind(event), "created"),
            1 => assert_eq!(kind(event), "in_progress"),
            _ if index == last => assert!(matches!(&*kind(event), "completed" | "incomplete"), "{event}"),
            _ => assert_eq!(event["output_index"], output.len()),
        }
        if let Some(id) = event.get("item_id") {
            assert_eq!(Some(id), item.as_ref().map(|item| &item["id"]));
        }
        if event.get("content_index").is_some() {
            assert_eq!(event["content_index"], 0);
        }
        match &*kind(event) {
            "created" | "in_progress" => {
                assert_eq!(
                    (&event["response"]["status"], &event["response"]["output"]),
                    (&json!("in_progress"), &json!([]))
                );
            }
            "output_item.added" => {
                assert!(item.is_none() && event["item"]["status"] == "in_progress");
                item = Some(event["item"].clone());
                arguments.clear();
            }
            "content_part.added" => {
                assert!(part.is_none() && item.as_ref().unwrap()["content"] == json!([]));
                part = Some(event["part"].clone());
            }
            "output_text.delta" | "reasoning_text.delta" => {
                let part = part.as_mut().unwrap();
                assert_eq!(kind(event), format!("{}.delta", part["type"].as_str().unwrap()));
                part["text"] = (part["text"].as_str().unwrap().to_owned() + event["delta"].as_str().unwrap()).into();
                if let Some(logprobs) = event.get("logprobs") {
                    part["logprobs"].as_array_mut().unwrap().extend(logprobs.as_array().unwrap().clone());
                }
            }
            "output_text.done" | "reasoning_text.done" => assert_eq!(event["text"], part.as_ref().unwrap()["text"]),
            "content_part.done" => {
                assert_eq!(event["part"]["text"], part.as_ref().unwrap()["text"]);
                item.as_mut().unwrap()["content"] = json!([event["part"]]);
                part = None;
            }
            "function_call_arguments.delta" => arguments += event["delta"].as_str().unwrap(),
            "function_call_arguments.done" => {
                assert_eq!(event["arguments"], *arguments);
                item.as_mut().unwrap()["arguments"] = json!(arguments);
            }
            "output_item.done" => {
                assert!(part.is_none());
                let mut item = item.take().unwrap();
                item["status"] = event["item"]["status"].clone();
                assert_eq!(item, event["item"]);
                output.push(item);
            }
            "completed" | "incomplete" => assert!(index == last && item.is_none()),
            other => panic!("{other}"),
        }
    }
    assert_eq!(events[last]["response"]["output"], json!(output));
    events[last]["response"].clone()
}

/// The answer to `fields`, whole and built of events, without what differs between two of the same.
fn answers(model: &Model, fields: &Value) -> [Value; 2] {
    [false, true].map(|stream| {
        let mut fields = fields.clone();
        (fields["stream"], fields["temperature"]) = (stream.into(), 0.into());
        let (request, mut builder) = read(fields, &[]).unwrap();
        let (chunks, _) = chunks(model, &request);
        let events: Vec<Value> = chunks.iter().flat_map(|chunk| builder.push(chunk)).collect();
        let mut response = if stream { built(&events) } else { builder.response().clone() };
        assert!(response["id"].as_str().unwrap().len() == 37 && response["created_at"].as_u64() > Some(0));
        let own = response["id"].as_str().unwrap().replacen("resp_", "", 1);
        let text = response.to_string().replace(&own, "");
        response = serde_json::from_str(&text).unwrap();
        for name in ["created_at", "completed_at"] {
            response[name] = json!(null);
        }
        // The second run of a prompt finds it cached; ids of calls differ.
        response["usage"]["input_tokens_details"] = json!(null);
        for item in response["output"].as_array_mut().unwrap().iter_mut().filter(|item| item["type"] == "function_call")
        {
            assert!(item["call_id"].as_str().is_some_and(|id| !id.is_empty()));
            item["call_id"] = json!(null);
        }
        response
    })
}

#[test]
fn events_build_the_whole_response() {
    let demo = Model::load(common::demo()).unwrap();
    let thinks = Model::load(common::fixtures().join("models/r1-distill-llama/bf16")).unwrap();
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let schema = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let tools = json!([{ "type": "function", "name": "add", "parameters": schema }]);
    for (model, fields, status, kinds) in [
        (&demo, json!({}), "incomplete", vec!["message"]),
        (&demo, json!({ "stop": "a", "max_output_tokens": 100 }), "completed", vec!["message"]),
        (
            &demo,
            json!({ "include": ["message.output_text.logprobs"], "top_logprobs": 2 }),
            "incomplete",
            vec!["message"],
        ),
        (
            &demo,
            json!({ "tools": tools, "tool_choice": { "type": "function", "name": "add" }, "max_output_tokens": 400, "parallel_tool_calls": false }),
            "completed",
            vec!["function_call"],
        ),
        (&thinks, json!({}), "incomplete", vec!["reasoning"]),
    ] {
        let [whole, built] = answers(model, &fields);
        assert_eq!(built, whole, "{fields}");
        let output = whole["output"].as_array().unwrap();
        let found: Vec<&str> = output.iter().filter_map(|item| item["type"].as_str()).collect();
        assert_eq!((whole["status"].as_str(), found), (Some(status), kinds), "{whole}");
        let is_cut = status == "incomplete";
        assert_eq!(
            whole["incomplete_details"],
            if is_cut { json!({ "reason": "max_output_tokens" }) } else { json!(null) }
        );
        assert_eq!(output.last().unwrap()["status"], status);
        assert!(whole["usage"]["output_tokens"].as_u64() > Some(0));
        if fields.get("include").is_some() {
            let logprobs = output[0]["content"][0]["logprobs"].as_array().unwrap();
            assert_eq!((logprobs.len(), logprobs[0]["top_logprobs"].as_array().unwrap().len()), (6, 2));
        }
        // The same text as through chat completions.
        if output[0]["type"] == "message" {
            let body = json!({ "messages": [{ "role": "user", "content": "Once upon a time" }], "temperature": 0,
                "max_tokens": fields.get("max_output_tokens").unwrap_or(&json!(6)), "stop": fields.get("stop") });
            let (_, chat) = chunks(model, &CompletionRequest::chat(body.to_string().as_bytes()).unwrap());
            assert_eq!(output[0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
        }
    }
}

/// The response to `fields` after `earlier` ones, as a server keeps it.
fn kept(fields: Value, earlier: &[&str], delta: Value) -> KeptResponse {
    let (_, mut builder) = read(fields, earlier).unwrap();
    assert!(builder.kept().is_none(), "it has not ended");
    builder.push(&json!({ "choices": [{ "delta": delta, "finish_reason": "stop" }], "created": 1, "model": "m" }));
    builder.push(&json!({ "choices": [], "usage": {} }));
    let kept = builder.kept().unwrap();
    assert!(builder.kept().is_none(), "it is kept once");
    kept
}

#[test]
fn a_kept_response_goes_on() {
    let function = json!({ "name": "add", "arguments": "{\"a\":2}" });
    let called = json!({ "reasoning_content": "A sum.", "tool_calls": [{ "id": "c1", "type": "function", "function": function }] });
    let first = kept(json!({ "input": "2 + 5?", "instructions": "Be brief." }), &[], called);
    let output = json!([{ "type": "function_call_output", "call_id": "c1", "output": "7" }]);
    let second =
        kept(json!({ "input": output, "previous_response_id": first.id }), &[&first.items], json!({ "content": "7." }));
    assert_eq!((first.previous, second.previous.as_deref()), (None, Some(&*first.id)));
    let call = json!([{ "id": "c1", "type": "function", "function": { "name": "add", "arguments": { "a": 2 } } }]);
    let after = messages_after(json!({ "input": "So?", "instructions": "Be kind." }), &[&first.items, &second.items]);
    let expected = [
        Message::system("Be kind."), // those before are not kept
        Message::user("2 + 5?"),
        Message::tool_calls(call).field("reasoning_content", "A sum."),
        Message::tool("7").field("tool_call_id", "c1").field("name", "add"),
        Message::assistant("7."),
        Message::user("So?"),
    ];
    assert_eq!(after, expected);
    assert_eq!(serde_json::from_str::<Value>(&second.response).unwrap()["previous_response_id"], *first.id);

    let many = kept(
        json!({ "input": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }, { "role": "user", "content": "c" }] }),
        &[],
        json!({ "content": "d" }),
    );
    let texts = |list: &Value| -> Vec<String> {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = many.input_items(false, 2, None);
    assert_eq!(
        (texts(&page), &page["has_more"], &page["object"]),
        (vec!["c".into(), "b".into()], &json!(true), &json!("list"))
    );
    assert_eq!((&page["first_id"], &page["last_id"]), (&page["data"][0]["id"], &page["data"][1]["id"]));
    let rest = many.input_items(false, 2, page["last_id"].as_str());
    assert_eq!((texts(&rest), &rest["has_more"]), (vec!["a".into()], &json!(false)));
    assert_eq!(texts(&many.input_items(true, 20, None)), ["a", "b", "c"]);
    assert_eq!(page["data"][1]["content"][0]["type"], "output_text");

    let (_, mut forgets) = read(json!({ "store": false }), &[]).unwrap();
    forgets.push(&json!({ "choices": [], "usage": {} }));
    assert!(forgets.kept().is_none() && forgets.response()["store"] == false);
    // All items together are bounded as those of one request are.
    let small = vec![json!({ "type": "reasoning", "summary": [] }); 20_000];
    let large = json!({ "input": small, "output": [] }).to_string();
    assert!(read(json!({}), &[&large]).is_ok());
    assert!(matches!(read(json!({}), &[&large, &large, &large]).unwrap_err(), RequestError::TooManyValues { .. }));
}

#[test]
fn a_fault_is_the_last_event() {
    let (_, mut builder) = read(json!({}), &[]).unwrap();
    let fault = ApiError::new(503, "no memory", None, None);
    let expected =
        json!({ "type": "error", "sequence_number": 0, "code": null, "message": "no memory", "param": null });
    assert_eq!(builder.fail(&fault), expected);
    builder.push(&json!({ "choices": [{ "delta": { "content": "a" } }] }));
    let last = builder.fail(&fault);
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"], json!({ "code": "server_error", "message": "no memory" }));
    assert!(builder.kept().is_none(), "what failed is not kept");
}
