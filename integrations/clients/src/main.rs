//! Clients in Rust against a running server, each as its documentation has it: `clients URL KEY`. The server has a model `demo`, and
//! an encoder `bert`.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{ChatCompletionMessageToolCalls, CreateChatCompletionRequest, FinishReason};
use async_openai::types::embeddings::CreateEmbeddingRequest;
use futures::StreamExt;
use genai::ModelIden;
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, JsonSpec, Tool, ToolChoice, ToolResponse};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ASKED: &str = "Once upon a time";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(key)) = (arguments.next(), arguments.next()) else {
        return Err("expected the URL of a server and a key".into());
    };
    let cases = async_openai_client(&url, &key).await?;
    println!("async-openai: {cases} cases");
    let cases = genai_client(&url, &key).await?;
    println!("genai: {cases} cases");
    Ok(())
}

/// The schema of an object with one number from 0 to 9.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "age": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["age"],
        "additionalProperties": false,
    })
}

/// Checks a value of [`schema`].
fn check_age(value: &Value) {
    assert!(value["age"].as_u64().is_some_and(|age| age <= 9), "{value}");
}

async fn async_openai_client(url: &str, key: &str) -> Result<usize> {
    let client =
        |key: &str| Client::with_config(OpenAIConfig::new().with_api_base(format!("{url}/v1")).with_api_key(key));
    let mine = client(key);
    let asked = |more: Value| -> Result<CreateChatCompletionRequest> {
        let mut body = json!({
            "model": "demo", "messages": [{ "role": "user", "content": ASKED }], "temperature": 0, "max_completion_tokens": 12,
        });
        let fields = more.as_object().ok_or("fields")?.clone();
        body.as_object_mut().ok_or("an object")?.extend(fields);
        Ok(serde_json::from_value(body)?)
    };

    let whole = mine.chat().create(asked(json!({}))?).await?;
    let text = whole.choices[0].message.content.clone().ok_or("a text")?;
    assert_eq!(whole.choices[0].finish_reason, Some(FinishReason::Length));
    assert_eq!(whole.usage.as_ref().map(|usage| usage.completion_tokens), Some(12));

    let stream = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let mut stream = mine.chat().create_stream(asked(stream)?).await?;
    let (mut streamed, mut usage) = (String::new(), None);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        streamed.extend(chunk.choices.iter().filter_map(|choice| choice.delta.content.clone()));
        usage = chunk.usage.or(usage);
    }
    assert_eq!((streamed, usage.map(|usage| usage.completion_tokens)), (text, Some(12)));

    let tools = json!({
        "tools": [{ "type": "function", "function": { "name": "grow", "parameters": schema() } }],
        "tool_choice": { "type": "function", "function": { "name": "grow" } }, "max_completion_tokens": 200,
    });
    let called = mine.chat().create(asked(tools)?).await?;
    let calls = called.choices[0].message.tool_calls.clone().ok_or("calls")?;
    let Some(ChatCompletionMessageToolCalls::Function(call)) = calls.first() else { return Err("a call".into()) };
    assert_eq!((&*call.function.name, called.choices[0].finish_reason), ("grow", Some(FinishReason::ToolCalls)));
    check_age(&serde_json::from_str(&call.function.arguments)?);
    let turns = json!({ "messages": [
        { "role": "user", "content": ASKED },
        { "role": "assistant", "tool_calls": calls },
        { "role": "tool", "content": "done", "tool_call_id": call.id },
    ] });
    let after = mine.chat().create(asked(turns)?).await?;
    assert!(after.choices[0].message.content.is_some());

    let format = json!({ "type": "json_schema", "json_schema": { "name": "age", "schema": schema(), "strict": true } });
    let held = asked(json!({ "response_format": format, "max_completion_tokens": 200 }))?;
    let held = mine.chat().create(held).await?;
    check_age(&serde_json::from_str(held.choices[0].message.content.as_deref().ok_or("a text")?)?);

    let request: CreateEmbeddingRequest = serde_json::from_value(json!({ "model": "bert", "input": ["one", "two"] }))?;
    let vectors = mine.embeddings().create(request).await?;
    assert_eq!(vectors.data.len(), 2);
    assert_ne!(vectors.data[0].embedding, vectors.data[1].embedding);
    assert!(vectors.usage.prompt_tokens > 0);

    for (client, more, status, code) in [
        (&client("wrong"), json!({}), 401, None),
        (&mine, json!({ "model": "nobody" }), 404, Some("model_not_found")),
        (
            &mine,
            json!({ "messages": [{ "role": "user", "content": "a ".repeat(20_000) }] }),
            400,
            Some("context_length_exceeded"),
        ),
    ] {
        match client.chat().create(asked(more)?).await {
            Err(OpenAIError::ApiError(error)) => {
                assert_eq!(error.status_code.as_u16(), status, "{error}");
                assert!(code.is_none() || error.api_error.code.as_deref() == code, "{error}");
            }
            other => return Err(format!("expected {status}, found {other:?}").into()),
        }
    }
    Ok(9)
}

