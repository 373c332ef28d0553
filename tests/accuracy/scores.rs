//! How probable models find texts, compared with the float64 truth of their logits.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

use crate::common;

use common::{fixtures, load};
use model_factory::{Error, GenerateOptions, Prompt};

/// The logarithm of the softmax of `logits` at `id`, in double precision.
fn log_softmax(logits: &[f32], id: u32) -> f64 {
    let best = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - best).exp()).sum();
    f64::from(logits[id as usize] - best) - sum.ln()
}

#[test]
fn scores_are_those_of_the_truth() {
    let (mut compared, mut worst) = (0, 0.0_f64);
    for fixture in common::all() {
        for (name, file) in fixture.expected.files.iter().filter(|(_, file)| file.dtype == "F32") {
            let Some(model) = common::load_where_it_runs(fixture.folder.join(name)) else { continue };
            for (case, of_transformers) in &file.reference_error {
                let tokens = &fixture.expected.cases[case];
                let truth = fixture.truth(&file.truth, case);
                let vocab = truth.len() / (tokens.tokens.len() - tokens.first_kept);
                let score = model.score(Prompt::Ids(&tokens.tokens)).unwrap();
                assert_eq!(score.ids, tokens.tokens[1..]);
                // Logits are within twice transformers' own relative error of the truth (tests/accuracy.rs), all of them together.
                // A logarithm of a softmax moves by no more than twice the largest change of a logit.
                let norm = truth.iter().map(|logit| f64::from(*logit).powi(2)).sum::<f64>().sqrt();
                let bound = 2.0 * 2.0 * of_transformers * norm;
                for (row, logits) in truth.chunks(vocab).enumerate() {
                    let place = tokens.first_kept + row;
                    let Some(next) = tokens.tokens.get(place + 1) else { continue };
                    let off = (score.logprobs[place] - log_softmax(logits, *next)).abs();
                    assert!(off <= bound, "{}/{name} {case}, token {place}: {off:e} > {bound:e}", fixture.name());
                    (compared, worst) = (compared + 1, worst.max(off));
                }
            }
        }
    }
    println!("{compared} tokens, the furthest off by {worst:.1e}");
    assert!(compared > 500, "{compared}");
}

#[test]
fn a_continuation_has_the_score_that_it_has_in_the_whole_text() {
    let model = load(fixtures().join("demo"));
    let prompt = "Once upon a time there was a";
    let texts = [" fox", " little dog that lost its ball.", " the"];
    let scores = model.score_continuations(prompt, &texts).unwrap();
    let known = model.tokenizer().encode_prompt(prompt).unwrap().len();
    for (text, score) in texts.iter().zip(&scores) {
        let whole = model.score(&format!("{prompt}{text}")).unwrap();
        assert_eq!(score.ids, whole.ids[known - 1..], "{text}");
        assert_eq!(score.logprobs, whole.logprobs[known - 1..], "the same bits: {text}");
    }
    let options = GenerateOptions::default().temperature(0.0).max_tokens(4);
    let greedy = model.generate(prompt, &options).unwrap().text().unwrap();
    let scores = model.score_continuations(prompt, &[greedy.as_str(), " window"]).unwrap();
    assert_eq!([scores[0].is_greedy, scores[1].is_greedy], [true, false]);
    assert!(scores[0].perplexity() < scores[1].perplexity());
    for error in [model.score("").err(), model.score_continuations(prompt, &[""]).err()] {
        assert!(matches!(error, Some(Error::EmptyPrompt)), "{error:?}");
    }
}

#[test]
fn the_demo_tells_its_story() {
    let model = load(fixtures().join("demo"));
    let options = GenerateOptions::default().temperature(0.0).max_tokens(40);
    let text = model.generate("Once upon a time", &options).unwrap().text().unwrap();
    assert!(text.starts_with(" there was a captain called Greta, who had a basket of apples."), "{text}");
}

#[test]
fn several_answers_are_those_of_their_seeds_alone() {
    let model = load(common::archives::path("qwen3/f32"));
    let options = GenerateOptions::default().temperature(1.0).seed(5).max_tokens(24).logprobs(0);
    let answers = model.answers("Hello", 6, &options).unwrap();
    for (seed, answer) in (5..).zip(&answers) {
        let alone = model.generate("Hello", &options.clone().seed(seed)).unwrap().answer().unwrap();
        assert_eq!(*answer, alone, "seed {seed}");
    }
    assert!(answers.windows(2).all(|pair| pair[0] != pair[1]));
    let best = model.best_of("Hello", 6, &options).unwrap();
    assert!(answers.iter().all(|answer| answer.mean_logprob() <= best.mean_logprob()) && answers.contains(&best));
    for n in [0, 129] {
        assert!(matches!(model.answers("Hello", n, &options), Err(Error::Option { option: "n", .. })), "{n}");
    }
}

#[test]
fn samplers_that_look_back_keep_the_ids_with_guesses_and_in_company() {
    use model_factory::Speculation;
    use model_factory::generate::Dry;
    let model = load(fixtures().join("demo"));
    let options = GenerateOptions::default()
        .temperature(1.0)
        .seed(3)
        .max_tokens(80)
        .dry(Dry { allowed_length: 1, multiplier: 4.0, ..Dry::default() })
        .xtc(0.5, 0.1)
        .min_tokens(60)
        .logit_bias(260, 2.0);
    let ids = |options: &GenerateOptions| {
        let mut generation = model.generate("Once upon a time", options).unwrap();
        generation.text().unwrap();
        generation.ids().to_vec()
    };
    let alone = ids(&options);
    assert!(alone.len() >= 60);
    assert_ne!(alone, ids(&options.clone().dry(Dry { multiplier: 0.0, ..Dry::default() })), "DRY changes what comes");
    for guesses in [1, 4, 15] {
        assert_eq!(ids(&options.clone().speculate(Speculation::Ngram).speculative_tokens(guesses)), alone, "{guesses}");
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| ids(&options))).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == alone));
    });
}
