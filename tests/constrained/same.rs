//! The same ids however a constrained answer is computed.

use crate::common::{self, archives};
use crate::{Answer, answer, drawing, qwen3, schemas};
use model_factory::generate::{Constraint, Sampler, Step, StopTokens};
use model_factory::session::WeightsDigest;
use model_factory::{
    CancellationToken, Error, GenerateOptions, Generation, Grammar, Logits, Model, Session, Speculation,
};
use std::sync::Arc;
use std::thread;

const PROMPT: &str = "A value, and a value, and a value: ";

/// A session that computes every token by itself.
struct OneByOne(Session);

impl Step for OneByOne {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits, Error> {
        self.0.next_logits_unless(tokens, cancel)
    }

    fn room(&self) -> usize {
        Step::room(&self.0)
    }
}

/// The ids, and how many steps were taken, where no token is skipped.
fn one_by_one(model: &Model, options: &GenerateOptions) -> (Vec<u32>, usize) {
    let tokenizer = Arc::clone(model.tokenizer());
    let prompt = tokenizer.encode_prompt(PROMPT).unwrap();
    let stop = StopTokens::from(&model.spec().tokenizer);
    let mut options = options.clone();
    options.sampling = options.sampling.or(&model.spec().sampling);
    let mut generation = Generation::new(OneByOne(model.session()), tokenizer, &[], prompt, stop, &options).unwrap();
    generation.text().unwrap();
    let timings = generation.finish().1;
    assert_eq!(timings.forced, 0);
    (generation.ids().to_vec(), timings.decode_steps)
}

fn grammars() -> Vec<Grammar> {
    let mut grammars: Vec<Grammar> = schemas().into_iter().map(Grammar::json_schema).collect();
    grammars.push(Grammar::choice(&["a value", "a value, and a value", "none"]));
    grammars.push(Grammar::regex("(and a value, ){2,6}[0-9]{3}"));
    grammars
}

#[test]
fn forced_tokens_take_no_step_and_change_no_id() {
    let model = qwen3();
    let (mut forced, mut skipped) = (0, 0);
    let variants: [fn(GenerateOptions) -> GenerateOptions; 6] = [
        |options| options,
        |options| options.temperature(0.0),
        |options| options.top_k(3).top_p(0.9),
        |options| options.min_p(0.2).temperature(2.0),
        |options| options.repetition_penalty(1.3).presence_penalty(1.0).frequency_penalty(0.5),
        |options| options.ignore_stop(true),
    ];
    for grammar in grammars() {
        for (seed, variant) in variants.iter().enumerate() {
            let options = variant(drawing(&grammar, seed as u64));
            let (found, (ids, steps)) = (answer(&model, PROMPT, &options), one_by_one(&model, &options));
            assert_eq!(found.ids, ids, "{:?} {options:?}", found.text);
            forced += found.forced;
            skipped += steps.saturating_sub(found.steps);
        }
    }
    assert!(forced > 500 && skipped > 400, "{forced} tokens, {skipped} steps");
}

#[test]
fn log_probabilities_are_of_every_token() {
    let model = qwen3();
    for grammar in grammars() {
        let options = drawing(&grammar, 3);
        let expected = answer(&model, PROMPT, &options).ids;
        let pieces: Vec<_> =
            model.generate(PROMPT, &options.logprobs(2)).unwrap().map(|piece| piece.unwrap()).collect();
        assert_eq!(pieces.iter().filter_map(|piece| piece.token).collect::<Vec<u32>>(), expected);
        assert!(pieces.iter().filter(|piece| piece.token.is_some()).all(|piece| piece.logprobs.is_some()));
    }
}

