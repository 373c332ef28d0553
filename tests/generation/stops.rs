//! A generation ends on each stop id of a model, and on nothing else.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common;

use model_factory::{FinishReason, GenerateOptions, Model};
use std::collections::BTreeSet;

/// Generations to draw before a token that never came is one that cannot come. Of 500 equally probable tokens one stays
/// away from 20,000 draws once in e^40; one generation has 10 of them at least, on average, where a tenth of the ids end it.
const GENERATIONS: u64 = 2_000;

/// The tokens of `model` that ended a generation, and those that did not: each made likeliest in turn, as far as a bias does that,
/// then drawn evenly from the whole vocabulary until all came.
fn ends_and_others(model: &Model, tokens: usize) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut ends, mut others) = (BTreeSet::new(), BTreeSet::new());
    let likeliest = |id| GenerateOptions::default().temperature(0.0).max_tokens(1).logit_bias(id, 100.0);
    let even = |seed| GenerateOptions::default().temperature(1e6).top_k(0).top_p(1.0).max_tokens(60).seed(seed);
    let vocabulary = 0..model.tokenizer().vocab_len() as u32;
    let mut session = model.session();
    for options in vocabulary.map(likeliest).chain((0..GENERATIONS).map(even)) {
        if ends.len() + others.len() == tokens {
            break;
        }
        let mut generation = session.generate_ids(&[3], &options).expect("a prompt of one token");
        generation.text().expect("the model computes");
        others.extend(generation.ids());
        match generation.finish().0 {
            Some(FinishReason::Stop(id)) => drop(ends.insert(id)),
            Some(FinishReason::Length) => {}
            reason => panic!("ended by {reason:?}"),
        }
    }
    (ends, others)
}

#[test]
fn generation_ends_on_the_stop_ids_and_on_nothing_else() {
    println!("{:<40} {:>7} {:>7}  stop ids", "file", "tokens", "others");
    for fixture in common::all() {
        let files: Vec<&String> = fixture.expected.files.keys().collect();
        let folder = files.iter().find(|name| !name.contains(".gguf"));
        let gguf = files.iter().find(|name| name.contains(".gguf"));
        for name in folder.into_iter().chain(gguf) {
            let model = common::load(fixture.folder.join(name));
            let tokens = model.tokenizer().vocab_len() - model.tokenizer().unused_ids().len();
            let (ends, others) = ends_and_others(&model, tokens);
            let label = format!("{}/{name}", fixture.name());
            println!("{label:<40} {tokens:>7} {:>7}  {ends:?}", others.len());
            assert!(ends.iter().eq(&fixture.expected.stop_ids), "{label} ended on {ends:?}");
            assert!(ends.is_disjoint(&others), "{label}: a stop id did not end a generation");
            assert_eq!(ends.len() + others.len(), tokens, "{label}: {others:?}");
        }
    }
}
