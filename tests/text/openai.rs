//! The OpenAI API without HTTP: what is read, what is refused and by which name, and what is answered.
#![allow(clippy::unwrap_used)] // a test that cannot go on may panic

use crate::common;
use model_factory::error::OutOfMemory;
use model_factory::{CancellationToken, Error, GenerateOptions, Message, Model, ToolChoice};
use model_factory_openai::{
    ApiError, ChunkBuilder, CompletionInput, CompletionRequest, EmbeddingRequest, Outline, RequestError, append,
};
use serde_json::{Value, json};

fn chat(fields: Value) -> Result<CompletionRequest, RequestError> {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Once upon a time" }], "max_tokens": 6 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    CompletionRequest::chat(body.to_string().as_bytes())
}

fn text(fields: Value) -> Result<CompletionRequest, RequestError> {
    CompletionRequest::text(fields.to_string().as_bytes())
}

fn embedding(fields: Value) -> Result<EmbeddingRequest, RequestError> {
    EmbeddingRequest::parse(fields.to_string().as_bytes())
}

fn demo() -> Model {
    Model::load(common::demo()).unwrap()
}

#[test]
fn fields_become_options() {
    let tool = json!({ "type": "function", "function": { "name": "add", "strict": true } });
    let request = chat(json!({
        "model": "m", "n": 3, "stream": true, "stream_options": { "include_usage": true }, "stop": "x", "seed": -1,
        "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 1,
        "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": { "7": -5 }, "ignore_eos": true, "logprobs": true,
        "top_logprobs": 2, "tools": [tool.clone()], "chat_template_kwargs": { "a": 1 }, "reasoning_effort": "low", "user": "u",
        "parallel_tool_calls": true, "store": false, "response_format": { "type": "text" }, "audio": null,
        "cache_salt": "somebody",
    }))
    .unwrap();
    let head = (request.model.as_deref(), request.n, request.stream, request.include_usage, request.answers());
    assert_eq!(head, (Some("m"), 3, true, true, 3));
    let mut expected =
        GenerateOptions::default().max_tokens(9).stop("x").temperature(0.5).top_p(0.9).top_k(5).min_p(0.1);
    expected = expected.presence_penalty(1.0).frequency_penalty(-1.0).repetition_penalty(1.1).logit_bias(7, -5.0);
    expected =
        expected.cache_salt("somebody").seed(u64::MAX).ignore_stop(true).logprobs(2).tool_choice(ToolChoice::Strict);
    expected.chat = expected.chat.tool(tool.clone()).variable("a", 1).variable("reasoning_effort", "low");
    assert_eq!(request.options, expected);

    for (choice, expected) in [
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Required),
        (json!({ "type": "function", "function": { "name": "add" } }), ToolChoice::Named("add".into())),
    ] {
        assert_eq!(
            chat(json!({ "tools": [tool.clone()], "tool_choice": choice })).unwrap().options.tool_choice,
            expected
        );
    }
    let schema = |format| chat(json!({ "response_format": format })).unwrap().options.grammar;
    let given = json!({ "type": "integer" });
    let named = json!({ "name": "n", "description": null, "strict": true, "schema": given });
    assert_eq!(
        schema(json!({ "type": "json_schema", "json_schema": named })),
        GenerateOptions::default().json_schema(given).grammar
    );
    assert!(schema(json!({ "type": "json_object" })).is_some());

    for (prompt, expected) in [
        (json!("a"), CompletionInput::Texts(vec!["a".into()])),
        (json!(["a", "b"]), CompletionInput::Texts(vec!["a".into(), "b".into()])),
        (json!([1, 2]), CompletionInput::Ids(vec![vec![1, 2]])),
        (json!([[1], [2, 3]]), CompletionInput::Ids(vec![vec![1], vec![2, 3]])),
    ] {
        assert_eq!(text(json!({ "prompt": prompt })).unwrap().input, expected);
    }
    let vectors = embedding(json!({ "input": ["a", "b"], "encoding_format": "base64", "dimensions": 8 })).unwrap();
    assert_eq!((vectors.input.count(), vectors.base64), (2, true));
}

