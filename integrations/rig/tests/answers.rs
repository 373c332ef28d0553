//! What rig makes of a model in this process is what the model says by itself.

use futures::StreamExt;
use model_factory::{GenerateOptions, Message, Model};
use model_factory_rig::client;
use rig_core::completion::{CompletionRequest, Document, FinishReason, ToolDefinition};
use rig_core::message::ToolChoice;
use rig_core::schemars::Schema;
use rig_core::streaming::{Item, StreamEvent};
use serde_json::{Value, json};

fn load(path: &str) -> Model {
    Model::load(format!("{}/../../fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).expect("a fixture loads")
}

fn ask(text: &str) -> CompletionRequest {
    CompletionRequest::new(text).temperature(0.0).max_tokens(12)
}

fn alone(model: &Model, messages: &[Message], tokens: usize) -> String {
    let options = GenerateOptions::default().temperature(0.0).max_tokens(tokens);
    model.chat(messages, &options).expect("it begins").text().expect("it goes on")
}

#[tokio::test]
async fn a_whole_answer_and_its_usage() {
    let model = load("demo");
    let answer = client(&model).completion("demo").call(ask("Once upon a time")).await.expect("an answer");
    assert_eq!(answer.text(), alone(&model, &[Message::user("Once upon a time")], 12));
    assert_eq!((answer.usage.output_tokens, answer.finish_reason()), (Some(12), Some(FinishReason::Length)));
    let prompt = model.prompt_ids(&[Message::user("Once upon a time")], &Default::default()).expect("a prompt");
    assert_eq!(answer.usage.input_tokens, Some(prompt.len() as u64));
}

#[tokio::test]
async fn a_stream_is_the_same_text_in_pieces() {
    let model = load("demo");
    let mut stream = client(&model).completion("demo").stream(ask("Once upon a time")).expect("a stream");
    let mut pieces = Vec::new();
    while let Some(item) = stream.next().await {
        if let Item::Event(StreamEvent::Text { text, .. }) = item.expect("an event") {
            pieces.push(text);
        }
    }
    assert!(pieces.len() > 4, "{pieces:?}");
    assert_eq!(pieces.concat(), alone(&model, &[Message::user("Once upon a time")], 12));
    assert_eq!(stream.finish().await.expect("it ended").usage.output_tokens, Some(12));
}

#[tokio::test]
async fn preamble_and_documents_are_messages() {
    let model = load("demo");
    let request = ask("So?").preamble("Be brief.");
    let answer = client(&model).completion("demo").call(request.clone()).await.expect("an answer");
    assert_eq!(answer.text(), alone(&model, &[Message::system("Be brief."), Message::user("So?")], 12));
    let document = Document { id: "a".into(), text: "The fox is red.".into(), additional_props: Default::default() };
    let with = client(&model).completion("demo").call(request.document(document)).await.expect("an answer");
    assert!(with.usage.input_tokens > answer.usage.input_tokens, "the document is in the prompt");
}

#[tokio::test]
async fn calls_are_held_to_the_schema_of_the_tool_that_is_chosen() {
    let model = load("demo");
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let parameters = json!({ "type": "object", "properties": { "a": number }, "required": ["a"] });
    let tool = |name: &str| ToolDefinition::new(name.try_into().expect("a name"), "Adds.", parameters.clone());
    let specific = ToolChoice::Specific { function_names: vec!["add".try_into().expect("a name")] };
    for choice in [ToolChoice::Required, specific] {
        let request = CompletionRequest::new("Add").temperature(0.0).max_tokens(300).tools(vec![tool("add")]);
        let answer = client(&model).completion("demo").call(request.tool_choice(choice)).await.expect("an answer");
        let call = answer.tool_calls().next().expect("a call");
        assert_eq!(call.function.name.as_str(), "add");
        let arguments: Value = serde_json::to_value(&call.function.arguments).expect("JSON");
        assert!(arguments["a"].is_u64(), "{arguments}");
        assert_eq!(answer.finish_reason(), Some(FinishReason::ToolCalls));
    }
}

#[tokio::test]
async fn an_answer_is_held_to_its_schema() {
    let model = load("demo");
    let schema: Schema = json!({ "title": "n", "type": "object", "properties": { "a": { "const": 7 } }, "required": ["a"], "additionalProperties": false })
        .try_into()
        .expect("a schema");
    let answer = client(&model).completion("demo").call(ask("A number").max_tokens(100).output_schema(schema)).await;
    let value: Value = serde_json::from_str(&answer.expect("an answer").text()).expect("JSON");
    assert_eq!(value, json!({ "a": 7 }));
}

#[tokio::test]
async fn thought_is_reasoning_and_has_a_budget() {
    let model = load("models/r1-distill-qwen/bf16");
    let budget = json!({ "thinking_budget_tokens": 5 });
    let request = ask("Hi").max_tokens(30).additional_params(budget);
    let answer = client(&model).completion("r1").call(request).await.expect("an answer");
    assert!(!answer.reasoning().is_empty() && !answer.text().is_empty(), "{answer:?}");
}

#[tokio::test]
async fn vectors_are_the_models_own() {
    let model = load("embeddings/bert");
    let texts = ["The cat sat on the mat.", "Cats run."];
    let expected = model.embeddings(&texts, &Default::default()).expect("vectors");
    let texts = texts.map(str::to_owned).to_vec();
    let answer =
        client(&model).embedding("bert", Some(expected.vectors().next().expect("one").len())).call(texts).await;
    let answer = answer.expect("vectors");
    for (found, expected) in answer.embeddings.iter().zip(expected.vectors()) {
        let found: Vec<f32> = found.vec.iter().map(|value| *value as f32).collect();
        assert_eq!(found, expected, "F32 is exact as the decimal digits of JSON");
    }
    assert_eq!(answer.embeddings.len(), 2);
}

#[tokio::test]
async fn what_cannot_be_answered_says_why() {
    let model = load("demo");
    let client = client(&model);
    let long = client.completion("demo").call(ask(&"far ".repeat(5000))).await.expect_err("too long");
    assert!(format!("{long:?}").contains("context_length_exceeded"), "{long:?}");
    let wrong = ask("Hi").additional_params(json!({ "no_such_field": 1 }));
    let wrong = client.completion("demo").call(wrong).await.expect_err("an unknown field");
    assert!(format!("{wrong:?}").contains("there is no field no_such_field"), "{wrong:?}");
    let encoder = load("embeddings/bert");
    assert!(model_factory_rig::client(&encoder).completion("bert").call(ask("Hi")).await.is_err());
}
