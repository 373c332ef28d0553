//! Speculation changes only the time: ids, text, log-probabilities and the session are those that come without it.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

use crate::common;

use common::bits;
use common::given::{Given, generate, kinds, on_gpu, options, repeating};
use common::spans::{Begun, watch_thread, watch_threads};
use model_factory::generate::{Step, StopTokens};
use model_factory::{
    CancellationToken, Error, FinishReason, GenerateOptions, Generation, KvDtype, Logits, Model, Piece, Session,
    Speculation,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

/// Guesses are computed at every length, whether they pay or not.
const COUNTS: [usize; 3] = [1, 4, 15];

fn demo() -> Model {
    watch_threads();
    common::load_demo()
}

fn guessing(options: &GenerateOptions, tokens: usize) -> GenerateOptions {
    options.clone().speculate(Speculation::Ngram).speculative_tokens(tokens)
}

/// Compares a generation without guesses to those with them; how many were computed, and how many accepted.
fn same(model: &Model, prompt: &[u32], options: &GenerateOptions, what: &str) -> (usize, usize) {
    let (expected, plain) = generate(model, prompt, options);
    assert_eq!((plain.guessed, plain.accepted), (0, 0));
    let (mut guessed, mut accepted) = (0, 0);
    for count in COUNTS {
        let (found, timings) = generate(model, prompt, &guessing(options, count));
        assert_eq!(found, expected, "{what}, {count} guesses a step, {options:?}");
        assert_eq!((timings.generated, timings.decode_steps), (plain.generated, plain.decode_steps));
        assert!(timings.accepted <= timings.guessed);
        guessed += timings.guessed;
        accepted += timings.accepted;
    }
    let (found, _) = generate(model, prompt, &options.clone().speculate(Speculation::Ngram));
    assert_eq!(found, expected, "{what}, as many guesses as pay, {options:?}");
    (guessed, accepted)
}

#[test]
fn every_family_generates_the_same() {
    watch_threads();
    let (mut files, mut guessed, mut accepted) = (0, 0, 0);
    let mut first = String::new();
    for fixture in common::all() {
        for file in fixture.expected.files.keys() {
            let Some(model) = common::load_where_it_runs(fixture.folder.join(file)) else { continue };
            // The first tokens of a case, three times: n-grams that occurred before.
            let case: &[u32] = &fixture.expected.cases["short"].tokens;
            let prompt: Vec<u32> = case.iter().take(6).cycle().take(18).copied().collect();
            // Other files of a family differ only in their dtype.
            let kinds = kinds(20).into_iter().take(if first == fixture.name() { 2 } else { 8 });
            first = fixture.name();
            for options in kinds {
                let counts = same(&model, &prompt, &options, &format!("{}/{file}", fixture.name()));
                guessed += counts.0;
                accepted += counts.1;
            }
            files += 1;
        }
    }
    println!("{files} files: {guessed} guessed, {accepted} accepted");
    assert!(files >= 20);
    if !on_gpu() {
        assert!(accepted > 1000 && guessed > accepted + 1000, "{guessed} guessed, {accepted} accepted");
    }
}

#[test]
fn a_text_that_repeats_is_accepted_as_guessed() {
    let model = demo();
    let prompt = repeating(&model);
    let (_, timings) = generate(&model, &prompt, &guessing(&options(60), 8));
    if on_gpu() {
        return assert_eq!((timings.guessed, timings.accepted), (0, 0));
    }
    assert!(
        timings.accepted > 5 && timings.guessed > timings.accepted + 5,
        "some are right and some are not: {timings:?}"
    );
    for options in kinds(60) {
        same(&model, &prompt, &options, "demo");
    }
}

/// What was accepted took no pass: each span of a token is one.
#[test]
fn an_accepted_guess_saves_a_step() {
    let model = demo();
    let prompt = repeating(&model);
    for options in kinds(60) {
        for options in [guessing(&options, 1), guessing(&options, 5), options.speculate(Speculation::Ngram)] {
            let passes = Rc::new(Cell::new(0));
            let count = Rc::clone(&passes);
            let watch = move |span: &Begun| count.set(count.get() + usize::from(span.name == "decode"));
            let timings = watch_thread(watch, || {
                let mut generation = model.generate(&prompt, &options).unwrap();
                generation.text().unwrap();
                generation.finish().1
            });
            assert_eq!(passes.get(), timings.decode_steps - timings.accepted, "{options:?} {timings:?}");
        }
    }
}

#[test]
fn it_ends_within_accepted_guesses_as_it_would_without() {
    let model = demo();
    let prompt = repeating(&model);
    let plain = generate(&model, &prompt, &options(60)).0;
    let mut accepted = 0;
    for most in 1..40 {
        let counts = same(&model, &prompt, &options(most), "max_tokens");
        accepted += counts.1;
    }
    // Every stop string of three letters of the text, and every token of it as one that ends it.
    let text: String = plain.pieces.iter().map(|piece| piece.text.as_str()).collect();
    let letters: Vec<char> = text.chars().collect();
    for window in letters.windows(3).step_by(7) {
        let options = options(60).stop(window.iter().collect::<String>());
        let (found, _) = generate(&model, &prompt, &options);
        assert!(matches!(found.finish, Some(FinishReason::StopString(0))));
        accepted += same(&model, &prompt, &options, "a stop string").1;
    }
    for place in (0..plain.ids.len()).step_by(5) {
        let stop = StopTokens::from_iter([plain.ids[place]]);
        let given = |options: &GenerateOptions| {
            let (mut session, tokenizer) = (model.session(), Arc::clone(model.tokenizer()));
            let options = options.clone().ignore_stop(false);
            let mut generation =
                Generation::new(&mut session, tokenizer, &[], prompt.clone(), stop.clone(), &options).unwrap();
            let pieces: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
            let (finish, timings) = generation.finish();
            assert_eq!(finish, Some(FinishReason::Stop(plain.ids[place])));
            ((pieces, session.ids().to_vec(), session.cache_bytes()), timings.accepted)
        };
        let expected = given(&options(60)).0;
        for count in COUNTS {
            let found = given(&guessing(&options(60), count));
            assert_eq!(found.0, expected);
            accepted += found.1;
        }
    }
    assert!(accepted > 1000 || on_gpu(), "{accepted}");
    // The context ends in the middle of what is guessed; nothing lies beyond it.
    for context in [prompt.len() + 1, prompt.len() + 2, prompt.len() + 17, 256] {
        let model = common::builder().context_length(context).load(common::demo()).unwrap();
        let (found, _) = generate(&model, &prompt, &options(400));
        assert_eq!(found.finish, Some(FinishReason::Context));
        same(&model, &prompt, &options(400), "the context");
    }
}

#[test]
fn after_any_piece_the_session_is_as_it_would_be_without() {
    let model = demo();
    let prompt = repeating(&model);
    let after = |options: &GenerateOptions, pieces: usize| {
        let cancel = CancellationToken::new();
        let mut generation = model.generate(&prompt, &options.clone().cancel(&cancel)).unwrap();
        let taken: Vec<Piece> = generation.by_ref().take(pieces).map(Result::unwrap).collect();
        let ids = generation.ids().to_vec();
        cancel.cancel();
        let rest: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
        let finish = generation.finish().0;
        let mut session = generation.into_inner();
        let held = session.ids().to_vec();
        let logits = bits(&mut session, &[7]);
        session.truncate(held.len() - 1);
        let bytes = session.cache_bytes();
        let again = bits(&mut session, &[9]);
        (taken, ids, rest, finish, held, logits, bytes, again)
    };
    for pieces in 1..30 {
        assert_eq!(after(&guessing(&options(60), 6), pieces), after(&options(60), pieces), "{pieces} pieces");
    }
    // The next turn of a conversation begins after what was taken.
    let mut session = model.session();
    let mut generation = session.generate_ids(&prompt, &guessing(&options(60), 6)).unwrap();
    let ids: Vec<u32> = generation.by_ref().take(9).filter_map(|piece| piece.unwrap().token).collect();
    drop(generation);
    let whole = [prompt.as_slice(), &ids, &[40]].concat();
    let mut next = session.generate_ids(&whole, &guessing(&options(30), 6)).unwrap();
    next.text().unwrap();
    let (ids, timings) = (next.ids().to_vec(), next.finish().1);
    assert_eq!(timings.cached_tokens, whole.len() - 2);
    assert_eq!(ids, generate(&model, &whole, &options(30)).0.ids);
}

#[test]
fn caches_of_every_dtype_hold_the_same() {
    watch_threads();
    for kv in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
        let Ok(model) = common::builder().kv_cache(kv).load(common::demo()) else {
            assert!(on_gpu());
            continue;
        };
        let (guessed, accepted) = same(&model, &repeating(&model), &options(80), "the cache");
        assert!(accepted > 20 && guessed > accepted || on_gpu(), "{kv}: {accepted} of {guessed}");
    }
}

