//! Vectors of texts against the float64 truth of transformers, and what stands against them.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use common::{fixtures, load};
use model_factory::diagnostics::spec::Embeds;
use model_factory::error::EmbedError;
use model_factory::{EmbedOptions, Error, ErrorKind, GenerateOptions, Model, Pooling, Reranker, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Truth {
    bert: Vec<Bert>,
    qwen3: Vec<Qwen>,
}

#[derive(Deserialize)]
struct Bert {
    text: String,
    ids: Vec<u32>,
    /// Before it was cut.
    tokens: usize,
    mean: Vec<f64>,
    cls: Vec<f64>,
}

#[derive(Deserialize)]
struct Qwen {
    text: String,
    last: Vec<f64>,
}

fn truth() -> Truth {
    let text = std::fs::read_to_string(fixtures().join("embeddings/expected.json")).expect("expected.json");
    serde_json::from_str(&text).expect("the truth")
}

/// The folder, the GGUF file, and the folder with a `vocab.txt` in place of its `tokenizer.json`.
fn berts(temporary: &Path) -> [PathBuf; 3] {
    let folder = fixtures().join("embeddings/bert");
    let copy = temporary.join("bert");
    copy_folder(&folder, &copy);
    let json = std::fs::read_to_string(copy.join("tokenizer.json")).expect("a tokenizer");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let vocabulary: BTreeMap<String, usize> = serde_json::from_value(json["model"]["vocab"].clone()).expect("texts");
    let mut lines = vec![String::new(); vocabulary.len()];
    vocabulary.into_iter().for_each(|(text, id)| lines[id] = text + "\n");
    std::fs::write(copy.join("vocab.txt"), lines.concat()).expect("a file");
    std::fs::remove_file(copy.join("tokenizer.json")).expect("it was there");
    [folder, fixtures().join("embeddings/bert.gguf"), copy]
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).expect("a copy");
        }
    }
}

