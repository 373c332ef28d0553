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
            assert!(
                rest.starts_with(token) || offset == 0 && rest.starts_with(token.trim_start()),
                "{token:?}: {rest}"
            );
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
fn a_stop_token_after_an_echo_is_in_no_usage() {
    let model = demo();
    let free = model.generate(PROMPT, &GenerateOptions::default().max_tokens(3).temperature(0.0)).unwrap();
    let ids: Vec<u32> = { free }.by_ref().filter_map(|piece| piece.unwrap().token).collect();
    let usage = json!({ "include_usage": true, "continuous_usage_stats": true });
    let fields = json!({ "echo": true, "logprobs": 1, "stream": true, "stream_options": usage });
    for (stop, expected) in [(Some(ids[2]), 2), (Some(ids[0]), 0), (None, 3)] {
        let mut asked = fields.clone();
        asked["stop_token_ids"] = stop.into_iter().collect();
        let (chunks, _) = chunks(&model, &text(&asked).unwrap());
        let tokens = |chunk: &Value| chunk["usage"]["completion_tokens"].as_u64().unwrap();
        let counts: Vec<u64> = chunks.iter().map(tokens).collect();
        assert!(counts.is_sorted() && counts.len() > 1, "{counts:?}");
        assert_eq!(counts.iter().max(), Some(&expected), "{stop:?}: {counts:?}");
    }
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
    // An answer that ends at once is the least likely, also where its stop token has an entry.
    let ended =
        { model.generate(PROMPT, &best.clone().seed(5)).unwrap() }.by_ref().find_map(|piece| piece.unwrap().token);
    let mut expected = model.answers(PROMPT, 5, &best.clone().stop_tokens([ended.unwrap()])).unwrap();
    assert!(expected.iter().any(|answer| answer.text.is_empty()));
    expected.sort_by(|a, b| b.mean_logprob().total_cmp(&a.mean_logprob()));
    for echo in [false, true] {
        let more = json!({ "stop_token_ids": [ended], "echo": echo, "logprobs": 0 });
        let mut fields = fields.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (_, mut whole) = chunks(&model, &text(&fields).unwrap());
        keep_best(&mut whole, 2, 5);
        for (choice, answer) in whole["choices"].as_array().unwrap().iter().zip(&expected) {
            assert!(choice["text"].as_str().unwrap().ends_with(&answer.text) && !answer.text.is_empty(), "{choice}");
        }
    }
    let many = json!({ "prompt": vec![vec![3; 400]; 3], "echo": true, "logprobs": 20, "n": 6 });
    let error = text(&many).unwrap().tokenize(&model).unwrap_err();
    assert!(error.to_string().contains("prompt_logprobs is 151200"), "{error}");
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

/// The demo with a tokenizer whose last three tokens are those of fill in the middle.
pub(crate) fn infilling(folder: &std::path::Path) -> Model {
    ending_with(folder, &["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])
}

/// The demo with a tokenizer whose last tokens are `marks`.
pub(crate) fn ending_with(folder: &std::path::Path, marks: &[&str]) -> Model {
    let demo = std::fs::read_to_string(common::repository().join("fixtures/demo/tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&demo).unwrap();
    let first = 512 - marks.len();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let replaced: Vec<String> =
        vocabulary.iter().filter(|(_, id)| id.as_u64() >= Some(first as u64)).map(|(token, _)| token.clone()).collect();
    replaced.iter().for_each(|token| drop(vocabulary.remove(token)));
    let makes = |merge: &Value| match merge {
        Value::String(pair) => replaced.contains(&pair.replacen(' ', "", 1)),
        pair => replaced.contains(&[pair[0].as_str().unwrap(), pair[1].as_str().unwrap()].concat()),
    };
    tokenizer["model"]["merges"].as_array_mut().unwrap().retain(|merge| !makes(merge));
    for (id, mark) in (first..).zip(marks) {
        let mut token = tokenizer["added_tokens"][0].clone();
        (token["id"], token["content"]) = (json!(id), json!(mark));
        tokenizer["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    common::builder().tokenizer(&path).load(common::demo()).unwrap()
}

#[test]
fn a_suffix_asks_for_the_text_between() {
    let folder = tempfile::tempdir().unwrap();
    let model = infilling(folder.path());
    let tokenizer = model.tokenizer();
    let (prefix, suffix) = ("There was <|fim_middle|> a", " who ran.");
    let part = |text: &str| tokenizer.encode_ordinary(text, false).unwrap();
    // Neither text can spell a mark.
    let ids = [&[0, 509][..], &part(prefix), &[510], &part(suffix), &[511]].concat();
    let mut request = text(&json!({ "prompt": prefix, "suffix": suffix, "max_tokens": 12 })).unwrap();
    let answer = chunks(&model, &request).1["choices"][0]["text"].take();
    request.tokenize(&model).unwrap();
    assert_eq!(request.input, model_factory_openai::CompletionInput::Ids(vec![ids.clone()]));
    assert_eq!(request.options.stop_tokens, [509, 510, 511], "a mark ends it");
    let options = GenerateOptions::default().max_tokens(12).temperature(0.0).stop_tokens([509, 510, 511]);
    assert_eq!(answer, json!(model.generate(&ids, &options).unwrap().text().unwrap()));
    let infill = model_factory::Prompt::Infill { prefix, suffix };
    assert_eq!(model.prompt_ids(infill, &options.chat).unwrap(), ids);

    let mut without = text(&json!({ "suffix": suffix })).unwrap();
    let error = without.tokenize(&demo()).unwrap_err();
    assert!(error.to_string().contains("no tokens to fill in the middle"), "{error}");
    assert_eq!(model_factory_openai::ApiError::of(&error, "prompt").status, 400);
    for wrong in [json!({ "prompt": [1, 2], "suffix": "a" }), json!({ "suffix": "a", "echo": true })] {
        let error = text(&wrong).unwrap_err();
        assert!(matches!(error, RequestError::Wrong { .. }), "{error}");
    }
    assert!(text(&json!({ "suffix": "" })).is_ok());
}