async fn genai_client(url: &str, key: &str) -> Result<usize> {
    let client = |key: &str| {
        let (endpoint, key) = (Endpoint::from_owned(format!("{url}/v1/")), AuthData::from_single(key));
        let resolver = ServiceTargetResolver::from_resolver_fn(move |mut target: genai::ServiceTarget| {
            target.endpoint = endpoint.clone();
            target.auth = key.clone();
            target.model = ModelIden::new(AdapterKind::OpenAI, target.model.model_name);
            Ok(target)
        });
        genai::Client::builder().with_service_target_resolver(resolver).build()
    };
    let mine = client(key)?;
    let request = || ChatRequest::new(vec![ChatMessage::user(ASKED)]);
    let options = |tokens: u32| ChatOptions::default().with_temperature(0.0).with_max_tokens(tokens);

    let whole = mine.exec_chat("demo", request(), Some(&options(12))).await?;
    assert_eq!(whole.usage.completion_tokens, Some(12));
    let text = whole.into_first_text().ok_or("a text")?;

    let capture = options(12).with_capture_usage(true);
    let mut stream = mine.exec_chat_stream("demo", request(), Some(&capture)).await?.stream;
    let (mut streamed, mut usage) = (String::new(), None);
    while let Some(event) = stream.next().await {
        match event? {
            ChatStreamEvent::Chunk(chunk) => streamed += &chunk.content,
            ChatStreamEvent::End(end) => usage = end.captured_usage,
            _ => {}
        }
    }
    // It trims whole answers, and streamed ones not.
    assert_eq!((streamed.trim(), usage.and_then(|usage| usage.completion_tokens)), (&*text, Some(12)));

    let tool = || Tool::new("grow").with_description("Makes somebody older.").with_schema(schema());
    let asked = request().with_tools(vec![tool()]);
    let required = options(200).with_tool_choice(ToolChoice::tool("grow"));
    let called = mine.exec_chat("demo", asked.clone(), Some(&required)).await?;
    let calls = called.into_tool_calls();
    let call = calls.first().ok_or("a call")?;
    assert_eq!(call.fn_name, "grow");
    check_age(&call.fn_arguments);
    let response = ToolResponse::new(call.call_id.clone(), "done");
    let after = asked.append_message(calls.clone()).append_message(response);
    let free = options(12).with_tool_choice(ToolChoice::None);
    assert!(mine.exec_chat("demo", after, Some(&free)).await?.first_text().is_some());

    let held = options(200).with_response_format(JsonSpec::new("age", schema()));
    let held = mine.exec_chat("demo", request(), Some(&held)).await?;
    check_age(&serde_json::from_str(held.first_text().ok_or("a text")?)?);

    let vectors = mine.embed_batch("bert", vec!["one".into(), "two".into()], None).await?;
    assert_eq!(vectors.embeddings.len(), 2);
    assert_ne!(vectors.embeddings[0].vector(), vectors.embeddings[1].vector());

    for (client, model, expected) in [(client("wrong")?, "demo", "401"), (mine, "nobody", "404")] {
        match client.exec_chat(model, request(), None).await {
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
            Ok(answer) => return Err(format!("expected {expected}, found {answer:?}").into()),
        }
    }
    Ok(8)
}
