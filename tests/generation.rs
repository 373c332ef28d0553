//! Options of a generation and of a load on the bundled model, as a program uses them.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

mod common;

use model_factory::{Error, FinishReason, GenerateOptions, Model, UnifiedModelFactory};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PROMPT: &str = "Once upon a time";

fn demo() -> PathBuf {
    common::fixtures().join("demo")
}

fn model() -> Model {
    UnifiedModelFactory::load(demo()).unwrap()
}

fn text(model: &Model, options: &GenerateOptions) -> String {
    model.generate(PROMPT, options).unwrap().text().unwrap()
}

#[test]
fn a_seed_repeats_its_text_and_others_differ() {
    let model = model();
    let warm = GenerateOptions::default().max_tokens(80).temperature(1.2);
    for options in [warm.clone(), warm.clone().top_k(40).top_p(0.95).min_p(0.02).presence_penalty(0.5)] {
        let texts: Vec<String> = (0..8).map(|seed| text(&model, &options.clone().seed(seed))).collect();
        for (seed, expected) in (0..).zip(&texts) {
            assert_eq!(text(&model, &options.clone().seed(seed)), *expected, "seed {seed}");
        }
        let mut distinct = texts.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
    }
    // A seed that was drawn is told, and repeats the text.
    let mut drawn = model.generate(PROMPT, &warm).unwrap();
    let first = drawn.text().unwrap();
    assert_eq!(text(&model, &warm.clone().seed(drawn.finish().1.seed)), first);
}

#[test]
fn greedy_needs_no_seed() {
    let model = model();
    let greedy = GenerateOptions::default().max_tokens(40);
    assert_eq!(text(&model, &greedy.clone().seed(1)), text(&model, &greedy.clone().seed(2)));
    let one = greedy.clone().temperature(1.0).top_k(1).seed(3);
    assert_eq!(text(&model, &one), text(&model, &greedy));
}

#[test]
fn penalties_end_a_repetition() {
    let model = model();
    let greta = "Greta ".repeat(8);
    let count = |options: &GenerateOptions| {
        let options = options.clone().max_tokens(60);
        let text = model.generate(greta.trim_end(), &options).unwrap().text().unwrap();
        text.matches("on the market square").count()
    };
    let plain = GenerateOptions::default();
    assert_eq!(count(&plain), 2, "the model repeats itself, or this test is of nothing");
    for options in [
        plain.clone().repetition_penalty(1.5),
        plain.clone().presence_penalty(2.0),
        plain.clone().frequency_penalty(2.0),
    ] {
        assert_eq!(count(&options), 1, "{options:?}");
    }
}

#[test]
fn a_stop_string_cuts_the_text_of_the_model() {
    let model = model();
    let greedy = GenerateOptions::default().max_tokens(60);
    let whole = text(&model, &greedy);
    let letters: Vec<(usize, char)> = whole.char_indices().collect();
    // Every stretch of three letters in the text ends it where it first occurs.
    for window in letters.windows(3).step_by(5) {
        let stop: String = window.iter().map(|(_, letter)| letter).collect();
        let mut generation = model.generate(PROMPT, &greedy.clone().stop("\u{1}").stop(&stop)).unwrap();
        assert_eq!(generation.text().unwrap(), whole.split(&stop).next().unwrap(), "{stop:?}");
        assert_eq!(generation.finish().0, Some(FinishReason::StopString(1)));
    }
}

/// The demo model's folder without its `tokenizer.json`.
fn without_tokenizer() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::copy(demo().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn with_tokenizer(path: &Path, tokenizer: &Path) -> Result<Model, Error> {
    UnifiedModelFactory::builder().tokenizer(tokenizer).load(path)
}

#[test]
fn a_given_tokenizer_takes_the_place_of_the_own_one() {
    let (folder, given) = (without_tokenizer(), demo().join("tokenizer.json"));
    assert_eq!(UnifiedModelFactory::load(folder.path()).unwrap_err().code(), 15);
    let options = GenerateOptions::default().max_tokens(80);

    let own = model();
    let other = with_tokenizer(folder.path(), &given).unwrap();
    assert_eq!(other.tokenizer().encode(PROMPT, true).unwrap(), own.tokenizer().encode(PROMPT, true).unwrap());
    assert_eq!(other.spec().tokenizer.stop_ids, own.spec().tokenizer.stop_ids);
    assert_eq!(text(&other, &options), text(&own, &options));
    assert!(other.spec().tokenizer.assumptions.iter().any(|line| line.contains("as given")));

    // A damaged one in the folder is not read.
    std::fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    assert_eq!(UnifiedModelFactory::load(folder.path()).unwrap_err().code(), 10);
    assert_eq!(text(&with_tokenizer(folder.path(), &given).unwrap(), &options), text(&own, &options));

    let file = common::fixtures().join("demo-q4_k_m.gguf");
    let (own, other) = (UnifiedModelFactory::load(&file).unwrap(), with_tokenizer(&file, &given).unwrap());
    let (own_spec, other_spec) = (&own.spec().tokenizer, &other.spec().tokenizer);
    assert_eq!((other_spec.bos, other_spec.add_bos, other_spec.eos), (own_spec.bos, own_spec.add_bos, own_spec.eos));
    assert!(own_spec.stop_ids.keys().eq(other_spec.stop_ids.keys()));
    assert_eq!(text(&other, &options), text(&own, &options));
}

#[test]
fn a_given_tokenizer_is_refused_as_the_own_one_would_be() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.json");
    std::fs::write(&damaged, "{").unwrap();
    let absent = folder.path().join("absent.json");
    for model in [demo(), common::fixtures().join("demo-q4_k_m.gguf")] {
        for (given, code) in [(damaged.as_path(), 10), (&absent, 1), (folder.path(), 10)] {
            let report = UnifiedModelFactory::builder().tokenizer(given).diagnose(&model);
            assert_eq!(report.exit_code, code, "{}: {report}", given.display());
            let error = with_tokenizer(&model, given).unwrap_err();
            assert!(matches!(error, Error::Refused(_)) && error.code() == code, "{error}");
        }
    }
}
