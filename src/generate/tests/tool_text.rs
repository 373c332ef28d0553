//! Answers that are calls or something else, and the text of their arguments.

use super::tools::{Noise, TOKENS, calls, formats, holds_all, said, tools, with_tools};
use super::*;
use crate::tools::ToolChoice;
use model_factory_diagnostics::tokenizer::ToolCallFormat;
use serde_json::{Value, json};

/// With a schema an answer is calls, or a value of the schema, whether marks are tokens or letters.
#[test]
fn an_answer_beside_a_schema_is_calls_or_a_value() {
    let schema = json!({
        "type": "object", "properties": {"name": {"enum": ["weather", "<tool_call>", "[TOOL_CALLS]"]}, "on": {"type": "boolean"}},
        "required": ["name"], "additionalProperties": false,
    });
    let tools = tools();
    for of in formats() {
        let format = of.format;
        for marked in [true, false] {
            let Some(tokenizer) = of.tokenizer(marked, true) else { continue };
            let (mut called, mut valued, mut cut) = (0, 0, 0);
            for seed in 0..40 {
                let choice = if seed % 2 == 0 { ToolChoice::Auto } else { ToolChoice::Strict };
                let context = format!("{format}, marks are tokens: {marked}, seed {seed}");
                let options = with_tools().tool_choice(choice).json_schema(schema.clone());
                let options = options.temperature(1.0).seed(seed).max_tokens(2000);
                let step = Noise { state: seed + 1, rows: tokenizer.vocab_len(), used: 0 };
                let prompt = tokenizer.encode("<|start|>assistant", true).unwrap();
                let stop = StopTokens::from_iter([257]);
                let mut generation = Generation::new(step, Arc::clone(&tokenizer), &[], prompt, stop, &options)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                let answer = generation.answer().unwrap_or_else(|error| panic!("{context}: {error}"));
                if generation.finish().0 == Some(FinishReason::Length) {
                    cut += 1;
                } else if answer.tool_calls.is_empty() {
                    valued += 1;
                    let value: Value =
                        serde_json::from_str(&answer.text).unwrap_or_else(|_| panic!("{context}: {answer:?}"));
                    assert!(jsonschema::is_valid(&schema, &value), "{context}: {answer:?}");
                } else {
                    called += 1;
                    assert!(answer.text.is_empty(), "{context}: {answer:?}");
                    for call in &answer.tool_calls {
                        let tool = tools.iter().find(|tool| tool["function"]["name"] == call.name.as_str()).unwrap();
                        let valid = jsonschema::is_valid(&tool["function"]["parameters"], &json!(call.arguments));
                        assert!(valid || !holds_all(format), "{context}: {call:?}");
                    }
                }
            }
            // Most characters are about as likely as any other; only at a letter of a mark there are few alternatives.
            assert!(called > 0 && valued > 0, "{format}, {marked}: {called} called, {valued} values, {cut} were cut");
        }
    }
}

/// Arguments are returned as the model wrote them, in JSON.
#[test]
fn arguments_keep_the_text_of_their_numbers() {
    let digits = "123456789012345678901234567890";
    for (evidence, answer, expected) in [
        (
            "<tool_call>arguments",
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"a\": [{digits}, 1.50]}} }}</tool_call>"),
            format!("{{\"a\": [{digits}, 1.50]}}"),
        ),
        (
            "<tool_call>arguments",
            format!("<tool_call>[{{\"arguments\": \"{{\\\"a\\\": {digits}}}\", \"name\": \"f\"}}]</tool_call>"),
            format!("{{\"a\": {digits}}}"),
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=a>",
            format!(
                "<tool_call>\n<function=tree>\n<parameter=node>\n{digits}\n</parameter>\n<parameter=b>\n01\n</parameter>\n</function>\n</tool_call>"
            ),
            format!("{{\"node\":{digits},\"b\":\"01\"}}"),
        ),
        (
            "<function_calls>",
            format!("<function_calls>f(a={digits}, b=True)</function_calls>"),
            format!("{{\"a\":{digits},\"b\":true}}"),
        ),
        (
            "<|tool_call>",
            format!("<|tool_call>call:f{{a:{digits},b:+5}}<tool_call|>"),
            format!("{{\"a\":{digits},\"b\":5}}"),
        ),
    ] {
        let tokenizer = tokenizer_with(&TOKENS, evidence);
        let ids = tokenizer.encode(&answer, false).unwrap();
        let (mut found, _) = said(&tokenizer, &ids, &with_tools());
        assert_eq!(found.tool_calls.len(), 1, "{answer}");
        assert_eq!(found.tool_calls[0].arguments_json(), expected, "{answer}");
        // Arguments that were changed since are written again.
        found.tool_calls[0].arguments = [("a".to_owned(), json!(1))].into_iter().collect();
        assert_eq!(found.tool_calls[0].arguments_json(), "{\"a\":1}");
    }
}

/// An answer that may call only one tool ends with its first call, whatever the same token completed, and tells all its tokens.
#[test]
fn an_answer_may_end_after_its_first_call() {
    let (mut several, mut shorter) = (0, 0);
    for of in formats() {
        let format = of.format;
        for marked in [true, false] {
            let Some(tokenizer) = of.tokenizer(marked, true) else { continue };
            for (answer, text, expected) in &of.answers {
                let context = format!("{format}, marks are tokens: {marked}: {answer}");
                let ids = tokenizer.encode(answer, false).unwrap();
                let (found, pieces) = said(&tokenizer, &ids, &with_tools().parallel_tool_calls(false));
                let first: Value = expected.as_array().unwrap().iter().take(1).cloned().collect();
                assert_eq!(calls(&found), first, "{context}");
                assert!(text.starts_with(&found.text), "{context}: {found:?}");
                let tokens: Vec<u32> = pieces.iter().filter_map(|piece| piece.token).collect();
                assert!(ids.starts_with(&tokens), "{context}: {tokens:?}");
                several += usize::from(expected.as_array().unwrap().len() > 1);
                shorter += usize::from(tokens.len() < ids.len());
            }
        }
    }
    assert!(several > 10 && shorter > 10, "{several} call several tools, {shorter} ended before");
}

/// Calls of Llama 3 have no mark: an answer that begins with a brace is a call and held to its schema, and any other is text.
#[test]
fn a_call_without_a_mark_is_the_whole_answer() {
    let llama = formats().into_iter().find(|of| of.format == ToolCallFormat::Llama3Json).unwrap();
    let tokenizer = llama.tokenizer(false, false).unwrap();
    let strict = with_tools().tool_choice(ToolChoice::Strict);
    let call = r#"{"name": "weather", "parameters": {"city": "Oslo"}}"#;
    for (says, text, calls_of) in [
        (call, "", json!([["weather", {"city": "Oslo"}]])),
        // No such city: the likeliest that the schema has comes instead.
        (&call.replace("Oslo", "Oran"), "", json!([["weather", {"city": "Oslo"}]])),
        ("I look: {\"name\": \"weather\"}", "I look: {\"name\": \"weather\"}", json!([])),
        (" \n No.", " \n No.", json!([])),
        ("", "", json!([])),
    ] {
        let ids = tokenizer.encode(says, false).unwrap();
        let (found, _) = said(&tokenizer, &ids, &strict);
        assert_eq!((found.text.as_str(), calls(&found)), (text, calls_of), "{says}");
    }
}
