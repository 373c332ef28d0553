//! A thought that has used its budget up ends, with the same bits however it is computed.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, archives, bits};

use common::given::{Given, generate, kinds, options};
use model_factory::session::WeightsDigest;
use model_factory::{ChatOptions, DeviceChoice, GenerateOptions, Message, Model, Speculation};
use std::thread;

/// Of noise that nothing ends a thought by itself in so few tokens: none, one, a few, and more than there are.
const BUDGETS: [usize; 5] = [0, 1, 9, 30, 1000];

/// Models by the marks that they think between: tokens, and letters of the vocabulary. Their templates open the thought.
const MODELS: [&str; 3] = ["r1-distill-qwen/bf16", "r1-0528-qwen3/q8_0.gguf", "olmo-3/f32"];

fn load(path: &str) -> (Model, Vec<u32>) {
    let path = archives::path(path);
    // Only on the processor there are draft models; this one is always right about itself.
    let builder = common::builder().device(DeviceChoice::Cpu).draft(&path);
    let model = builder.load(&path).expect("a fixture loads");
    let mut prompt = model.prompt_ids(&[Message::user("Hi")], &ChatOptions::default()).unwrap();
    if model.tokenizer().decode(&prompt).trim_end().ends_with("<think>") {
        return (model, prompt);
    }
    prompt.extend(model.tokenizer().encode("<think>\n", false).unwrap());
    (model, prompt)
}

fn text(given: &Given, thinking: bool) -> String {
    given.pieces.iter().filter(|piece| piece.thinking == thinking).map(|piece| &*piece.text).collect()
}

/// Budgets with options of every kind.
fn budgets(max_tokens: usize) -> impl Iterator<Item = GenerateOptions> {
    BUDGETS
        .into_iter()
        .flat_map(move |tokens| kinds(max_tokens).into_iter().map(move |kind| kind.thinking_budget(tokens)))
}

#[test]
fn a_thought_has_no_more_tokens_than_its_budget() {
    let (mut ended, mut open) = (0, 0);
    for path in MODELS {
        let (model, prompt) = load(path);
        let closing = model.tokenizer().encode("</think>", false).unwrap();
        for options in budgets(60) {
            let budget = options.thinking_budget.unwrap();
            let (given, _) = generate(&model, &prompt, &options);
            let thought = text(&given, true);
            let first = given.ids.windows(closing.len()).position(|ids| ids == closing);
            // Up to three tokens complete a character; fixtures of noise are often within one.
            if let Some(first) = first.filter(|first| *first < 50) {
                assert!(first <= budget + 3 && thought.contains("</think>"), "{path}, {budget}: {first} {thought:?}");
                ended += 1;
            } else {
                assert!(budget >= 30, "{path}, {options:?}: {thought:?}");
                open += 1;
            }
        }
    }
    assert!(ended > 60 && open > 0, "{ended} {open}");
}

#[test]
fn guesses_and_steps_of_several_tokens_change_nothing() {
    for path in MODELS {
        let (model, prompt) = load(path);
        let mut forced = 0;
        for options in budgets(40) {
            let (expected, timings) = generate(&model, &prompt, &options);
            forced += timings.forced;
            for speculate in [Speculation::Ngram, Speculation::Draft] {
                for tokens in [None, Some(1), Some(5), Some(15)] {
                    let mut guessing = options.clone().speculate(speculate);
                    guessing.speculative_tokens = tokens;
                    assert_eq!(generate(&model, &prompt, &guessing).0, expected, "{path}, {guessing:?}");
                }
            }
        }
        assert!(forced > 0, "{path}");
        // Each token has a step of its own where log-probabilities are asked for.
        for tokens in BUDGETS {
            let of = |options: GenerateOptions| generate(&model, &prompt, &options.thinking_budget(tokens));
            let ((joined, _), (single, timings)) = (of(options(40)), of(options(40).logprobs(2)));
            assert_eq!((joined.ids, joined.logits, timings.forced), (single.ids, single.logits, 0), "{path}, {tokens}");
        }
    }
}

#[test]
fn company_and_shared_prefixes_change_nothing() {
    let (alone, prompt) = load(MODELS[0]);
    let all: Vec<GenerateOptions> = budgets(40).collect();
    let expected: Vec<Given> = all.iter().map(|options| generate(&alone, &prompt, options).0).collect();
    let path = archives::path(MODELS[0]);
    let shared = common::builder().device(DeviceChoice::Cpu).prefix_caching(true).load(path).unwrap();
    for model in [&alone, &shared] {
        for round in 0..2 {
            thread::scope(|scope| {
                for (options, expected) in all.iter().zip(&expected) {
                    let prompt = &prompt;
                    scope.spawn(move || {
                        let options = options.clone().cache_salt("us").speculate(if round == 0 {
                            Speculation::Off
                        } else {
                            Speculation::Ngram
                        });
                        let found = generate(model, prompt, &options).0;
                        assert_eq!((found.pieces, found.logits), (expected.pieces.clone(), expected.logits.clone()));
                    });
                }
            });
        }
    }
}

#[test]
fn each_of_several_answers_has_the_budget() {
    let (model, prompt) = load(MODELS[0]);
    let options = options(30).temperature(1.0).seed(5).thinking_budget(7);
    let answers = model.answers(&prompt, 3, &options).unwrap();
    for (seed, answer) in (5..).zip(&answers) {
        let alone = model.generate(&prompt, &options.clone().seed(seed)).unwrap().answer().unwrap();
        assert_eq!(*answer, alone);
        assert!(!answer.text.is_empty(), "{answer:?}");
    }
    assert_ne!(answers[0], answers[1]);
}

/// The budget is of one answer: a session that goes on, also after it was saved, has the whole of the next one's.
#[test]
fn a_session_goes_on_after_a_thought_that_was_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (model, prompt) = load(MODELS[0]);
    let first = options(20).thinking_budget(5);
    let mut generation = model.generate(&prompt, &first).unwrap();
    generation.text().unwrap();
    let mut session = generation.into_inner();
    let path = folder.path().join("a.session");
    session.save(&path, WeightsDigest::Sampled).unwrap();
    let mut restored = model.restore(&path).unwrap();
    let next = model.tokenizer().encode("And then?<think>\n", false).unwrap();
    let (second, whole) = (options(20).thinking_budget(6), [session.ids(), &next].concat());
    let found = [&mut session, &mut restored].map(|session| {
        let mut generation = session.generate_ids(&whole, &second).unwrap();
        let pieces: Vec<_> = generation.by_ref().map(Result::unwrap).collect();
        drop(generation);
        (pieces, bits(session, &next))
    });
    assert_eq!(found[0], found[1]);
    let close = model.tokenizer().added_token("</think>").unwrap();
    let at = found[0].0.iter().position(|piece| piece.token == Some(close)).expect("it was ended");
    assert!((6..=9).contains(&at), "{at}");
}