fn vectors(model: &Model, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Vec<Vec<f32>> {
    model.embeddings(texts, options).expect("vectors").vectors().map(<[f32]>::to_vec).collect()
}

/// The largest difference, by the length of the truth.
fn distance(vector: &[f32], truth: &[f64]) -> f64 {
    let length = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().zip(truth).map(|(x, truth)| (f64::from(*x) - truth).abs()).fold(0.0, f64::max) / length
}

/// F32 arithmetic through two layers; the worst found was 3e-7.
const TOLERANCE: f64 = 2e-6;

#[test]
fn an_encoder_gives_the_vectors_of_float64_in_every_form_of_its_files() {
    let (temporary, truth) = (tempfile::tempdir().expect("a folder"), truth());
    assert_eq!(truth.bert.len(), 12);
    for path in berts(temporary.path()) {
        let model = load(&path);
        // What a GGUF file does not say is how long texts may be.
        let texts: Vec<&Bert> = match path.is_dir() {
            true => truth.bert.iter().collect(),
            false => truth.bert.iter().filter(|text| text.tokens == text.ids.len()).collect(),
        };
        let plain: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
        let options = EmbedOptions::default().truncate(true).trust_special_tokens(true);
        for text in texts.iter().filter(|text| text.tokens == text.ids.len()) {
            assert_eq!(model.tokenizer().encode(&text.text, true).expect("ids"), text.ids, "{}", text.text);
        }
        let mean = vectors(&model, &plain, &options.clone().normalize(false));
        let cls = vectors(&model, &plain, &options.clone().normalize(false).pooling(Pooling::Cls));
        let unit = vectors(&model, &plain, &options);
        for (index, text) in texts.iter().enumerate() {
            for (found, truth) in [(&mean[index], &text.mean), (&cls[index], &text.cls)] {
                let distance = distance(found, truth);
                assert!(distance < TOLERANCE, "{}: {:?}: {distance:e}", path.display(), text.text);
            }
            let length = mean[index].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let scaled: Vec<f64> = mean[index].iter().map(|x| f64::from(*x) / length).collect();
            assert!(distance(&unit[index], &scaled) < 1e-7, "it is of length one");
        }
    }
}

/// The fixture as sentence-transformers saves Qwen3-Embedding: without a head, and without `model.` in names.
fn write_qwen3_embedding(folder: &Path) {
    copy_folder(&common::named("qwen3").folder.join("f32"), folder);
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let bare = |name: String| name.strip_prefix("model.").map(str::to_owned).unwrap_or(name);
    let renamed = tensors.tensors().into_iter().map(|(name, tensor)| (bare(name), tensor));
    safetensors::serialize_to_file(renamed, None, &folder.join("model.safetensors")).expect("a file");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    std::fs::create_dir(folder.join("1_Pooling")).expect("a folder");
    write("1_Pooling/config.json", r#"{"embedding_dimension": 64, "pooling_mode": "lasttoken"}"#);
    write(
        "modules.json",
        r#"[{"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}]"#,
    );
    write(
        "config_sentence_transformers.json",
        r#"{"prompts": {"query": "Once upon", "document": ""}, "default_prompt_name": null}"#,
    );
}

#[test]
fn a_decoder_gives_the_last_hidden_state_of_float64() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("qwen3-embedding");
    write_qwen3_embedding(&folder);
    let (model, truth) = (load(&folder), truth().qwen3);
    assert_eq!(truth.len(), 3);
    let texts: Vec<&str> = truth.iter().map(|text| text.text.as_str()).collect();
    let raw = vectors(&model, &texts, &EmbedOptions::default().normalize(false));
    for (found, text) in raw.iter().zip(&truth) {
        assert!(distance(found, &text.last) < TOLERANCE, "{}: {:e}", text.text, distance(found, &text.last));
    }
    // The prompt stands in front of the text, and what is cut off is cut before the length is changed.
    let query = EmbedOptions::default().prompt_name("query");
    let joined = vectors(&model, &["Once upon a time"], &EmbedOptions::default());
    assert_eq!(vectors(&model, &[" a time"], &query), joined);
    let cut = vectors(&model, &texts, &EmbedOptions::default().dimensions(10));
    for (cut, raw) in cut.iter().zip(&raw) {
        let length = raw[..10].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let expected: Vec<f64> = raw[..10].iter().map(|x| f64::from(*x) / length).collect();
        assert!(cut.len() == 10 && distance(cut, &expected) < 1e-7);
    }
    let unknown =
        model.embeddings(&texts, &EmbedOptions::default().prompt_name("passage")).expect_err("no such prompt");
    let known = matches!(&unknown, Error::Embed(error)
        if matches!(&**error, EmbedError::Prompt { known, .. } if known == &["document", "query"]));
    assert!(known && unknown.kind() == ErrorKind::InvalidRequest, "{unknown:?}");
    // It is a whole Qwen3 all the same: its head is its embedding.
    model.generate("Once", &GenerateOptions::default().max_tokens(2)).expect("a generation").text().expect("a text");
}

/// The bits of a text's vector are those that it has alone, in whatever order and batch, with any number of threads.
#[test]
fn company_changes_no_bit() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("qwen3-embedding");
    write_qwen3_embedding(&folder);
    let long = "the cat sat on the mat. ".repeat(8);
    let words = ["cat", "the mat", "日本 run", "a b c d", "", "running cats sit on mats", &long];
    // More rows than a step has, so that there are several, and texts of a decoder are cut in two.
    let texts: Vec<String> = (0..120).map(|index| format!("{} {}", words[index % 7], words[index / 7 % 7])).collect();
    for (path, pooling) in [
        (fixtures().join("embeddings/bert"), Pooling::Mean),
        (fixtures().join("embeddings/bert"), Pooling::Cls),
        (folder.clone(), Pooling::Mean),
        (folder.clone(), Pooling::Last),
    ] {
        let options = EmbedOptions::default().truncate(true).pooling(pooling);
        let model = common::builder().threads(3).load(&path).expect("a model");
        let together = vectors(&model, &texts, &options);
        for (text, together) in texts.iter().zip(&together) {
            assert_eq!(&vectors(&model, &[text], &options)[0], together, "{pooling}: {text:?}");
        }
        let one_thread = common::builder().threads(1).load(&path).expect("a model");
        let mut backwards: Vec<&String> = texts.iter().collect();
        backwards.reverse();
        let mut found = vectors(&one_thread, &backwards, &options);
        found.reverse();
        assert_eq!(found, together, "{pooling}");
    }
}

