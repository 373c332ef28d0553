//! The API of llama.cpp's server without HTTP: what is read, what is refused and by which name, and what is answered.
#![allow(clippy::unwrap_used)] // a test that cannot go on may panic

use crate::common;
use crate::completions::{ending_with, infilling};
use crate::openai::chunks;
use model_factory::generate::{Dry, Grammar, Xtc};
use model_factory::{GenerateOptions, Model};
use model_factory_openai::llama_cpp::{CompletionBuilder, VectorsRequest, completion, error, infill};
use model_factory_openai::{
    ApiError, CompletionInput, CompletionRequest, EmbeddingRequest, Outline, PromptPart, RequestError,
};
use serde_json::{Value, json};

const PROMPT: &str = "Once upon a time there was a fox";

type Read = Result<(CompletionRequest, CompletionBuilder), RequestError>;

fn with(mut body: Value, fields: &Value) -> Vec<u8> {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn asked(fields: &Value) -> Read {
    completion(&with(json!({ "prompt": PROMPT, "n_predict": 6, "temperature": 0 }), fields))
}

fn between(fields: &Value) -> Read {
    infill(&with(json!({ "input_prefix": "There was a", "input_suffix": " who ran.", "n_predict": 6 }), fields))
}

fn demo() -> Model {
    Model::load(common::demo()).unwrap()
}

/// The events of a request, and its whole answer.
fn answered(model: &Model, fields: &Value) -> (Vec<Value>, Value) {
    let (request, mut builder) = asked(fields).unwrap();
    let (chunks, whole) = chunks(model, &request);
    (chunks.iter().flat_map(|chunk| builder.push(chunk)).collect(), builder.whole(&whole))
}

#[test]
fn fields_become_options() {
    let (request, _) = asked(&json!({
        "n_predict": 4, "seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "stop": ["x"], "repeat_penalty": 1.1,
        "ignore_eos": true, "n_probs": 3, "grammar": "root ::= \"a\"", "repeat_last_n": -1, "dry_multiplier": 0.5,
        "dry_penalty_last_n": -1, "xtc_probability": 0.5, "logit_bias": [[5, 1.0], ["6", -1], [7, false]], "cache_prompt": false,
        "id_slot": 1, "mirostat": 0, "dynatemp_range": 0.0, "samplers": ["penalties", "dry", "top_k", "top_p", "min_p", "xtc", "temperature"],
    }))
    .unwrap();
    let mut expected = GenerateOptions::default().max_tokens(4).temperature(0.5).top_k(5).top_p(0.9).min_p(0.1).seed(7);
    expected = expected.repetition_penalty(1.1).stop("x").logprobs(3).grammar(&Grammar::lark("start: r0\nr0: \"a\"\n"));
    expected.ignore_stop = true;
    expected.sampling.dry = Some(Dry { multiplier: 0.5, ..Dry::default() });
    expected.sampling.xtc = Some(Xtc { probability: 0.5, threshold: 0.1 });
    expected.sampling.logit_bias.extend([(5, 1.0), (6, -1.0), (7, -100.0)]);
    assert_eq!(request.options, expected);
    assert!(asked(&json!({ "grammar": "" })).unwrap().0.options.grammar.is_none());
    for seed in [json!(-1), json!(4_294_967_295_u32)] {
        assert_eq!(asked(&json!({ "seed": seed })).unwrap().0.options.sampling.seed, None, "it is random");
    }
    let (request, _) = asked(&json!({ "n_predict": -1, "n_cmpl": 2, "n_probs": 0, "samplers": ["top_k"] })).unwrap();
    let sampling = &request.options.sampling;
    assert_eq!((request.n, request.options.max_tokens, request.options.logprobs), (2, usize::MAX, None));
    assert_eq!((sampling.top_p, sampling.min_p, sampling.repetition_penalty), (Some(1.0), Some(0.0), Some(1.0)), "off");
}

#[test]
fn prompts_are_texts_and_ids_in_any_order() {
    let model = demo();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let tail = model.tokenizer().encode(" who ran", false).unwrap();
    let text = json!({ "prompt_string": PROMPT });
    for (prompt, expected) in [
        (json!(PROMPT), vec![ids.clone()]),
        (json!(ids), vec![ids.clone()]),
        (text.clone(), vec![ids.clone()]),
        (json!([PROMPT, ids, text]), vec![ids.clone(); 3]),
        (json!([ids, [PROMPT, " who ran", 3]]), vec![ids.clone(), [&*ids, &tail, &[3]].concat()]),
        (json!([3, 4, " who ran", 5]), vec![[&[3, 4], &*tail, &[5]].concat()]),
    ] {
        let body = json!({ "prompt": prompt, "n_predict": 2, "n_cmpl": 2 }).to_string();
        let (mut request, _) = completion(body.as_bytes()).unwrap();
        assert!(request.answers() <= Outline::of(body.as_bytes()).unwrap().answers, "{body}");
        let tokens: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(request.input_tokens(&model).unwrap(), tokens, "{body}");
        assert_eq!(request.generations(&model).unwrap().len(), 2 * expected.len(), "{body}");
        request.tokenize(&model).unwrap();
        assert_eq!(request.input, CompletionInput::Ids(expected), "{body}");
    }
    let (request, _) = asked(&json!({ "prompt": [1, 2, "a"] })).unwrap();
    let parts = vec![PromptPart::Ids(vec![1, 2]), PromptPart::Text("a".into())];
    assert_eq!(request.input, CompletionInput::Mixed(vec![parts]));
    let (mut request, _) = asked(&json!({ "prompt": [PROMPT.repeat(200)] })).unwrap();
    let refused = ApiError::of(&request.tokenize(&model).unwrap_err(), "prompt");
    assert_eq!((refused.status, refused.context.map(|[_, limit]| limit)), (400, Some(model.context_length())));
    let [of_openai, own] = [refused.json(), error(&refused)].map(|json| json["error"].clone());
    assert_eq!((&own["type"], &own["code"]), (&json!("exceed_context_size_error"), &json!(400)));
    assert_eq!((&of_openai["n_ctx"], &of_openai["code"]), (&json!(512), &json!("context_length_exceeded")));
    assert!(own["n_prompt_tokens"].as_u64() > Some(512), "{own}");
}

#[test]
fn what_is_wrong_is_named() {
    for (field, fields) in [
        ("prompt", json!({ "prompt": null })),
        ("prompt", json!({ "prompt": [] })),
        ("prompt", json!({ "prompt": 1 })),
        ("prompt[1]", json!({ "prompt": ["a", null] })),
        ("prompt[1][0]", json!({ "prompt": ["a", [-1]] })),
        ("prompt[1]", json!({ "prompt": ["a", []] })),
        ("prompt.prompt_string", json!({ "prompt": {} })),
        ("prompt.multimodal_data", json!({ "prompt": { "prompt_string": "a", "multimodal_data": ["iVBORw0KGgo="] } })),
        ("n_cmpl", json!({ "n_cmpl": 2, "n": 2 })),
        ("n_probs", json!({ "n_probs": 2, "logprobs": 2 })),
        ("logit_bias", json!({ "logit_bias": [1, 2] })),
        ("logit_bias[0]", json!({ "logit_bias": [[1, true]] })),
        ("logit_bias[1]", json!({ "logit_bias": [[1, 1], [null, 1]] })),
        ("mirostat", json!({ "mirostat": 2 })),
        ("post_sampling_probs", json!({ "post_sampling_probs": true })),
        ("t_max_predict_ms", json!({ "t_max_predict_ms": 100 })),
        ("repeat_last_n", json!({ "repeat_last_n": 64, "repeat_penalty": 1.1 })),
        ("samplers[0]", json!({ "samplers": ["x"] })),
        ("samplers", json!({ "samplers": ["temperature", "top_k"] })),
        ("grammar", json!({ "grammar": "root ::= (" })),
        ("grammar", json!({ "grammar": "root ::= \"a\"", "json_schema": {} })),
    ] {
        match asked(&fields).unwrap_err() {
            RequestError::Wrong { field: found, .. } => assert_eq!(found, field, "{fields}"),
            other => panic!("{other} for {fields}"),
        }
    }
    for (field, fields) in [("x", json!({ "x": 1 })), ("messages", json!({ "messages": [] }))] {
        let refused = asked(&fields).unwrap_err();
        assert_eq!(refused, RequestError::Unknown { field: field.into() });
    }
    for (field, fields) in [
        ("input_prefix", json!({ "input_prefix": null })),
        ("input_suffix", json!({ "input_suffix": 1 })),
        ("input_extra[0]", json!({ "input_extra": ["a"] })),
        ("input_extra[0].text", json!({ "input_extra": [{ "filename": "a" }] })),
        ("input_extra[0].filename", json!({ "input_extra": [{ "filename": 1, "text": "a" }] })),
        ("input_extra[0].x", json!({ "input_extra": [{ "x": 1, "text": "a" }] })),
    ] {
        assert_eq!(between(&fields).unwrap_err().field(), Some(field), "{fields}");
    }
    let known = |status| error(&ApiError::new(status, "a", None, None))["error"]["type"].as_str().unwrap().to_owned();
    let kinds = [400, 401, 404, 501, 503, 500].map(known);
    let expected = ["invalid_request", "authentication", "not_found", "not_supported", "unavailable", "server"];
    assert_eq!(kinds, expected.map(|kind| format!("{kind}_error")));
}

#[test]
fn events_put_together_are_the_answer() {
    let model = demo();
    let plain = GenerateOptions::default().max_tokens(6).temperature(0.0).seed(3);
    let text = model.generate(PROMPT, &plain).unwrap().text().unwrap();
    let fields = json!({ "seed": 3, "n_probs": 2, "return_tokens": true });
    let (events, whole) = answered(&model, &fields);
    let (last, parts) = events.split_last().unwrap();
    assert!(parts.iter().all(|event| event["stop"] == false) && last["stop"] == true);
    let said: String = parts.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!((&said, whole["content"].as_str().unwrap(), &last["content"]), (&text, &*text, &json!("")));
    let ids: Vec<&Value> = parts.iter().flat_map(|event| event["tokens"].as_array().unwrap()).collect();
    assert_eq!((json!(ids), ids.len()), (whole["tokens"].clone(), 6));
    assert_eq!(parts.last().unwrap()["tokens_predicted"], 6);
    let of_parts: Vec<&Value> =
        parts.iter().flat_map(|event| event["completion_probabilities"].as_array().unwrap()).collect();
    assert_eq!(json!(of_parts), whole["completion_probabilities"]);
    assert_eq!((of_parts[0]["id"].clone(), of_parts[0]["top_logprobs"].as_array().unwrap().len()), (ids[0].clone(), 2));
    let prompt = model.tokenizer().encode_prompt(PROMPT).unwrap();
    assert_eq!(whole["prompt"], format!("<|bos|>{PROMPT}"));
    assert_eq!((&whole["stop_type"], &whole["truncated"]), (&json!("limit"), &json!(false)));
    assert_eq!((&whole["tokens_evaluated"], &whole["tokens_predicted"]), (&json!(prompt.len()), &json!(6)));
    let settings = &whole["generation_settings"];
    assert_eq!((&settings["seed"], &settings["n_predict"], &settings["n_probs"]), (&json!(3), &json!(6), &json!(2)));
    assert_eq!(answered(&model, &json!({})).1["tokens"], json!([]), "only where they are asked for");

    // A stop string, the end of the context, and the end of a grammar.
    let stop = text.split_whitespace().nth(1).unwrap();
    let (_, stopped) = answered(&model, &json!({ "stop": [stop] }));
    assert_eq!((&stopped["stop_type"], &stopped["stopping_word"]), (&json!("word"), &json!(stop)));
    let (_, full) = answered(&model, &json!({ "n_predict": -1, "ignore_eos": true }));
    assert_eq!((&full["stop_type"], &full["truncated"]), (&json!("limit"), &json!(true)));
    // The last token is not computed, and needs no place.
    assert_eq!(full["tokens_predicted"], json!(model.context_length() - prompt.len() + 1));
    let (_, held) = answered(&model, &json!({ "grammar": "root ::= \"a\"{5}" }));
    assert_eq!((&held["content"], &held["stop_type"]), (&json!("aaaaa"), &json!("eos")));

    // Only some fields, and several prompts.
    let (_, some) =
        answered(&model, &json!({ "response_fields": ["content", "generation_settings/n_predict", "x/y"] }));
    assert_eq!(some, json!({ "content": text, "generation_settings/n_predict": 6 }));
    let (_, both) = answered(&model, &json!({ "prompt": [PROMPT, "The fox"], "n_cmpl": 2 }));
    let indices: Vec<&Value> = both.as_array().unwrap().iter().map(|one| &one["index"]).collect();
    assert_eq!(indices, [0, 1, 2, 3].map(|index| json!(index)).iter().collect::<Vec<_>>());
    assert_eq!((&both[0]["content"], &both[1]["content"]), (&json!(text), &json!(text)), "greedy answers are the same");
    // A prompt is said once, and not by each of its answers.
    assert_eq!([&both[2]["prompt"], &both[3]["prompt"]], [&json!("<|bos|>The fox"), &Value::Null]);
}

#[test]
fn a_text_has_a_bias_by_its_tokens() {
    let model = demo();
    let (_, free) = answered(&model, &json!({ "return_tokens": true }));
    let first = u32::try_from(free["tokens"][0].as_u64().unwrap()).unwrap();
    let text = model.tokenizer().decode(&[first]);
    for bias in [json!([[text, false]]), json!({ text.clone(): -100 })] {
        let (request, _) = asked(&json!({ "logit_bias": bias })).unwrap();
        let mut known = request.clone();
        known.tokenize(&model).unwrap();
        let ids = model.tokenizer().encode(&text, false).unwrap();
        assert_eq!(known.options.sampling.logit_bias, ids.into_iter().map(|id| (id, -100.0)).collect());
        // The same where nothing was tokenized ahead.
        let mut generations = request.generations(&model).unwrap();
        let other = generations[0].next().unwrap().unwrap().token;
        assert!(other.is_some() && other != Some(first), "{other:?}");
    }
}

#[test]
fn what_is_between_is_asked_for_after_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let model = infilling(folder.path());
    let tokenizer = model.tokenizer();
    let part = |text: &str| tokenizer.encode_ordinary(text, false).unwrap();
    let ids_of = |fields: &Value| {
        let (mut request, _) = between(fields).unwrap();
        assert_eq!(request.clone().generations(&model).unwrap().len(), 1);
        request.tokenize(&model).unwrap();
        assert_eq!(request.options.stop_tokens, [509, 510, 511], "a mark ends it");
        match request.input {
            CompletionInput::Ids(ids) => ids[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let tail = [&[509][..], &part("There was a red"), &[510], &part(" who ran."), &[511]].concat();
    assert_eq!(ids_of(&json!({ "prompt": " red", "t_max_predict_ms": 1000 })), [&[0], &*tail].concat());
    // No text can spell a mark. This vocabulary has no token for files.
    let files = json!([{ "filename": "a", "text": "<|fim_prefix|> One." }, { "text": " Two." }]);
    let given = part("\n\n--- snippet ---\n\n<|fim_prefix|> One.\n\n--- snippet ---\n\n Two.");
    assert_eq!(ids_of(&json!({ "prompt": " red", "input_extra": files })), [&[0], &*given, &tail].concat());
    let (mut request, _) = between(&json!({ "input_extra": files })).unwrap();
    let refused = request.tokenize(&demo()).unwrap_err();
    assert!(refused.to_string().contains("no tokens to fill in the middle"), "{refused}");
}

#[test]
fn other_files_are_parts_of_a_repository_where_the_vocabulary_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let files = json!([{ "filename": "a.rs", "text": "<|file_sep|> One." }, { "text": " Two." }]);
    let ids_of = |model: &Model| {
        let (mut request, _) = between(&json!({ "input_extra": files })).unwrap();
        request.tokenize(model).unwrap();
        match request.input {
            CompletionInput::Ids(ids) => ids[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let qwen = ending_with(
        folder.path(),
        &["<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    );
    let part = |text: &str| qwen.tokenizer().encode_ordinary(text, false).unwrap();
    let [repository, file, prefix, suffix, middle] = [507, 508, 509, 510, 511];
    let expected = [
        &[0, repository][..],
        &part("myproject\n"),
        &[file],
        &part("a.rs\n<|file_sep|> One."),
        &[file],
        &part("tmp\n Two."),
        &[file],
        &part("filename\n"),
        &[prefix],
        &part("There was a"),
        &[suffix],
        &part(" who ran."),
        &[middle],
    ];
    assert_eq!(ids_of(&qwen), expected.concat());
    // Where the suffix comes first, files still stand before all else.
    let codestral = ending_with(folder.path(), &["[PREFIX]", "[SUFFIX]"]);
    let part = |text: &str| codestral.tokenizer().encode_ordinary(text, false).unwrap();
    let before = "\n\n--- snippet ---\n\n<|file_sep|> One.\n\n--- snippet ---\n\n Two.";
    let expected = [&[0][..], &part(before), &[511], &part(" who ran."), &[510], &part("There was a")].concat();
    assert_eq!(ids_of(&codestral), expected);
}

#[test]
fn grammars_of_llama_cpp_hold_answers() {
    let model = demo();
    let held = |gbnf: &str| {
        let (request, _) = asked(&json!({ "grammar": gbnf, "n_predict": 40 })).unwrap();
        let (_, whole) = chunks(&model, &request);
        whole["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let list = "# numbers\nroot ::= \"[\" ws (num (\",\" ws num)*)? \"]\"\nnum ::= [1-9] [0-9]{0,2}\n\n| \"0\"\nws ::= | \" \"{1,2}";
    let text = held(list);
    let compact: String = text.chars().filter(|c| *c != ' ').collect();
    assert!(serde_json::from_str::<Vec<u32>>(&compact).is_ok() || !text.ends_with(']'), "{text}");
    for (gbnf, expected) in [
        ("root ::= \"\\x41\\u00e9\\U0001F600\\\"\\n\"", "A\u{e9}\u{1f600}\"\n"),
        // The longest token of a lexer would leave nothing for the second text.
        ("root ::= (\"ab\" | \"a\") \"b\" \"c\"\n", "abc"),
        ("root ::= \"x\" sub-rule\nsub-rule ::= [^\\x00-\\x79{-\\U0010FFFF] {3}", "xzzz"),
        ("root ::=\n  \"a\" |\n  \"a\"\n", "a"),
        ("root ::= \"a\" b* (b | \"\") \":\"{3} | b\nb ::= b", "a:::"),
    ] {
        let text = held(gbnf);
        assert!(text == expected || gbnf.contains("ab") && text == "abbc", "{gbnf}: {text:?}");
    }
    for (gbnf, expected) in [
        ("a ::= \"b\"", "no rule root"),
        ("root ::= a", "line 1: there is no rule a"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root is there twice"),
        ("root ::= \"a", "expected a character"),
        ("root ::= [b-a]", "in their order"),
        ("root ::= []", "a class with a character"),
        ("root ::= \"a\"{2,1}", "expected {5}"),
        ("root ::= \"a\"{x}", "expected {5}"),
        ("root ::= \"a\"**", "repeated twice"),
        ("root ::= \"\\q\"", "after \\"),
        ("root ::= (\"a\"", "expected | or )"),
        ("root ::= \"a\"\n)", "the name of a rule"),
        ("root = \"::=\"", "expected ::="),
        ("root ::= root \"a\"", "line 1: nothing matches the rule root, as it always needs itself"),
        ("root ::= \"a\" (b | c)\n\nb ::= c+\nc ::= \"c\" b{2}", "line 3: nothing matches the rule b"),
    ] {
        let refused = asked(&json!({ "grammar": gbnf })).unwrap_err().to_string();
        assert!(refused.starts_with("grammar: ") && refused.contains(expected), "{gbnf}: {refused}");
    }
    let long = format!("root ::= \"{}\"", "a".repeat(1 << 20));
    assert!(asked(&json!({ "grammar": long })).unwrap_err().to_string().contains("1048576 bytes"));
    // Colons of texts are no rules.
    let colons = format!("root ::= \"{}\"", ":".repeat(40));
    assert_eq!(
        held(&format!("{colons}\n{}", (0..960).map(|rule| format!("r{rule} ::= \"a\"\n")).collect::<String>())),
        ":".repeat(40)
    );
    let many = (0..1000).map(|rule| format!("r{rule} ::= \"a\"\n")).collect::<String>();
    let refused = asked(&json!({ "grammar": format!("root ::= r1\n{many}") })).unwrap_err().to_string();
    assert!(refused.contains("line 1000: expected 999 rules at most"), "{refused}");
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(70), ")".repeat(70));
    assert!(asked(&json!({ "grammar": deep })).unwrap_err().to_string().contains("64 deep"));
}

#[test]
fn vectors_are_those_of_the_openai_api() {
    let model = Model::load(common::fixtures().join("embeddings/bert")).unwrap();
    let vectors = |body: &Value| {
        let request = EmbeddingRequest::parse(body.to_string().as_bytes()).unwrap();
        let answer = request.embed(&model, "m").unwrap();
        let each = answer["data"].as_array().unwrap().iter().map(|one| one["embedding"].clone());
        (each.collect::<Vec<_>>(), answer["usage"]["total_tokens"].as_u64().unwrap())
    };
    let ids = model.tokenizer().encode("a cat", true).unwrap();
    let (plain, tokens) = vectors(&json!({ "input": ["a cat", "two dogs"] }));
    let parts = json!({ "content": [{ "type": "text", "text": "two " }, { "type": "text", "text": "dogs" }] });
    let (mixed, of_mixed) = vectors(&json!({ "input": [parts, ids, { "prompt_string": "a cat" }, "two dogs"] }));
    assert_eq!(mixed, [1, 0, 0, 1].map(|index| plain[index].clone()));
    assert_eq!(of_mixed, 2 * tokens);
    let (one, _) = vectors(&json!({ "input": { "prompt_string": "a cat" } }));
    assert_eq!(one, plain[..1]);
    // A text among ids is its tokens only.
    let ids = [&[5], &*model.tokenizer().encode_ordinary("cat", false).unwrap(), &[6]].concat();
    let (sequence, _) = vectors(&json!({ "input": [5, "cat", 6] }));
    assert_eq!(sequence, vectors(&json!({ "input": ids })).0);
    for wrong in
        [json!([]), json!({ "content": "a" }), json!({ "content": [{ "type": "image_url" }] }), json!([["a", []]])]
    {
        let body = json!({ "input": wrong }).to_string();
        assert!(EmbeddingRequest::parse(body.as_bytes()).is_err(), "{body}");
    }
    for body in [json!({ "content": "a cat" }), json!({ "input": ["a cat"], "embd_normalize": 2 })] {
        let request = VectorsRequest::parse(body.to_string().as_bytes()).unwrap();
        let answer = request.answer(&model, "m").unwrap();
        assert_eq!(answer, json!([{ "index": 0, "embedding": [plain[0]] }]));
    }
    let raw = VectorsRequest::parse(br#"{ "content": "a cat", "embd_normalize": -1 }"#).unwrap();
    assert_eq!(raw.request.options.normalize, Some(false));
    for wrong in [json!({ "content": "a", "embd_normalize": 1 }), json!({ "content": "a", "input": "a" }), json!({})] {
        assert!(VectorsRequest::parse(wrong.to_string().as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn the_fingerprint_tells_what_bits_depend_on() {
    let of = |model: Model| model.system_fingerprint().unwrap().to_owned();
    let plain = of(demo());
    assert_eq!(plain, of(demo()));
    assert!(plain.len() == 17 && plain.starts_with('b'), "{plain}");
    let rounded = model_factory::UnifiedModelFactory::builder()
        .kv_cache(model_factory::KvDtype::Q8_0)
        .load(common::demo())
        .unwrap();
    let quantized = Model::load(common::fixtures().join("demo-q4_k_m.gguf")).unwrap();
    let others = [of(rounded), of(quantized)];
    assert!(others[0] != plain && others[1] != plain && others[0] != others[1], "{others:?}");
}
