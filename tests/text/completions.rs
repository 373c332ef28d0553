//! `completions`: the prompt in the answer, its log-probabilities, and the best of several answers.
#![allow(clippy::unwrap_used)] // a test that cannot go on may panic

use crate::common;
use crate::openai::chunks;
use model_factory::{GenerateOptions, Model};
use model_factory_openai::{CompletionRequest, RequestError, keep_best};
use serde_json::{Value, json};

const PROMPT: &str = "Once upon a time there was a fox";

fn text(fields: &Value) -> Result<CompletionRequest, RequestError> {
    let mut body = json!({ "prompt": PROMPT, "max_tokens": 3, "temperature": 0 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    CompletionRequest::text(body.to_string().as_bytes())
}

fn demo() -> Model {
    Model::load(common::demo()).unwrap()
}

/// The first choice of the answer to a request.
fn first(model: &Model, fields: &Value) -> Value {
    chunks(model, &text(fields).unwrap()).1["choices"][0].take()
}

#[test]
fn the_prompt_is_echoed_with_its_log_probabilities() {
    let model = demo();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let plain = first(&model, &json!({}));
    let scores = model.score(PROMPT).unwrap();
    for prompt in [json!(PROMPT), json!(ids)] {
        let echoed = first(&model, &json!({ "prompt": prompt, "echo": true, "logprobs": 2 }));
        assert_eq!(echoed["text"], json!([PROMPT, plain["text"].as_str().unwrap()].concat()));
        let list = |name: &str| echoed["logprobs"][name].as_array().unwrap().clone();
        let (tokens, logprobs, top, offsets) =
            (list("tokens"), list("token_logprobs"), list("top_logprobs"), list("text_offset"));
        assert_eq!([tokens.len(), logprobs.len(), top.len(), offsets.len()], [ids.len() + 3; 4]);
        assert_eq!((&logprobs[0], &top[0]), (&Value::Null, &Value::Null));
        let of_prompt: Vec<f64> = logprobs[1..ids.len()].iter().map(|p| p.as_f64().unwrap()).collect();
        assert_eq!(of_prompt, scores.logprobs);
        assert!(top[1..].iter().all(|top| top.as_object().unwrap().len() == 2), "{top:?}");
        let said = echoed["text"].as_str().unwrap();
        for (token, offset) in tokens.iter().zip(&offsets).skip(1) {
            let (token, offset) = (token.as_str().unwrap(), usize::try_from(offset.as_u64().unwrap()).unwrap());
            let rest: String = said.chars().skip(offset).collect();
            // The text of a prompt has no blank before its first word.
            assert!(rest.starts_with(token) || offset == 0 && rest.starts_with(token.trim_start()), "{token:?}: {rest}");
        }
        // Only the prompt.
        let only = first(&model, &json!({ "prompt": prompt, "echo": true, "logprobs": 2, "max_tokens": 0 }));
        assert_eq!((&only["text"], &only["finish_reason"]), (&json!(PROMPT), &json!("length")));
        assert_eq!(only["logprobs"]["token_logprobs"].as_array().unwrap(), &logprobs[..ids.len()]);
        let unscored = first(&model, &json!({ "prompt": prompt, "echo": true }));
        assert_eq!((&unscored["text"], &unscored["logprobs"]), (&echoed["text"], &Value::Null));
    }
}

/// As lm-evaluation-harness reads them: what was generated is the last entry, also where that is the end of the text.
#[test]
fn a_stop_token_after_an_echo_has_an_entry() {
    let model = demo();
    let free = model.generate(PROMPT, &GenerateOptions::default().max_tokens(1).temperature(0.0)).unwrap();
    let first_token = { free }.by_ref().find_map(|piece| piece.unwrap().token).unwrap();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let fields = json!({ "echo": true, "logprobs": 1, "max_tokens": 1, "stop_token_ids": [first_token] });
    let choice = first(&model, &fields);
    assert_eq!(choice["logprobs"]["tokens"].as_array().unwrap().len(), ids.len() + 1);
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(PROMPT), &json!("stop")));
    // Its log-probability is that of the likeliest token, as it was drawn greedily.
    let [own, top] = ["token_logprobs", "top_logprobs"].map(|name| &choice["logprobs"][name][ids.len()]);
    assert_eq!(own, top.as_object().unwrap().values().next().unwrap());
}