/// A sequence that grows past the original context is rotated again, whatever was guessed before.
#[test]
fn guesses_do_not_cross_the_limit_of_a_rotation() {
    watch_threads();
    let folder = tempfile::tempdir().unwrap();
    let phi = common::named("phi-3.5").folder.join("bf16");
    for file in std::fs::read_dir(&phi).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(phi.join("config.json")).unwrap();
    let changed =
        text.replace("\"original_max_position_embeddings\": 256", "\"original_max_position_embeddings\": 100");
    assert_ne!(text, changed);
    std::fs::write(folder.path().join("config.json"), changed).unwrap();
    let model = common::load(folder.path());
    let prompt: Vec<u32> = (0..80).map(|index| 40 + index % 5).collect();
    let mut accepted = 0;
    // This model repeats itself where it is made to.
    let loops = options(50).frequency_penalty(-2.0);
    for begun in 60..80 {
        accepted += same(&model, &prompt[..begun], &loops, "longrope").1;
        same(&model, &prompt[..begun], &loops.clone().temperature(0.5).seed(begun as u64), "longrope");
    }
    assert!(accepted > 200 || on_gpu(), "{accepted}");
}

#[test]
fn where_rows_depend_on_each_other_nothing_is_guessed() {
    watch_threads();
    let model = common::load(common::fixtures().join("int8/llama-dynamic-tensor"));
    let prompt: Vec<u32> = [5, 6, 7, 8].repeat(5);
    assert_eq!(same(&model, &prompt, &options(40), "one scale for all rows"), (0, 0));
    let report = model.report();
    assert!(report.batching.is_some() && report.to_json().contains("\"batching\": "), "the report says why");
    assert!(report.to_string().contains("batching   off, with prefix sharing and speculation: "));
    let model = common::load(common::fixtures().join("int8/llama-channel-token"));
    let (guessed, _) = same(&model, &prompt, &options(40), "a scale for each row");
    assert_eq!(model.report().batching.is_some(), on_gpu());
    assert_eq!(model.report().to_json().contains("batching"), on_gpu());
    assert!(guessed > 0 || on_gpu());
}

