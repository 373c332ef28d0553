//! Options of a generation and of a load on the bundled model, as a program uses them.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, demo};

use model_factory::diagnostics::DType;
use model_factory::diagnostics::spec::{RouterScore, Sampling};
use model_factory::{Error, FinishReason, GenerateOptions, Model, UnifiedModelFactory};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PROMPT: &str = "Once upon a time";

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
fn a_prompt_that_cannot_fit_is_refused_before_it_is_encoded() {
    let model = model();
    // One word: to encode it would take 100 bytes for each of its own, and minutes.
    let prompt = "x".repeat(50_000_000);
    let least = model.tokenizer().least_tokens(&prompt);
    assert!(least > model.context_length(), "{least}");
    let error = model.generate(&prompt, &GenerateOptions::default()).err().unwrap();
    assert!(matches!(error, Error::ContextOverflow { asked, .. } if asked == least), "{error}");
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
fn what_the_options_leave_open_is_as_the_model_ships_it() {
    let fixture = common::named("tinyllama");
    let model = common::load(fixture.folder.join("f16"));
    let shipped = &model.spec().sampling;
    assert_eq!(shipped.to_string(), "temperature 0.6, top-p 0.9, top-k 50");
    let open = GenerateOptions::default().max_tokens(40);
    let spelled = open.clone().temperature(0.6).top_p(0.9).top_k(50);
    for seed in 0..8 {
        assert_eq!(text(&model, &open.clone().seed(seed)), text(&model, &spelled.clone().seed(seed)));
    }
    let others = [
        ("temperature", open.clone().temperature(0.0)),
        ("temperature", open.clone().temperature(3.0)),
        ("top_k", open.clone().temperature(3.0).top_k(2)),
        ("top_p", open.clone().top_p(0.05)),
    ];
    for (option, other) in others {
        let differ =
            (0..8).any(|seed| text(&model, &open.clone().seed(seed)) != text(&model, &other.clone().seed(seed)));
        assert!(differ, "{option} has no effect");
    }
    // The bundled model ships no way to draw: it is greedy, until somebody asks for what only a draw has.
    let draws = |options: GenerateOptions| options.sampling.or(&self::model().spec().sampling).draws();
    assert!(!draws(open.clone()) && draws(open.clone().top_p(0.9)) && !draws(open.top_p(0.9).temperature(0.0)));
    assert_eq!(self::model().spec().sampling, Sampling::default());
}

/// The logarithms of the softmax of one row of the truth.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from(logit - best).exp()).sum();
    row.iter().map(|logit| f64::from(logit - best) - sum.ln()).collect()
}

#[test]
fn log_probabilities_are_those_of_the_model_whatever_the_options() {
    let fixture = common::named("qwen3");
    let model = common::load(fixture.folder.join("f32"));
    let case = &fixture.expected.cases["short"];
    let truth = fixture.truth("f32", "short");
    let vocab = model.spec().vocab;
    let usual = GenerateOptions::default().max_tokens(1).logprobs(5);
    let (mut compared, mut unlikely) = (0, 0);
    for (row, end) in truth.chunks_exact(vocab).zip(case.first_kept + 1..) {
        let expected = log_softmax(row);
        for options in [usual.clone().temperature(0.0), usual.clone().temperature(9.0).top_k(0).repetition_penalty(1.5)]
        {
            let mut session = model.session();
            let mut generation = session.generate_ids(&case.tokens[..end], &options.seed(end as u64)).unwrap();
            let Some(piece) = generation.next().transpose().unwrap() else { continue };
            let (Some(token), Some(found)) = (piece.token, piece.logprobs) else { continue };
            assert_eq!(found.top.len(), 5);
            assert!(found.top.is_sorted_by(|a, b| a.1 >= b.1));
            // The error of F32 arithmetic in logits of this size; another token's would be off by tenths.
            for (token, logprob) in found.top.iter().copied().chain([(token, found.chosen)]) {
                assert!((logprob - expected[token as usize]).abs() < 1e-4, "token {token}: {logprob}");
            }
            unlikely += usize::from(found.top.iter().all(|(likely, _)| *likely != token));
            compared += 1;
        }
    }
    assert!(compared > 20 && unlikely > 5, "{compared} compared, {unlikely} of them unlikely");
    let many = GenerateOptions::default().logprobs(21);
    assert!(matches!(model.generate(PROMPT, &many), Err(Error::Option { option: "logprobs", .. })));
    // Without the option there are none.
    let plain = GenerateOptions::default().max_tokens(1);
    assert!(model.generate(PROMPT, &plain).unwrap().next().unwrap().unwrap().logprobs.is_none());
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

/// Numbers of one expert in the router of the last layer of experts, whose output is NaN or infinite then: the others would be
/// chosen in its place, and the text would be another.
#[test]
fn a_router_that_is_not_finite_ends_like_logits_that_are_not() {
    let (mut rules, mut gguf) = (BTreeSet::new(), 0);
    for fixture in common::all() {
        for name in ["bf16", "f32", "q8_0.gguf"].into_iter().filter(|name| fixture.expected.files.contains_key(*name)) {
            let source = fixture.folder.join(name);
            let model = common::load(&source);
            let prompt = &fixture.expected.greedy.values().next().expect("a prompt").prompt;
            let generate = |model: &Model| {
                let options = GenerateOptions::default().max_tokens(2);
                model.session().generate_ids(prompt, &options).and_then(|mut generation| generation.text())
            };
            let Some(experts) = model.spec().weights.layers.iter().rev().find_map(|layer| layer.experts()) else {
                continue;
            };
            generate(&model).unwrap();
            let router = &experts.router.weight;
            let row = (router.bytes / router.shape[0]) as usize;
            let numbers: [&[u8]; 2] = match router.dtype {
                DType::F32 => [&[0, 0, 0xc0, 0x7f], &[0, 0, 0x80, 0x7f]],
                DType::BF16 => [&[0xc0, 0x7f], &[0x80, 0x7f]],
                dtype => panic!("a router of {dtype}"),
            };
            for number in numbers {
                let folder = tempfile::tempdir().unwrap();
                let (copy, weights) = copied(&source, folder.path());
                let mut bytes = std::fs::read(&weights).unwrap();
                // The second of the experts.
                let at = router.offset as usize + row;
                bytes[at..at + row].copy_from_slice(&number.repeat(row / number.len()));
                std::fs::write(&weights, bytes).unwrap();
                let result = generate(&common::load(&copy));
                let told = matches!(result, Err(Error::NonFiniteLogits { .. }));
                assert!(told, "{} {name}, {number:x?}: {result:?}", fixture.name());
            }
            gguf += usize::from(name.ends_with("gguf"));
            rules.insert(match experts.routing.score {
                RouterScore::Softmax => "softmax",
                RouterScore::SoftmaxOfChosen => "softmax of the chosen",
                RouterScore::Sigmoid => "sigmoid",
                RouterScore::SparseMixer { .. } => "sparse mixer",
            });
        }
    }
    assert!(rules.len() == 4 && gguf >= 8, "{rules:?}, {gguf} of GGUF");
}

/// A copy in `folder` of the model at `path`, and the file of its weights.
fn copied(path: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    if path.is_file() {
        let copy = folder.join("model.gguf");
        std::fs::copy(path, &copy).unwrap();
        return (copy.clone(), copy);
    }
    for file in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    (folder.into(), folder.join("model.safetensors"))
}