#[test]
fn several_prompts_are_echoed_in_their_order() {
    let model = demo();
    let prompts = [PROMPT, "The cat", "Once upon a time there was a dog"];
    let fields = json!({ "prompt": prompts, "echo": true, "logprobs": 1, "n": 2, "temperature": 1, "seed": 3 });
    let (parts, whole) = chunks(&model, &text(&fields).unwrap());
    assert!(!parts.is_empty());
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let prompt = prompts[index / 2];
        assert_eq!(choice["index"], index);
        assert!(choice["text"].as_str().unwrap().starts_with(prompt), "{choice}");
        let alone = first(&model, &json!({ "prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 0 }));
        let count = alone["logprobs"]["tokens"].as_array().unwrap().len();
        let of_prompt = &choice["logprobs"]["token_logprobs"].as_array().unwrap()[..count];
        assert_eq!(of_prompt, alone["logprobs"]["token_logprobs"].as_array().unwrap());
    }
}

#[test]
fn the_best_of_several_answers_are_kept() {
    let model = demo();
    let fields = json!({ "best_of": 5, "n": 2, "temperature": 1.5, "seed": 4, "max_tokens": 6 });
    let request = text(&fields).unwrap();
    let (_, mut whole) = chunks(&model, &request);
    keep_best(&mut whole, request.n, request.best_of);
    let choices = whole["choices"].as_array().unwrap();
    let best = GenerateOptions::default().max_tokens(6).temperature(1.5).seed(4).logprobs(0);
    let mut answers = model.answers(PROMPT, 5, &best).unwrap();
    answers.sort_by(|a, b| b.mean_logprob().total_cmp(&a.mean_logprob()));
    let texts: Vec<&str> = answers[..2].iter().map(|answer| &*answer.text).collect();
    assert_eq!(choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect::<Vec<_>>(), texts);
    assert!(choices.iter().all(|choice| choice["logprobs"].is_null() && choice.get("mean_logprob").is_none()));
    let usage: usize = answers.iter().map(|answer| answer.logprobs.len()).sum();
    assert!(whole["usage"]["completion_tokens"].as_u64().unwrap() >= usage as u64 - 5, "all of them were computed");
    for wrong in [json!({ "best_of": 1, "n": 2 }), json!({ "best_of": 2, "stream": true }), json!({ "best_of": 129 })] {
        let error = text(&wrong).unwrap_err();
        assert!(matches!(&error, RequestError::Wrong { field, .. } if field == "best_of"), "{error}");
    }
}

#[test]
fn prompt_logprobs_have_the_form_of_vllm() {
    let model = demo();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let scores = model.score(PROMPT).unwrap();
    let found = first(&model, &json!({ "prompt_logprobs": 1 }))["prompt_logprobs"].take();
    let found = found.as_array().unwrap();
    assert_eq!((found.len(), &found[0]), (ids.len(), &Value::Null));
    for (place, (id, logprob)) in ids[1..].iter().zip(&scores.logprobs).enumerate() {
        let entry = &found[place + 1][id.to_string()];
        assert_eq!(entry["logprob"].as_f64(), Some(*logprob), "{place}");
        let ranks: Vec<&Value> = found[place + 1].as_object().unwrap().values().map(|of| &of["rank"]).collect();
        assert!(ranks.contains(&&json!(1)), "{ranks:?}");
    }
    // In a conversation they are those of the rendered prompt, and stand beside the choices.
    let body = json!({ "messages": [{ "role": "user", "content": PROMPT }], "max_tokens": 2, "prompt_logprobs": 0 });
    let mut request = CompletionRequest::chat(body.to_string().as_bytes()).unwrap();
    let (_, whole) = chunks(&model, &request);
    request.tokenize(&model).unwrap();
    let tokens = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(whole["prompt_logprobs"].as_array().unwrap().len() as u64, tokens, "{whole}");
}