#[test]
fn company_changes_nothing() {
    let model = qwen3();
    let grammars = grammars();
    let alone: Vec<Answer> =
        (0..).zip(&grammars).map(|(seed, grammar)| answer(&model, PROMPT, &drawing(grammar, seed))).collect();
    for round in 0..3 {
        let together: Vec<Answer> = thread::scope(|scope| {
            let tasks: Vec<_> = (0..)
                .zip(&grammars)
                .map(|(seed, grammar)| {
                    scope.spawn({
                        let model = &model;
                        move || answer(model, PROMPT, &drawing(grammar, seed))
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        assert_eq!(together, alone, "round {round}");
    }
}

#[test]
fn batches_by_hand_have_the_same_ids() {
    let model = qwen3();
    let grammars = &grammars()[..16];
    let prompt = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let sampling = |seed| drawing(&grammars[0], seed).sampling;
    let begin = |(seed, grammar)| {
        let stop = StopTokens::from(&model.spec().tokenizer);
        let constraint = Constraint::new(model.tokenizer(), grammar, stop).unwrap();
        let sampler = Sampler::new(&sampling(seed).or(&model.spec().sampling), model.tokenizer().vocab_len()).unwrap();
        (
            constraint,
            sampler.without(model.tokenizer().unused_ids()).unwrap(),
            model.session(),
            prompt.clone(),
            Vec::new(),
        )
    };
    let mut all: Vec<_> = (0..).zip(grammars).map(begin).collect();
    let mut running: Vec<usize> = (0..all.len()).collect();
    while !running.is_empty() {
        let mut steps: Vec<(&mut Session, &[u32])> = all
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| running.contains(index))
            .map(|(_, (_, _, session, input, _))| (session, input.as_slice()))
            .collect();
        let rows = Session::batch_logits(&mut steps).unwrap();
        let mut still = Vec::new();
        for (row, index) in running.iter().enumerate() {
            let (constraint, sampler, _, input, ids) = &mut all[*index];
            if let Some(token) = constraint.sample(sampler, rows.rows().nth(row).unwrap()).unwrap() {
                ids.push(token);
                *input = vec![token];
                if !constraint.is_ended() {
                    still.push(*index);
                }
            }
        }
        running = still;
    }
    for ((seed, grammar), (.., ids)) in (0..).zip(grammars).zip(&all) {
        assert_eq!(*ids, answer(&model, PROMPT, &drawing(grammar, seed)).ids);
    }
}

#[test]
fn guesses_obey_the_grammar_and_change_no_id() {
    let folder = archives::path("qwen3");
    let model = common::builder().draft(folder.join("bf16")).load(folder.join("f32")).unwrap();
    let mut accepted = [0, 0];
    for (seed, grammar) in (0..).zip(grammars()) {
        let options = drawing(&grammar, seed);
        let expected = answer(&model, PROMPT, &options).ids;
        for (kind, speculation) in [Speculation::Ngram, Speculation::Draft].into_iter().enumerate() {
            for count in [1, 4, 15] {
                let mut generation =
                    model.generate(PROMPT, &options.clone().speculate(speculation).speculative_tokens(count)).unwrap();
                generation.text().unwrap();
                assert_eq!(generation.ids(), expected, "{speculation:?} {count} {grammar:?}");
                accepted[kind] += generation.finish().1.accepted;
            }
        }
    }
    assert!(accepted.iter().all(|count| *count > 20), "{accepted:?}");
}

#[test]
fn a_session_knows_no_grammar() {
    let model = qwen3();
    let grammar = Grammar::choice(&["yes", "no"]);
    let mut generation = model.generate(PROMPT, &drawing(&grammar, 1)).unwrap();
    generation.text().unwrap();
    let ids = [model.tokenizer().encode_prompt(PROMPT).unwrap(), generation.ids().to_vec()].concat();
    let free = GenerateOptions::default().max_tokens(20).temperature(0.0);
    let mut session = generation.into_inner();
    let file = tempfile::tempdir().unwrap();
    session.save(file.path().join("session"), WeightsDigest::Sampled).unwrap();
    let goes_on = |session: &mut Session| {
        let mut generation = session.generate(&ids, &free).unwrap();
        generation.text().unwrap();
        generation.ids().to_vec()
    };
    let expected = goes_on(&mut model.session());
    assert_eq!(goes_on(&mut session), expected);
    assert_eq!(goes_on(&mut model.restore(file.path().join("session")).unwrap()), expected);
}
