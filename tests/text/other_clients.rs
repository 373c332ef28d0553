//! What clients of other servers send: every field that docs/serve.md lists is taken, and does what it says.
#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on may panic

use crate::common;
use crate::openai::chunks;
use model_factory::generate::Grammar;
use model_factory::{GenerateOptions, Message, Model, ToolChoice};
use model_factory_openai::{CompletionRequest, RequestError};
use serde_json::{Value, json};

fn chat(fields: &Value) -> Result<CompletionRequest, RequestError> {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "Once upon a time" }], "max_tokens": 6,
        "tools": [{ "type": "function", "function": { "name": "add" } }, { "type": "function", "function": { "name": "stop" } }],
    });
    let body_fields = body.as_object_mut().unwrap();
    if fields.get("functions").is_some() {
        body_fields.remove("tools");
    }
    body_fields.extend(fields.as_object().unwrap().clone());
    CompletionRequest::chat(body.to_string().as_bytes())
}

/// The options, as the chat request without `fields` has them, changed by `change`.
fn options(change: impl FnOnce(&mut GenerateOptions)) -> GenerateOptions {
    let mut options = chat(&json!({})).unwrap().options;
    change(&mut options);
    options
}

#[test]
fn every_field_of_the_table_is_taken() {
    let docs = std::fs::read_to_string(common::repository().join("docs/serve.md")).unwrap();
    let (_, section) = docs.split_once("## What clients of other servers send").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut taken = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let fields = row.split('|').nth(1).unwrap();
        // The pieces between backticks are the first, the third and so on.
        for field in fields.split('`').skip(1).step_by(2) {
            let fields: Value =
                serde_json::from_str(&format!("{{{field}}}")).unwrap_or_else(|error| panic!("{field}: {error}"));
            assert!(chat(&fields).is_ok(), "{field}: {:?}", chat(&fields));
            taken += 1;
        }
    }
    assert!(taken > 50, "{taken}");
}

#[test]
fn names_of_other_servers_are_the_same_options() {
    let schema = json!({ "type": "integer" });
    let grammar = |grammar: Grammar| options(|options| options.grammar = Some(grammar));
    for (fields, expected) in [
        (json!({ "max_tokens": 5.0 }), options(|o| o.max_tokens = 5)),
        (json!({ "max_tokens": -1 }), options(|o| o.max_tokens = usize::MAX)),
        (json!({ "n_predict": 4 }), options(|o| o.max_tokens = 4)),
        (json!({ "top_k": -1 }), options(|o| o.sampling.top_k = Some(0))),
        (json!({ "thinking_budget_tokens": 9 }), options(|o| o.thinking_budget = Some(9))),
        (json!({ "reasoning_budget_tokens": 0 }), options(|o| o.thinking_budget = Some(0))),
        (json!({ "thinking_token_budget": 9.0 }), options(|o| o.thinking_budget = Some(9))),
        (json!({ "thinking_budget": -1 }), options(|o| o.thinking_budget = Some(usize::MAX))),
        (json!({ "min_tokens": 3 }), options(|o| o.sampling.min_tokens = 3)),
        (json!({ "repeat_penalty": 1.5 }), options(|o| o.sampling.repetition_penalty = Some(1.5))),
        (json!({ "stop_token_ids": [3, 5] }), options(|o| o.stop_tokens = vec![3, 5])),
        (json!({ "include_stop_str_in_output": true }), options(|o| o.include_stop = true)),
        (json!({ "parallel_tool_calls": false }), options(|o| o.parallel_tool_calls = false)),
        (json!({ "enable_thinking": false }), options(|o| o.chat = o.chat.clone().variable("enable_thinking", false))),
        (
            json!({ "continue_final_message": true, "add_generation_prompt": false }),
            options(|o| o.chat.continue_final_message = true),
        ),
        (json!({ "logprobs": false, "top_logprobs": 0 }), options(|_| ())),
        (json!({ "guided_json": schema }), grammar(Grammar::json_schema(schema.clone()))),
        (json!({ "guided_json": schema.to_string() }), grammar(Grammar::json_schema(schema.clone()))),
        (json!({ "json_schema": schema }), grammar(Grammar::json_schema(schema.clone()))),
        (json!({ "guided_regex": "a+" }), grammar(Grammar::regex("a+"))),
        (json!({ "regex": "a+" }), grammar(Grammar::regex("a+"))),
        (json!({ "guided_choice": ["a", "b"] }), grammar(Grammar::choice(&["a", "b"]))),
        (json!({ "guided_grammar": "start: \"a\"" }), grammar(Grammar::lark("start: \"a\""))),
        (json!({ "structured_outputs": { "json": schema } }), grammar(Grammar::json_schema(schema.clone()))),
        (json!({ "structured_outputs": { "regex": "a+" } }), grammar(Grammar::regex("a+"))),
        (json!({ "structured_outputs": { "choice": ["a"] } }), grammar(Grammar::choice(&["a"]))),
        (
            json!({ "structured_outputs": { "json_object": true } }),
            grammar(Grammar::json_schema(json!({ "type": "object" }))),
        ),
        (
            json!({ "response_format": { "type": "json_object", "schema": schema } }),
            grammar(Grammar::json_schema(schema.clone())),
        ),
        (
            json!({ "functions": [{ "name": "add" }, { "name": "stop" }], "function_call": { "name": "add" } }),
            options(|o| (o.tool_choice, o.parallel_tool_calls) = (ToolChoice::Named("add".into()), false)),
        ),
    ] {
        assert_eq!(chat(&fields).unwrap().options, expected, "{fields}");
    }
    let allowed = |mode: &str, names: &[&str]| {
        let tools: Vec<Value> =
            names.iter().map(|name| json!({ "type": "function", "function": { "name": name } })).collect();
        let choice = json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } });
        chat(&json!({ "tool_choice": choice })).unwrap().options
    };
    let named = |options: &GenerateOptions| {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        options.chat.tools.iter().flatten().map(name).collect::<Vec<_>>()
    };
    let (some, all) = (allowed("required", &["stop"]), allowed("auto", &["stop", "add"]));
    assert_eq!((&some.tool_choice, named(&some)), (&ToolChoice::Required, vec!["stop".to_owned()]));
    assert_eq!((&all.tool_choice, named(&all).len()), (&ToolChoice::Auto, 2));
}

