//! Requests with tools: what of a call reaches the client, and what an answer may be besides calls.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)] // a test that cannot go on may panic

use crate::common;

use common::archives;
use model_factory::error::ToolError;
use model_factory::{Error, GenerateOptions, Model};
use model_factory_openai::{ApiError, ChunkBuilder, CompletionRequest, append};
use serde_json::{Value, json};

/// A model of random weights whose chat template tells a format of calls by `evidence`.
fn model(evidence: &str) -> (tempfile::TempDir, Model) {
    let (folder, fixture) = (tempfile::tempdir().unwrap(), archives::path("qwen3/f32"));
    for file in std::fs::read_dir(&fixture).unwrap().map(|file| file.unwrap().path()) {
        std::fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let template =
        format!("{{# {evidence} #}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}{{{{ tools }}}}");
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let model = Model::load(folder.path()).unwrap();
    (folder, model)
}

/// The message that answers a request with the tool `add` of these parameters, and why it ended.
fn answer(model: &Model, parameters: &Value, fields: &Value) -> Result<(Value, Value), Error> {
    let tool = json!({ "type": "function", "function": { "name": "add", "parameters": parameters } });
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "tools": [tool], "max_tokens": 700 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let request = CompletionRequest::chat(body.to_string().as_bytes()).unwrap();
    let mut builder = ChunkBuilder::new(&request, model, "m");
    let mut whole = builder.whole();
    for (index, mut generation) in request.generations(model)?.into_iter().enumerate() {
        while let Some(piece) = generation.next().transpose()? {
            builder.push(index, piece).into_iter().for_each(|chunk| append(&mut whole, chunk));
        }
        append(&mut whole, builder.last_chunk(index, generation.finish())?);
    }
    let choice = &mut whole["choices"][0];
    Ok((choice["message"].take(), choice["finish_reason"].take()))
}

/// What is left of a whole number, as it is spelled, divided by 7.
fn by_seven(digits: &str) -> u32 {
    digits.trim_start_matches('-').bytes().fold(0, |rest, digit| {
        assert!(digit.is_ascii_digit(), "{digits}");
        (rest * 10 + u32::from(digit - b'0')) % 7
    })
}

#[test]
fn numbers_of_calls_keep_their_digits_and_can_be_read() {
    let (_folder, model) = model("<tool_call>arguments");
    let parameters = json!({
        "properties": { "n": { "type": "integer", "multipleOf": 7 }, "x": { "type": "number" } }, "required": ["n", "x"],
    });
    let (mut ended, mut long, mut exponents) = (0, 0, 0);
    for seed in 0..200 {
        let fields = json!({ "tool_choice": "required", "temperature": 5, "seed": seed });
        let (message, reason) = answer(&model, &parameters, &fields).unwrap();
        if reason == "length" {
            continue;
        }
        ended += 1;
        assert!(reason == "tool_calls" && message.get("content").is_none_or(Value::is_null), "seed {seed}: {message}");
        for call in message["tool_calls"].as_array().unwrap() {
            let text = call["function"]["arguments"].as_str().unwrap();
            let read: Value = serde_json::from_str(text).unwrap();
            assert!(read["x"].as_f64().is_some_and(f64::is_finite), "{text}");
            let number = text.split_once("\"n\"").unwrap().1.trim_start_matches([':', ' ', '\n', '\t']);
            let number = &number[..number.find([',', ' ', '\n', '\t']).unwrap()];
            assert_eq!(by_seven(number), 0, "{text}");
            long += usize::from(number.len() > 20);
            exponents += usize::from(text.contains(['e', 'E']));
        }
    }
    assert!(ended >= 100 && long > 0 && exponents > 0, "{ended} ended, {long} are long, {exponents} have exponents");
}

#[test]
fn an_answer_is_calls_or_a_value_of_its_schema() {
    let parameters =
        json!({ "properties": { "a": { "type": "integer", "maximum": 99, "minimum": 0 } }, "required": ["a"] });
    // The value may begin as a call does.
    let schema = json!({
        "type": "object", "properties": { "name": { "enum": ["add", "Tom"] }, "on": { "type": "boolean" } }, "required": ["name"],
        "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
    let mut all = Vec::new();
    for evidence in ["<tool_call>arguments", "<|python_tag|>"] {
        let (_folder, model) = model(evidence);
        for (choice, expected) in [("auto", [true, true]), ("required", [true, false]), ("none", [false, true])] {
            let (mut called, mut valued) = (0, 0);
            for seed in 0..60 {
                let fields =
                    json!({ "response_format": format, "tool_choice": choice, "temperature": 5, "seed": seed });
                let (message, reason) = answer(&model, &parameters, &fields).unwrap();
                if reason == "tool_calls" {
                    called += 1;
                    assert!(
                        message.get("content").is_none_or(Value::is_null),
                        "{evidence}, {choice}, {seed}: {message}"
                    );
                } else if reason == "stop" {
                    valued += 1;
                    let value: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
                    assert!(jsonschema::is_valid(&schema, &value), "{evidence}, {choice}, {seed}: {message}");
                }
            }
            if [called > 0, valued > 0] != expected {
                all.push(format!("{evidence}, {choice}: {called} called, {valued} values"));
            }
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn what_cannot_stand_beside_calls_is_refused_by_both_names() {
    let (_folder, model) = model("<|tool_list_start|>");
    let parameters = json!({ "properties": { "a": { "allOf": [{ "type": "string" }] } } });
    let format = json!({ "type": "json_object" });
    let refused = answer(&model, &parameters, &json!({ "response_format": format })).unwrap_err();
    assert!(matches!(&refused, Error::Tool(error) if matches!(**error, ToolError::BesideGrammar { .. })), "{refused}");
    let api = ApiError::of(&refused, "messages");
    assert_eq!((api.status, api.param.as_deref()), (400, Some("tools")));
    let options = GenerateOptions::default().regex("a");
    let mut options = options.chat(Default::default());
    options.chat.tools = Some(vec![json!({ "name": "add" })]);
    let refused = model.chat(&["Hi".into()], &options).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Tool(error) if **error == ToolError::WithGrammar), "{refused}");
}