#[test]
fn embeddings_and_generations_take_turns() {
    let model = common::builder().threads(2).load(common::named("qwen3").folder.join("f32")).expect("a model");
    let options = EmbedOptions::default().pooling(Pooling::Mean);
    let texts: Vec<String> = (0..60).map(|index| format!("Once upon a time {index}")).collect();
    let alone = vectors(&model, &texts, &options);
    let generate = || {
        let options = GenerateOptions::default().max_tokens(40).temperature(0.0);
        model.generate("Once upon a time", &options).expect("a generation").text().expect("a text")
    };
    let text = generate();
    std::thread::scope(|scope| {
        let generations: Vec<_> = (0..3).map(|_| scope.spawn(generate)).collect();
        for _ in 0..3 {
            let beside = vectors(&model, &texts, &options);
            assert_eq!(beside, alone);
        }
        generations.into_iter().for_each(|other| assert_eq!(other.join().expect("no panic"), text));
    });
}

#[test]
fn a_document_is_ranked_by_the_logits_of_yes_and_no() {
    let model = load(common::named("qwen3").folder.join("f32"));
    let reranker = Reranker::new("the {query} was {document}", "a", "b");
    let documents = ["on the boat", "a baker", ""];
    let scores = model.rank("cat", &documents, &reranker).expect("scores");
    for (document, score) in documents.iter().zip(scores) {
        let ids = model.tokenizer().encode_prompt(&format!("the cat was {document}")).expect("ids");
        let logits = model.session().next_logits(&ids).expect("logits");
        let [yes, no] =
            ["a", "b"].map(|text| f64::from(logits[model.tokenizer().token_id(text).expect("a token") as usize]));
        // The score is rounded to F32.
        assert!((f64::from(score) - yes.exp() / (yes.exp() + no.exp())).abs() < 1e-6);
    }
    let unknown = model.rank("cat", &documents, &Reranker::new("{query}", "no such token", "b")).expect_err("no token");
    assert!(matches!(refusal(unknown), EmbedError::Token { .. }));
}