/// A call comes in the form in which the tools were given, and only one where only one may come.
#[test]
fn functions_are_called_in_the_form_before_tools() {
    let model = Model::load(common::demo()).unwrap();
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let parameters = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let function = json!({ "name": "add", "parameters": parameters });
    let fields =
        json!({ "functions": [function], "function_call": { "name": "add" }, "max_tokens": 400, "temperature": 0 });
    let request = chat(&fields).unwrap();
    let (_, whole) = chunks(&model, &request);
    let choice = &whole["choices"][0];
    let call = &choice["message"]["function_call"];
    assert_eq!((&choice["finish_reason"], &call["name"]), (&json!("function_call"), &json!("add")), "{whole}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["a"].is_u64() && choice["message"]["tool_calls"].is_null(), "{whole}");
    // The call and its result go back in the same form.
    let turns = json!([
        { "role": "user", "content": "Add" },
        { "role": "assistant", "content": null, "function_call": call },
        { "role": "function", "name": "add", "content": "7" },
    ]);
    let again = chat(&json!({ "messages": turns, "functions": [function] })).unwrap();
    let model_factory_openai::CompletionInput::Messages(messages) = &again.input else { panic!("{again:?}") };
    assert_eq!(
        (messages[2].role.as_str(), &messages[1].fields["tool_calls"][0]["function"]["name"]),
        ("tool", &json!("add"))
    );
}

#[test]
fn every_chunk_has_the_usage_so_far_on_request() {
    let model = Model::load(common::demo()).unwrap();
    let usage = json!({ "include_usage": true, "continuous_usage_stats": true });
    let fields = json!({ "stream": true, "stream_options": usage, "temperature": 0, "tool_choice": "none" });
    let mut request = chat(&fields).unwrap();
    let mut builder = model_factory_openai::ChunkBuilder::new(&request, &model, "demo");
    request.tokenize(&model).unwrap();
    builder.with_prompts(&request);
    let mut generation = request.generations(&model).unwrap().remove(0);
    let mut counts = Vec::new();
    for piece in generation.by_ref() {
        counts
            .extend(builder.push(0, piece.unwrap()).map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()));
    }
    let last = builder.last_chunk(0, generation.finish()).unwrap();
    let total = builder.usage();
    assert!(counts.is_sorted() && counts.first() == Some(&1), "{counts:?}");
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][name], total["usage"][name], "{name}");
    }
    // Without them it is null until the end, as in the OpenAI API.
    let fields = json!({ "stream": true, "stream_options": { "include_usage": true }, "temperature": 0 });
    let (chunks, _) = chunks(&model, &chat(&fields).unwrap());
    let (last, others) = chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)) && last["usage"].is_object());
}

/// What an answer continues is a turn of the model that has begun.
#[test]
fn an_answer_continues_the_last_message() {
    let model = Model::load(common::archives::path("qwen3/f32")).unwrap();
    let begun = [Message::user("Hi"), Message::assistant("Once upon a ")];
    let closed = GenerateOptions::default().temperature(0.0).max_tokens(8);
    let mut open = closed.clone();
    open.chat.continue_final_message = true;
    let prompt = model.prompt_ids(&begun, &open.chat).unwrap();
    let text = model.tokenizer().decode(&prompt);
    assert!(text.ends_with("Once upon a") || text.ends_with("Once upon a "), "{text:?}");
    assert!(model.prompt_ids(&begun, &closed.chat).unwrap().len() > prompt.len(), "a turn that is over is closed");
    let mut answer = model.generate(&begun, &open).unwrap();
    assert!(!answer.text().unwrap().is_empty() && answer.finish().0.is_some());
    let none = [Message::new("user", "")];
    assert!(model.prompt_ids(&none, &open.chat).is_ok());
    let no_text = [Message::user("Hi"), Message::tool_calls(json!([]))];
    assert!(model.prompt_ids(&no_text, &open.chat).unwrap_err().to_string().contains("continue_final_message"));
}