/// A step of one's own that knows nothing of guesses.
struct Own(Session);

impl Step for Own {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits, Error> {
        self.0.next_logits_unless(tokens, cancel)
    }

    fn room(&self) -> usize {
        self.0.room()
    }
}

#[test]
fn a_step_of_ones_own_computes_what_it_is_asked_for() {
    let model = demo();
    let prompt = repeating(&model);
    let expected = generate(&model, &prompt, &options(40)).0.ids;
    let (own, options) = (Own(model.session()), guessing(&options(40), 8));
    let tokenizer = Arc::clone(model.tokenizer());
    let mut generation = Generation::new(own, tokenizer, &[], prompt, StopTokens::default(), &options).unwrap();
    generation.text().unwrap();
    assert_eq!(generation.ids(), expected);
    let timings = generation.finish().1;
    assert_eq!((timings.guessed, timings.accepted), (0, 0));
}

#[test]
fn a_session_is_told_guesses_by_hand() {
    let model = demo();
    let prompt = repeating(&model);
    let mut plain = model.session();
    plain.forward(&prompt).unwrap();
    let expected: Vec<Vec<u32>> = [5, 6, 7, 8].map(|token| bits(&mut plain, &[token])).to_vec();
    let mut session = model.session();
    session.forward(&prompt).unwrap();
    let vocab = model.spec().vocab as u32;
    let guessed = session.guess(&[6, 7, 9, vocab, 3], None);
    assert_eq!(guessed, if on_gpu() { 0 } else { 3 }, "no id that is none");
    let bytes = session.cache_bytes();
    for (token, expected) in [5, 6, 7, 8].into_iter().zip(expected) {
        assert_eq!(bits(&mut session, &[token]), expected, "{token}");
    }
    assert_eq!((session.ids(), session.cache_bytes()), (plain.ids(), bytes));
    // Those of another length, or of a prompt, are none.
    session.guess(&[1, 2, 3], None);
    session.truncate(prompt.len());
    session.guess(&[1, 2, 3], None);
    let whole = session.logits(&[5, 6, 7, 8]).unwrap().to_vec2::<f32>().unwrap();
    let mut again = model.session();
    again.forward(&prompt).unwrap();
    assert_eq!(again.logits(&[5, 6, 7, 8]).unwrap().to_vec2::<f32>().unwrap(), whole);
}

#[test]
fn other_texts_are_repeated_too() {
    let model = demo();
    let prompt = model.tokenizer().encode_prompt("Once upon a time").unwrap();
    let said = generate(&model, &prompt, &options(40)).0;
    let text: String = said.pieces.iter().map(|piece| piece.text.as_str()).collect();
    let with =
        guessing(&options(40), 6).speculate_from("another text").speculate_from(format!("Once upon a time{text}"));
    let (found, timings) = generate(&model, &prompt, &with);
    assert_eq!(found, said);
    assert!(timings.accepted > 25 || on_gpu(), "{timings:?}");
    let refused = model.generate(&prompt, &options(5).speculative_tokens(16));
    assert!(matches!(refused, Err(Error::Option { option: "speculative_tokens", .. })));
}

#[test]
fn company_changes_nothing() {
    let model = demo();
    let prompt = repeating(&model);
    let expected: Vec<Given> = kinds(60).iter().map(|options| generate(&model, &prompt, options).0).collect();
    for round in 0..6 {
        thread::scope(|scope| {
            for (options, expected) in kinds(60).into_iter().zip(&expected) {
                let (model, prompt) = (&model, &prompt);
                scope.spawn(move || {
                    let options =
                        if round % 2 == 0 { guessing(&options, 5) } else { options.speculate(Speculation::Ngram) };
                    assert_eq!(generate(model, prompt, &options).0, *expected);
                });
            }
        });
    }
}