#[test]
fn what_cannot_be_meant_is_refused_by_its_name() {
    let mut found = Vec::new();
    let mut check = |kind: &str, field: &str, error: RequestError| {
        let api = ApiError::from(error.clone());
        let is = match error {
            RequestError::Unknown { .. } => "unknown",
            RequestError::Wrong { .. } => "wrong",
            _ => "other",
        };
        if (is, error.field()) != (kind, Some(field)) || (api.status, api.param.as_deref()) != (400, Some(field)) {
            found.push(format!("{kind} {field}: {error}"));
        }
    };
    // A value of another type in every field that both have.
    let numbers = ["max_tokens", "top_k", "top_p", "min_p", "temperature", "seed", "n"];
    let more =
        ["presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "stream", "ignore_eos", "stop"];
    for name in numbers.into_iter().chain(more).chain(["stream_options", "response_format", "model"]) {
        let wrong = if name == "model" { json!(1) } else { json!({ "no": "such" }) };
        let wrong = if name.contains("_options") || name.contains("_format") { json!("x") } else { wrong };
        check("wrong", name, chat(json!({ name: wrong })).unwrap_err());
        check("wrong", name, text(json!({ "prompt": "a", name: wrong })).unwrap_err());
    }
    for (field, fields) in [
        ("messages", json!({ "messages": null })),
        ("messages", json!({ "messages": "Hi" })),
        ("messages[0].role", json!({ "messages": [{ "content": "no role" }] })),
        ("messages[0].content", json!({ "messages": [{ "role": "user", "content": 3 }] })),
        ("messages", json!({ "messages": [] })),
        ("cache_salt", json!({ "cache_salt": 3 })),
        ("cache_salt", json!({ "cache_salt": "" })),
        ("cache_salt", json!({ "cache_salt": "a".repeat(257) })),
        ("n", json!({ "n": 0 })),
        ("n", json!({ "n": 129 })),
        ("max_completion_tokens", json!({ "max_completion_tokens": -2 })),
        ("logprobs", json!({ "logprobs": 3 })),
        ("top_logprobs", json!({ "top_logprobs": 2 })),
        ("top_logprobs", json!({ "logprobs": true, "top_logprobs": "2" })),
        ("tools", json!({ "tools": {} })),
        ("tools[1]", json!({ "tools": [{ "function": { "name": "a" } }, { "type": "web_search" }] })),
        ("tool_choice", json!({ "tool_choice": "sometimes" })),
        ("tool_choice", json!({ "tool_choice": { "type": "function" } })),
        ("chat_template_kwargs", json!({ "chat_template_kwargs": 1 })),
        ("chat_template_kwargs", json!({ "chat_template_kwargs": { "messages": [] } })),
        ("stop", json!({ "stop": vec!["a"; 17] })),
        ("reasoning_effort", json!({ "reasoning_effort": 1 })),
        ("stream_options.include_usage", json!({ "stream_options": { "include_usage": "yes" } })),
        ("response_format.type", json!({ "response_format": {} })),
        ("response_format.type", json!({ "response_format": { "type": "xml" } })),
        ("response_format.json_schema", json!({ "response_format": { "type": "json_schema" } })),
        (
            "response_format.json_schema.schema",
            json!({ "response_format": { "type": "json_schema", "json_schema": {} } }),
        ),
        ("parallel_tool_calls", json!({ "parallel_tool_calls": "no" })),
        ("top_k", json!({ "top_k": -2 })),
        ("min_tokens", json!({ "min_tokens": 1.5 })),
        ("stop_token_ids", json!({ "stop_token_ids": ["</s>"] })),
        ("repeat_penalty", json!({ "repeat_penalty": 1.1, "repetition_penalty": 1.1 })),
        ("echo", json!({ "echo": true })),
        ("use_beam_search", json!({ "use_beam_search": true })),
        ("guided_choice", json!({ "guided_choice": [] })),
        ("guided_grammar", json!({ "guided_grammar": "root ::= \"a" })),
        ("guided_regex", json!({ "guided_json": {}, "guided_regex": "a" })),
        ("structured_outputs.regex", json!({ "structured_outputs": { "regex": 1 } })),
        ("structured_outputs.regex", json!({ "structured_outputs": { "json": {}, "regex": "a" } })),
        ("functions", json!({ "functions": [{ "name": "a" }], "tools": [] })),
        ("functions[0]", json!({ "functions": [{}] })),
        ("tool_choice.allowed_tools.tools", json!({ "tool_choice": { "type": "allowed_tools", "mode": "auto" } })),
        (
            "tool_choice.allowed_tools.tools",
            json!({ "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": [{ "name": "a" }] } }),
        ),
        ("add_generation_prompt", json!({ "continue_final_message": true, "add_generation_prompt": true })),
        ("add_generation_prompt", json!({ "add_generation_prompt": false })),
    ] {
        check("wrong", field, chat(fields).unwrap_err());
    }
    for (field, fields) in [
        ("audio", json!({ "audio": {} })),
        ("prompt", json!({ "prompt": "a" })),
        ("stream_options.x", json!({ "stream_options": { "x": 1 } })),
        ("stream_options.user", json!({ "stream_options": { "user": "u" } })),
        ("response_format.x", json!({ "response_format": { "type": "text", "x": 1 } })),
        (
            "response_format.json_schema.x",
            json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": {}, "x": 1 } } }),
        ),
    ] {
        check("unknown", field, chat(fields).unwrap_err());
    }
    check("unknown", "tools", text(json!({ "prompt": "a", "tools": [] })).unwrap_err());
    check("wrong", "best_of", text(json!({ "prompt": "a", "best_of": 0 })).unwrap_err());
    check("wrong", "logprobs", text(json!({ "prompt": "a", "logprobs": true })).unwrap_err());
    for prompt in [json!(null), json!([]), json!(3), json!(["a", 3]), json!([[-1]]), json!([["a"]])] {
        check("wrong", "prompt", text(json!({ "prompt": prompt })).unwrap_err());
    }
    for input in [json!(null), json!([]), json!([-1, 2]), json!(1)] {
        check("wrong", "input", embedding(json!({ "input": input })).unwrap_err());
    }
    check("wrong", "encoding_format", embedding(json!({ "input": "a", "encoding_format": "int8" })).unwrap_err());
    check("wrong", "dimensions", embedding(json!({ "input": "a", "dimensions": 0.5 })).unwrap_err());
    check("unknown", "messages", embedding(json!({ "input": "a", "messages": [] })).unwrap_err());
    for body in [&b""[..], b"{", b"[]", b"3", b"\xff\xfe", b"{\"messages\": "] {
        let error = CompletionRequest::chat(body).unwrap_err();
        assert!(matches!(error, RequestError::NotObject { .. }), "{error}");
        let api = ApiError::from(error);
        assert_eq!((api.status, api.param), (400, None));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What a body takes is told before it is read.
#[test]
fn requests_are_known_by_their_outlines() {
    let answers = |body: Value| Outline::of(body.to_string().as_bytes()).unwrap().answers;
    for (expected, body) in [
        (1, json!({ "messages": [{ "role": "user", "content": "n" }], "prompt": null })),
        (5, json!({ "messages": [[1], [2]], "n": 5 })),
        (1, json!({ "prompt": "a", "n": null })),
        (1, json!({ "prompt": [1, 2, 3], "n": 0 })),
        (6, json!({ "prompt": ["a", "b", "c"], "n": 2 })),
        (4, json!({ "n": 2, "x": { "n": 9, "prompt": ["a"] }, "prompt": [[1, 2], [3]] })),
        (1, json!({ "prompt": [], "n": -1 })),
        (2, json!({ "n": 2.0 })),
        (1, json!({ "input": ["a", "b"] })),
        (usize::MAX, json!({ "prompt": ["a", "b"], "n": u64::MAX })),
    ] {
        assert_eq!(answers(body.clone()), expected, "{body}");
    }
    // What is sent to servers, as much as 2 MiB hold of it.
    let many = |count: usize, value: Value| vec![value; count];
    let turn = json!({ "role": "user", "content": "Tell me more, and shorter." });
    let tool = json!({ "type": "function", "function": { "name": "f", "description": "It finds what is there.", "parameters": {
        "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } }, "required": ["name"],
    } } });
    for (what, body) in [
        ("turns", json!({ "messages": many(19_000, turn) })),
        ("tools", json!({ "tools": many(5000, tool) })),
        ("ids", json!({ "prompt": many(330_000, 12_345.into()) })),
        ("texts", json!({ "input": many(2048, "word ".repeat(200).into()) })),
    ] {
        let body = body.to_string();
        assert!((700 << 10..2 << 20).contains(&body.len()), "{what}: {}", body.len());
        let outline = Outline::of(body.as_bytes());
        assert!(outline.is_ok(), "{what}: {}", outline.unwrap_err());
    }
    // What only somebody sends who wants memory.
    let dense = [json!({ "a": 1 }), json!([1]), json!({}), json!(1), json!("")];
    for (value, count) in dense.into_iter().zip([200_000, 250_000, 650_000, 900_000, 650_000]) {
        let values = Value::from(many(count, value.clone()));
        for body in [
            json!({ "messages": [{ "role": "user", "content": "Hi", "x": values }] }),
            json!({ "messages": [{ "role": "user", "content": "Hi" }], "chat_template_kwargs": { "x": values } }),
            json!({ "messages": [{ "role": "user", "content": "Hi" }], "tools": [{ "function": { "x": values } }] }),
        ] {
            let body = body.to_string();
            assert!(body.len() < 2 << 20, "{value}");
            for error in
                [Outline::of(body.as_bytes()).unwrap_err(), CompletionRequest::chat(body.as_bytes()).unwrap_err()]
            {
                assert!(matches!(error, RequestError::TooManyValues { .. }), "{value}: {error}");
                let api = ApiError::from(error);
                assert_eq!((api.status, api.param, api.code), (413, None, None), "{value}");
            }
        }
    }
    let deep = [r#"{"messages": "#.to_owned(), "[".repeat(100_000)].concat();
    assert!(Outline::of(deep.as_bytes()).is_err(), "nested deeper than anything is read");
}

#[test]
fn errors_have_the_status_of_their_kind() {
    let io = || Error::Io { path: "p".into(), source: std::sync::Arc::new(std::io::ErrorKind::NotFound.into()) };
    let option = |option| Error::Option { option, value: 1.0, expected: "less" };
    let too_long = || Error::ContextOverflow { limit: 1, asked: 2 };
    for (error, input, status, kind, param, code) in [
        (Error::EmptyPrompt, "prompt", 400, "invalid_request_error", Some("prompt"), None),
        (option("top_p"), "prompt", 400, "invalid_request_error", Some("top_p"), None),
        (option("logprobs"), "prompt", 400, "invalid_request_error", Some("logprobs"), None),
        (option("logprobs"), "messages", 400, "invalid_request_error", Some("top_logprobs"), None),
        (Error::EmptyStopString { index: 0 }, "prompt", 400, "invalid_request_error", Some("stop"), None),
        (
            model_factory::error::ToolError::NoTools.into(),
            "messages",
            400,
            "invalid_request_error",
            Some("tools"),
            None,
        ),
        (too_long(), "input", 400, "invalid_request_error", Some("input"), Some("context_length_exceeded")),
        (Error::Cancelled, "prompt", 503, "server_error", None, None),
        (OutOfMemory { what: "it", bytes: 1 }.into(), "prompt", 503, "server_error", None, None),
        (io(), "prompt", 503, "server_error", None, None),
        (Error::NothingToChoose { vocab: 1 }, "prompt", 501, "server_error", None, None),
        (Error::Internal("it".into()), "prompt", 500, "server_error", None, None),
    ] {
        let api = ApiError::of(&error, input);
        let mut expected = json!({ "error": { "message": api.message, "type": kind, "param": param, "code": code } });
        if let Error::ContextOverflow { limit, asked } = error {
            (expected["error"]["n_prompt_tokens"], expected["error"]["n_ctx"]) = (asked.into(), limit.into());
        }
        assert_eq!((api.status, api.json()), (status, expected), "{error}");
        assert!(!api.message.is_empty());
    }
    let grammar =
        chat(json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": { "not": {} } } } }));
    let error = grammar.unwrap().generations(&demo()).unwrap_err();
    assert_eq!(ApiError::of(&error, "messages").param.as_deref(), Some("response_format"));
    let full = ApiError::new(429, "full", None, Some("queue_full")).json();
    assert_eq!((&full["error"]["type"], &full["error"]["code"]), (&json!("rate_limit_error"), &json!("queue_full")));
}

/// The chunks of an answer, the usage last.
pub(crate) fn chunks(model: &Model, request: &CompletionRequest) -> (Vec<Value>, Value) {
    let (mut builder, mut request) = (ChunkBuilder::new(request, model, "demo"), request.clone());
    request.tokenize(model).unwrap();
    builder.with_prompts(&request);
    let (mut chunks, mut whole) = (Vec::new(), builder.whole());
    for (index, mut generation) in request.generations(model).unwrap().into_iter().enumerate() {
        chunks.extend(generation.by_ref().filter_map(|piece| builder.push(index, piece.unwrap())));
        chunks.push(builder.last_chunk(index, generation.finish()).unwrap());
    }
    chunks.push(builder.usage());
    chunks.iter().for_each(|chunk| append(&mut whole, chunk.clone()));
    (chunks, whole)
}

#[test]
fn chunks_put_together_are_the_answer() {
    let model = demo();
    for fields in [
        json!({ "n": 2, "seed": 3, "temperature": 0.8 }),
        json!({ "temperature": 0, "logprobs": true, "top_logprobs": 2, "stop": "was" }),
    ] {
        let request = chat(fields).unwrap();
        let answers = model.answers(&[Message::user("Once upon a time")], request.n, &request.options).unwrap();
        let (_, whole) = chunks(&model, &request);
        let mut streamed = request.clone();
        streamed.stream = true;
        let (stream, _) = chunks(&model, &streamed);
        assert_eq!(
            (&whole["object"], &stream[0]["object"]),
            (&json!("chat.completion"), &json!("chat.completion.chunk"))
        );
        for (index, answer) in answers.iter().enumerate() {
            let choice = &whole["choices"][index];
            assert_eq!(choice["message"]["content"], json!(answer.text));
            assert_eq!(choice["message"]["role"], "assistant");
            let parts =
                || stream.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()).filter(|c| c["index"] == index);
            let text: String = parts().filter_map(|part| part["delta"]["content"].as_str()).collect();
            let tokens: Vec<&Value> =
                parts().filter_map(|part| part["logprobs"]["content"].as_array()).flatten().collect();
            assert_eq!(text, answer.text);
            assert_eq!(json!(tokens), choice["logprobs"].get("content").cloned().unwrap_or(json!([])));
            assert_eq!(tokens.len(), answer.logprobs.len());
            assert_eq!(parts().filter(|part| part["delta"].get("role").is_some()).count(), 1);
            assert_eq!(parts().next_back().unwrap()["finish_reason"], choice["finish_reason"]);
        }
        let usage = &stream.last().unwrap()["usage"];
        assert_eq!(
            usage["total_tokens"],
            json!(usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap())
        );
        assert_eq!(whole["usage"]["completion_tokens"], usage["completion_tokens"]);
    }
    let (_, whole) =
        chunks(&model, &text(json!({ "prompt": ["The fox", "A bear"], "max_tokens": 4, "logprobs": 1 })).unwrap());
    let logprobs = &whole["choices"][1]["logprobs"];
    assert_eq!(
        (&whole["object"], &whole["choices"][1]["finish_reason"]),
        (&json!("text_completion"), &json!("length"))
    );
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[list].as_array().map(Vec::len), Some(4), "{list}");
    }
    assert_eq!(whole["usage"]["completion_tokens"], 8);
}

#[test]
fn calls_are_texts_of_json_and_a_cancelled_answer_is_an_error() {
    let model = demo();
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let parameters = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let tool = json!({ "type": "function", "function": { "name": "add", "parameters": parameters } });
    let mut request =
        chat(json!({ "tools": [tool], "tool_choice": "required", "max_tokens": 300, "seed": 3 })).unwrap();
    let (_, whole) = chunks(&model, &request);
    request.stream = true;
    let (stream, _) = chunks(&model, &request);
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null),
        "{whole}"
    );
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let mut parts = stream.iter().filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0"));
    for (index, call) in calls.iter().enumerate() {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["a"].is_u64(), "{call}");
        let part = parts.next().unwrap();
        assert_eq!((&part["index"], &part["function"], call.get("index")), (&json!(index), &call["function"], None));
    }
    assert_eq!(parts.next(), None);

    let cancel = CancellationToken::new();
    request.options.cancel = Some(cancel.clone());
    let mut generation = request.generations(&model).unwrap().remove(0);
    cancel.cancel();
    generation.by_ref().for_each(drop);
    let finished = ChunkBuilder::new(&request, &model, "demo").last_chunk(0, generation.finish());
    assert!(matches!(finished, Err(Error::Cancelled)));

    // What is no chunk of the answer changes nothing.
    let mut kept = whole.clone();
    for other in [json!(null), json!([]), json!({ "choices": [{ "index": 9 }] }), json!({ "choices": [3], "id": "x" })]
    {
        append(&mut kept, other);
    }
    assert_eq!(kept, whole);
}