fn refusal(error: Error) -> EmbedError {
    match error {
        Error::Embed(error) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_no_file_says_is_never_taken_for_granted() {
    let decoder = load(common::named("qwen3").folder.join("f32"));
    assert_eq!(decoder.spec().embeds, Embeds::NotSaid);
    let error = decoder.embeddings(&["a"], &EmbedOptions::default()).expect_err("no pooling");
    assert_eq!((error.code(), error.kind()), (2, ErrorKind::InvalidRequest));
    assert!(matches!(refusal(error), EmbedError::NoPooling { .. }));
    for (options, says) in [
        (EmbedOptions::default().pooling(Pooling::Last).dimensions(0), "dimensions is 0"),
        (EmbedOptions::default().pooling(Pooling::Last).dimensions(65), "dimensions is 65"),
    ] {
        let error = decoder.embeddings(&["a"], &options).expect_err("no dimensions");
        assert!(error.to_string().starts_with(says), "{error}");
    }
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("bert");
    copy_folder(&fixtures().join("embeddings/bert"), &folder);
    let pooling = folder.join("1_Pooling/config.json");
    std::fs::write(&pooling, r#"{"pooling_mode": ["mean", "median"]}"#).expect("a file");
    let unsupported = refusal(load(&folder).embeddings(&["a"], &EmbedOptions::default()).expect_err("no such pooling"));
    assert!(matches!(&unsupported, EmbedError::Unsupported { what, .. } if what.contains("median")), "{unsupported}");
    let seven = format!(r#"{{"pooling_mode": [{}]}}"#, ["\"mean\""; 7].join(","));
    for wrong in ["{}", r#"{"pooling_mode": []}"#, r#"{"pooling_mode": [1]}"#, r#"{"pooling_mode": 1}"#, &seven] {
        std::fs::write(&pooling, wrong).expect("a file");
        let refused = common::builder().load(&folder);
        assert!(matches!(refused, Err(Error::Refused(report)) if report.exit_code == 10), "{wrong}");
    }
}

#[test]
fn an_encoder_refuses_to_generate_and_texts_that_are_too_long() {
    let model = load(fixtures().join("embeddings/bert"));
    let report = model.report();
    assert_eq!(report.verdict, Verdict::Compatible, "{report}");
    let summary = report.model.as_ref().expect("a model");
    assert!(summary.embeds.only && summary.embeds.pooling.as_deref() == Some("mean") && summary.rope.is_none());
    assert_eq!((summary.embeds.dimensions, summary.embeds.max_length), (16, Some(68)));
    assert_eq!(report.plan.as_ref().map(|plan| plan.kv_cache), Some(0), "nothing is cached");
    let generated = model.generate("the cat", &GenerateOptions::default()).and_then(|mut generation| generation.text());
    assert!(matches!(refusal(generated.expect_err("no head")), EmbedError::NoHead));
    assert!(matches!(refusal(model.all_logits(&[2, 3]).expect_err("no head")), EmbedError::NoHead));
    let long = "cat ".repeat(90);
    let error = model.embeddings(&["cat", &long], &EmbedOptions::default()).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::TooLong);
    assert!(matches!(refusal(error), EmbedError::TooLong { index: 1, tokens: 92, limit: 68, .. }));
    let none = model.embeddings(&[""; 0], &EmbedOptions::default()).expect("no vectors");
    assert_eq!((none.vectors().len(), none.dimensions()), (0, 16));
}

/// Every pooling of sentence-transformers, by itself and beside others, with and without the tokens of a prompt, as it computes
/// them in float64.
#[test]
fn poolings_are_those_of_sentence_transformers() {
    let truth = std::fs::read_to_string(fixtures().join("embeddings/poolings.json")).expect("the truth");
    let truth: serde_json::Value = serde_json::from_str(&truth).expect("the truth");
    let texts: Vec<&str> = truth["texts"].as_array().expect("texts").iter().filter_map(|text| text.as_str()).collect();
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("bert");
    copy_folder(&fixtures().join("embeddings/bert"), &folder);
    let cases = truth["cases"].as_array().expect("cases");
    for case in cases {
        std::fs::write(folder.join("1_Pooling/config.json"), case["pooling"].to_string()).expect("a file");
        let model = load(&folder);
        let mut options = EmbedOptions::default().truncate(true);
        options.prompt_name = case["prompt"].as_str().map(str::to_owned);
        let found = vectors(&model, &texts, &options);
        for (index, (text, found)) in texts.iter().zip(&found).enumerate() {
            let truth = case["vectors"][index].as_array().expect("a vector");
            assert_eq!(truth.len(), found.len(), "{case}");
            let far = found.iter().zip(truth).map(|(x, truth)| (f64::from(*x) - truth.as_f64().unwrap_or(9.0)).abs());
            let far = far.fold(0.0, f64::max);
            assert!(far < 2e-6, "{} {} {text:?}: {far:e}", case["pooling"], case["prompt"]);
            assert_eq!(&vectors(&model, &[text], &options)[0], found, "{text:?} in company");
        }
        let summary = &model.report().model.as_ref().expect("a model").embeds;
        assert_eq!(summary.dimensions, found[0].len());
    }
    assert_eq!(cases.len(), 13);
    // Of a text that is a prompt alone nothing is left.
    let qwen3 = temporary.path().join("qwen3-embedding");
    write_qwen3_embedding(&qwen3);
    let left_out = r#"{"pooling_mode": "lasttoken", "include_prompt": false}"#;
    std::fs::write(qwen3.join("1_Pooling/config.json"), left_out).expect("a file");
    let query = EmbedOptions::default().prompt_name("query");
    let error = load(&qwen3).embeddings(&["a", ""], &query).expect_err("only a prompt");
    assert!(matches!(refusal(error), EmbedError::OnlyPrompt { index: 1 }));
    // A decoder's tokens come in parts.
    let decoder = load(common::named("qwen3").folder.join("f32"));
    let long = "Once upon a time there was a baker. ".repeat(80);
    for pooling in [Pooling::Max, Pooling::WeightedMean, Pooling::MeanSqrtLen] {
        let options = EmbedOptions::default().pooling(pooling);
        let together = vectors(&decoder, &["a baker", &long], &options);
        assert_eq!(vectors(&decoder, &[&long], &options)[0], together[1], "{pooling}");
    }
}

/// `file` with `qwen3.pooling_type`, and a text that keeps the tensors at their alignment.
fn with_pooling_type(file: &Path, pooling: u32) -> Vec<u8> {
    let mut bytes = std::fs::read(file).expect("a file");
    let keys = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
    bytes[16..24].copy_from_slice(&(keys + 2).to_le_bytes());
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let (number, string) = (4_u32.to_le_bytes(), 8_u32.to_le_bytes());
    let pooling = [text("qwen3.pooling_type"), number.to_vec(), pooling.to_le_bytes().to_vec()].concat();
    let more = [pooling, text("x"), string.to_vec(), text("alignment")].concat();
    assert_eq!(more.len() % 32, 0);
    bytes.splice(24..24, more);
    bytes
}

/// llama.cpp's converter leaves the head of a reranker out: nothing tells such a file from one whose head is its embedding.
#[test]
fn a_gguf_file_for_vectors_without_a_head_generates_nothing() {
    let temporary = tempfile::tempdir().expect("a folder");
    let (file, source) = (temporary.path().join("a.gguf"), common::named("qwen3").folder.join("q8_0.gguf"));
    std::fs::write(&file, with_pooling_type(&source, 4)).expect("a file");
    let model = load(&file);
    let generated = model.generate("Once", &GenerateOptions::default()).and_then(|mut generation| generation.text());
    assert!(matches!(refusal(generated.expect_err("no head")), EmbedError::NoHead));
    let reranker = Reranker::new("{query}{document}", "a", "b");
    assert!(matches!(refusal(model.rank("a", &["b"], &reranker).expect_err("no head")), EmbedError::NoHead));
    assert!(matches!(
        refusal(model.embeddings(&["a"], &EmbedOptions::default()).expect_err("scores")),
        EmbedError::Unsupported { .. }
    ));
    std::fs::write(&file, with_pooling_type(&source, 3)).expect("a file");
    let named = EmbedOptions::default().pooling(Pooling::Last).normalize(true);
    assert_eq!(vectors(&load(&file), &["Once"], &EmbedOptions::default()), vectors(&load(source), &["Once"], &named));
}

/// More texts than the caches have pages for: the rest comes in the next step.
#[test]
fn many_short_texts_take_no_more_pages_than_there_are() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("qwen3-embedding");
    write_qwen3_embedding(&folder);
    let small = common::builder().context_length(256).sessions(2).load(&folder).expect("it fits");
    let texts: Vec<String> = (0..40).map(|n| format!("text {n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut sessions: Vec<_> = texts.iter().map(|_| small.session()).collect();
    let held = sessions.iter_mut().filter_map(|session| session.next_logits(&[5]).ok()).count();
    assert!(held < texts.len(), "{held} sessions have a page");
    drop(sessions);
    let whole = vectors(&load(&folder), &texts, &EmbedOptions::default());
    assert_eq!(vectors(&small, &texts, &EmbedOptions::default()), whole);
}

/// As the files of BGE say it, whose tokenizer does that itself.
#[test]
fn small_letters_before_an_uncased_tokenizer_change_nothing() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path().join("bert");
    copy_folder(&fixtures().join("embeddings/bert"), &folder);
    let file = folder.join("sentence_bert_config.json");
    std::fs::write(&file, r#"{"max_seq_length": 68, "do_lower_case": true}"#).expect("a file");
    let plain = load(fixtures().join("embeddings/bert"));
    let found = vectors(&load(&folder), &["The CAT sat."], &EmbedOptions::default());
    assert_eq!(found, vectors(&plain, &["the cat sat."], &EmbedOptions::default()));
    let config = folder.join("tokenizer_config.json");
    let cased = std::fs::read_to_string(&config)
        .expect("a file")
        .replace("\"do_lower_case\": true", "\"do_lower_case\": false");
    std::fs::write(&config, cased).expect("a file");
    assert!(matches!(
        refusal(load(&folder).embeddings(&["a"], &EmbedOptions::default()).expect_err("cased")),
        EmbedError::Unsupported { .. }
    ));
}
