//! Turns as clients of an OpenAI-compatible server send them: what reaches the template, and what is refused by which name.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common;

use common::fixtures;
use model_factory::error::ChatError;
use model_factory::{Error, Message, Model};
use model_factory_openai::{ApiError, CompletionInput, CompletionRequest, RequestError};
use serde_json::{Value, json};

/// A model of random weights whose chat template is `source`.
fn model(source: &str) -> (tempfile::TempDir, Model) {
    let (folder, fixture) = (tempfile::tempdir().unwrap(), fixtures().join("models/llama-3.1/bf16"));
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), source).unwrap();
    let model = Model::load(folder.path()).unwrap();
    (folder, model)
}

fn request(messages: &Value, tools: &Value) -> Result<CompletionRequest, RequestError> {
    CompletionRequest::chat(json!({ "messages": messages, "tools": tools }).to_string().as_bytes())
}

/// The prompt of a request, on the day on which the renderings of transformers were recorded.
fn prompt(model: &Model, request: &CompletionRequest) -> Result<String, Error> {
    let CompletionInput::Messages(messages) = &request.input else { panic!("no messages") };
    model.chat_prompt(messages, &request.options.chat.clone().now("2026-11-25T12:00:00".parse().unwrap()))
}

/// Each turn as transformers renders it, under every template at hand.
#[test]
fn turns_reach_templates_as_in_transformers() {
    let expected = std::fs::read(fixtures().join("templates/turns.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let shared = common::repository().join("../shared/templates");
    let recorded = expected["templates"].as_object().unwrap().iter().map(|(name, cases)| (name.as_str(), cases));
    let (mut wrong, mut cases, mut own) = (Vec::new(), 0, 0);
    for (name, recorded) in recorded.chain([("deepseek", &expected["deepseek"]["cases"])]) {
        let (at_ours, at_shared) = (fixtures().join("templates").join(name), shared.join(name));
        own += usize::from(at_ours.exists());
        let path = [at_ours, at_shared].into_iter().find(|path| path.exists());
        let source = match (path, expected[name]["source"].as_str()) {
            (_, Some(source)) => source.to_owned(),
            (Some(path), None) => std::fs::read_to_string(path).unwrap(),
            (None, None) => {
                println!("skipped {name}: ../shared/templates is absent");
                continue;
            }
        };
        let (_folder, model) = model(&source);
        let tokenizer = &model.spec().tokenizer;
        let named = |text: &str, token: &Option<String>, name: &Value| {
            text.replace(name.as_str().unwrap(), token.as_deref().unwrap_or_default())
        };
        for case in recorded.as_array().unwrap() {
            cases += 1;
            let turn = case["turn"].as_str().unwrap();
            let found = prompt(&model, &request(&expected["turns"][turn], &json!([expected["tool"]])).unwrap());
            let same = match (&found, case["text"].as_str(), case["error"].as_str()) {
                (Ok(found), Some(text), None) => {
                    let text = named(text, &tokenizer.bos_text, &expected["bos"]);
                    *found == named(&text, &tokenizer.eos_text, &expected["eos"])
                }
                (Err(Error::Chat(ChatError::Refused { message })), None, Some(error)) => message == error,
                (Err(Error::Chat(ChatError::Messages { .. })), None, None) => true,
                _ => false,
            };
            if !same {
                wrong.push(format!("{name}, {turn}: {case:#}\nfound {found:?}"));
            }
        }
    }
    assert!(own == 8 && cases >= 99, "{own} templates of our own and {cases} cases were found");
    assert!(wrong.is_empty(), "{} of {cases} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Calls that were read are given back with no content, where nothing was said.
#[test]
fn calls_of_an_answer_have_no_content() {
    let (_folder, model) = model("{% for m in messages %}{{ m.content is none }} {{ 'content' in m }}{% endfor %}");
    let prompt = |message: Message| model.chat_prompt(&[message], &Default::default()).unwrap();
    assert_eq!(prompt(Message::calls(&[])), "True True");
    assert_eq!(prompt(Message::tool_calls(json!([]))), "True True");
    assert_eq!(prompt(Message::assistant("")), "False True");
}

/// What a message has that is wrong, and the name of it.
#[test]
fn faulty_messages_are_refused_by_the_field() {
    let call =
        |function: Value| json!({ "role": "assistant", "tool_calls": [{ "type": "function", "function": function }] });
    let content = |content: Value| json!({ "role": "user", "content": content });
    let answer = |name: &str, value: Value| {
        let mut message = json!({ "role": "assistant", "content": "a" });
        message[name] = value;
        message
    };
    let mut found = Vec::new();
    for (kind, field, message) in [
        ("wrong", "", json!("Hi")),
        ("wrong", ".role", json!({ "content": "Hi" })),
        ("wrong", ".role", json!({ "role": null, "content": "Hi" })),
        ("wrong", ".role", json!({ "role": 1, "content": "Hi" })),
        ("wrong", ".content", json!({ "role": "user" })),
        ("wrong", ".content", json!({ "role": "system", "content": null })),
        ("wrong", ".content", json!({ "role": "tool", "tool_call_id": "1" })),
        ("wrong", ".content", content(json!(3))),
        ("wrong", ".content", content(json!({ "type": "text", "text": "Hi" }))),
        ("wrong", ".content[0]", content(json!(["Hi"]))),
        ("wrong", ".content[1].text", content(json!([{ "text": "Hi" }, { "type": "text" }]))),
        ("wrong", ".content[0].type", content(json!([{ "type": "refusal", "refusal": "no" }]))),
        ("unknown", ".content[0].txt", content(json!([{ "type": "text", "text": "Hi", "txt": 1 }]))),
        ("unknown", ".contents", answer("contents", json!("a"))),
        ("unknown", ".tool_call", answer("tool_call", json!([]))),
        ("wrong", ".name", answer("name", json!(["a"]))),
        ("wrong", ".refusal", answer("refusal", json!("I cannot"))),
        ("wrong", ".audio", answer("audio", json!({ "id": "1" }))),
        ("wrong", ".function_call", answer("function_call", json!("f"))),
        ("wrong", ".function_call", {
            let mut both = answer("function_call", json!({ "name": "f", "arguments": "{}" }));
            both["tool_calls"] = json!([{ "function": { "name": "f" } }]);
            both
        }),
        ("wrong", ".function_call.name", answer("function_call", json!({ "arguments": "{}" }))),
        ("unknown", ".function_call.id", answer("function_call", json!({ "name": "f", "id": "a" }))),
        ("wrong", ".tool_calls", answer("tool_calls", json!({}))),
        ("wrong", ".tool_calls[0]", answer("tool_calls", json!(["f"]))),
        ("wrong", ".tool_calls[0].function", answer("tool_calls", json!([{ "type": "function" }]))),
        ("wrong", ".tool_calls[0].type", answer("tool_calls", json!([{ "type": "custom", "function": {} }]))),
        ("unknown", ".tool_calls[0].args", answer("tool_calls", json!([{ "args": 1, "function": { "name": "f" } }]))),
        ("wrong", ".tool_calls[0].function.name", call(json!({ "arguments": "{}" }))),
        ("wrong", ".tool_calls[0].function.arguments", call(json!({ "name": "f", "arguments": [1] }))),
        ("unknown", ".tool_calls[0].function.x", call(json!({ "name": "f", "arguments": "{}", "x": 1 }))),
    ] {
        let error = request(&json!([{ "role": "user", "content": "Hi" }, message]), &json!(null)).map(drop);
        let field = format!("messages[1]{field}");
        let is = match &error {
            Err(error) if error.field() == Some(&*field) => match error {
                RequestError::Unknown { .. } => "unknown",
                RequestError::Wrong { .. } => "wrong",
                _ => "other",
            },
            _ => "other",
        };
        let status = error.as_ref().err().map(|error| ApiError::from(error.clone()).status);
        if (is, status) != (kind, Some(400)) {
            found.push(format!("{field}, {message}: {error:?}"));
        }
    }
    assert!(found.is_empty(), "{} were found\n{}", found.len(), found.join("\n"));
}

/// What clients send back of an answer, and what they say of caching, changes nothing.
#[test]
fn fields_of_an_answer_are_taken_and_say_nothing() {
    let echo = json!({
        "role": "assistant", "content": "Yes.", "refusal": null, "audio": null, "function_call": null, "annotations": [{ "type": "x" }],
        "tool_calls": [], "images": [], "parsed": { "a": 1 }, "provider_specific_fields": { "a": 1 }, "cache_control": { "type": "ephemeral" },
    });
    let parts = json!([{ "type": "text", "text": "Y", "cache_control": { "type": "ephemeral" } }, { "type": "text", "text": "es." }]);
    let messages = |message: Value| request(&json!([message]), &json!(null)).unwrap().input;
    let plain = CompletionInput::Messages(vec![Message::assistant("Yes.")]);
    assert_eq!(messages(echo), plain);
    assert_eq!(messages(json!({ "role": "assistant", "content": parts })), plain);
    for arguments in [json!(""), json!(" \n"), json!("{}"), json!(null), json!({})] {
        let call =
            json!({ "index": 0, "id": "1", "type": "function", "function": { "name": "f", "arguments": arguments } });
        let CompletionInput::Messages(turns) =
            messages(json!({ "role": "assistant", "content": null, "tool_calls": [call] }))
        else {
            panic!()
        };
        let expected = json!([{ "id": "1", "type": "function", "function": { "name": "f", "arguments": {} } }]);
        assert_eq!((&turns[0].fields["tool_calls"], &turns[0].content), (&expected, &None), "{arguments}");
    }
}

#[test]
fn an_image_is_a_part_of_its_own_with_its_bytes() {
    let (_folder, model) = model("{% for m in messages %}{{ m.content }}{% endfor %}");
    let image = json!({ "url": "data:image/png;base64,AAEC", "detail": "low" });
    let ask = |part: &Value| {
        request(&json!([{ "role": "user", "content": [{ "type": "text", "text": "Hi" }, part] }]), &json!(null))
    };
    let seen = ask(&json!({ "type": "image_url", "image_url": image })).unwrap();
    let CompletionInput::Messages(messages) = &seen.input else { panic!("messages") };
    assert_eq!(messages, &[Message::user("Hi").image([0, 1, 2].as_slice())]);
    assert!(seen.has_images());
    // This model has no tower.
    let error = model.prompt_ids(messages, &seen.options.chat).expect_err("an image");
    assert!(matches!(error, Error::Image(_)), "{error}");
    assert_eq!(ApiError::of(&error, "messages").status, 400);

    for (field, part) in [
        (".text", json!({ "type": "image_url", "image_url": image, "text": "what is this?" })),
        (".image_url", json!({ "type": "text", "image_url": image, "text": "what is this?" })),
        (".image_url", json!({ "image_url": image, "text": "what is this?" })),
        (".image_url", json!({ "type": "image_url" })),
        (".image_url", json!({ "type": "image_url", "image_url": { "url": "https://localhost/cat.png" } })),
        (".image_url", json!({ "type": "image_url", "image_url": "file:///etc/passwd" })),
        (".image_url", json!({ "type": "image_url", "image_url": { "url": "data:image/png,AAEC" } })),
        (".image_url", json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,A" } })),
        (".image_url.path", json!({ "type": "image_url", "image_url": { "url": "", "path": "/etc/passwd" } })),
    ] {
        let error = ask(&part).expect_err("no image");
        assert_eq!(error.field(), Some(&*format!("messages[0].content[1]{field}")), "{error}");
    }
    for kind in ["image", "input_audio", "video_url", "file"] {
        let request = ask(&json!({ "type": kind, kind: { "path": "/etc/passwd" } })).unwrap();
        let error = prompt(&model, &request).expect_err("no image");
        assert!(matches!(error, Error::Chat(ChatError::NotText { message: 1, .. })), "{kind}: {error}");
    }
}

/// Messages that a template refuses or cannot write are the client's, a template that writes none is the server's; where the template
/// lies is nobody's.
#[test]
fn a_template_that_fails_on_messages_is_told_without_its_place() {
    let call =
        json!([{ "role": "assistant", "tool_calls": [{ "function": { "name": "f", "arguments": "{\"a\":" } }] }]);
    let named = json!([{ "role": "user", "content": "Hi" }]);
    for (source, messages, status) in [
        (
            "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.items() }}{% endfor %}{% endfor %}",
            &call,
            400,
        ),
        ("{{ raise_exception('no calls of tools') if messages[0].tool_calls }}", &call, 400),
        ("{{ raise_exception('only a pirate') }}", &named, 400),
        ("{{ messages[0].content.x.y }}", &named, 501),
        ("{% if %}", &named, 501),
    ] {
        let (folder, model) = model(source);
        let request = request(messages, &json!(null)).unwrap();
        let error = request.generations(&model).map(drop).expect_err("it cannot be rendered");
        let api = ApiError::of(&error, "messages");
        let place = folder.path().to_string_lossy().into_owned();
        assert_eq!(api.status, status, "{source}: {error}");
        assert!(!api.message.contains(&place) && !api.message.contains("jinja"), "{source}: {}", api.message);
        assert_eq!(api.param.as_deref(), (status == 400).then_some("messages"));
    }
}