#[test]
fn embeddings_count_the_tokens_that_are_computed() {
    let model = Model::load(common::fixtures().join("embeddings/bert")).unwrap();
    let mut request = embedding(json!({ "input": ["a cat", "two dogs"] })).unwrap();
    let used =
        |request: &EmbeddingRequest| request.embed(&model, "m").unwrap()["usage"]["prompt_tokens"].as_u64().unwrap();
    let of = |text: &str| model.tokenizer().encode(text, true).unwrap().len() as u64;
    assert_eq!(used(&request), of("a cat") + of("two dogs"));
    // The ids of a text are the text, without a prompt.
    let ids: Vec<Vec<u32>> = ["a cat", "two dogs"].map(|text| model.tokenizer().encode(text, true).unwrap()).to_vec();
    let of_ids = embedding(json!({ "input": ids })).unwrap().embed(&model, "m").unwrap();
    assert_eq!(of_ids, request.embed(&model, "m").unwrap());
    let one = embedding(json!({ "input": ids[0] })).unwrap().embed(&model, "m").unwrap();
    assert_eq!(one["data"][0], of_ids["data"][0]);
    for wrong in [json!([70_000_000]), json!([vec![1; 100_000]])] {
        let error = embedding(json!({ "input": wrong })).unwrap().embed(&model, "m").unwrap_err();
        assert_eq!(ApiError::of(&error, "input").status, 400, "{error}");
    }
    request.options = request.options.prompt("query: ");
    assert_eq!(used(&request), of("query: a cat") + of("query: two dogs"));
}
