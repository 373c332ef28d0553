//! Sessions that become generations and come back, what of a prompt they computed, and rows of logits across the place where
//! a sequence is rotated in another way.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, load_demo};

use model_factory::decoder::Compute;
use model_factory::session::IntoGenerationError;
use model_factory::{Error, GenerateOptions, Session};

const PROMPT: &str = "Once upon a time there was";

fn short() -> GenerateOptions {
    GenerateOptions::default().max_tokens(12).temperature(0.7).seed(5)
}

#[test]
fn ids_become_an_owned_generation_as_their_text_does() {
    let model = load_demo();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let expected = model.generate(PROMPT, &short()).unwrap().text().unwrap();
    let mut session = model.session();
    let texts = [
        model.generate(&ids, &short()).unwrap().text().unwrap(),
        model.session().into_generation(&ids, &short()).unwrap().text().unwrap(),
        model.session().into_generation(PROMPT, &short()).unwrap().text().unwrap(),
        session.generate_ids(&ids, &short()).unwrap().text().unwrap(),
    ];
    assert_eq!(texts, [(); 4].map(|()| expected.clone()));
}

#[test]
fn a_generation_that_is_refused_gives_its_session_back_as_it_was() {
    let model = load_demo();
    let (vocab, context) = (model.spec().vocab, model.context_length());
    let mut session = model.session();
    let mut turn = session.generate(PROMPT, &short()).unwrap();
    turn.text().unwrap();
    let (held, bytes) = (session.ids().to_vec(), session.cache_bytes());
    type Expected = fn(&Error) -> bool;
    let table: [(&[u32], GenerateOptions, Expected); 6] = [
        (&[], short(), |error| matches!(error, Error::EmptyPrompt)),
        (&vec![7; context + 1], short(), |error| matches!(error, Error::ContextOverflow { .. })),
        (&[5, vocab as u32], short(), |error| matches!(error, Error::TokenOutOfVocabulary { .. })),
        (&[5], short().top_p(7.0), |error| matches!(error, Error::Option { option: "top_p", .. })),
        (&[5], short().logprobs(1000), |error| matches!(error, Error::Option { .. })),
        (&[5], short().stop(""), |error| matches!(error, Error::EmptyStopString { index: 0 })),
    ];
    for (prompt, options, expected) in table {
        let refused: IntoGenerationError = session.into_generation(prompt, &options).err().unwrap();
        assert!(expected(refused.error()), "{refused}");
        let (text, code) = (refused.to_string(), refused.error().code());
        let (error, back) = refused.into_parts();
        assert_eq!((error.to_string(), error.code()), (text, code));
        assert_eq!((back.ids(), back.cache_bytes()), (held.as_slice(), bytes), "{error}");
        session = back;
    }
    let refused = session.into_generation(PROMPT, &short().min_p(-1.0)).err().unwrap();
    session = refused.into_session();
    assert_eq!(session.ids(), held);
    // It goes on: nothing that it held is computed again.
    let longer = [held.as_slice(), &[9, 10]].concat();
    let mut more = session.into_generation(&longer, &short()).unwrap();
    more.text().unwrap();
    assert_eq!((more.finish().1.prompt_tokens, more.finish().1.cached_tokens), (2, held.len()));
}

#[test]
fn a_question_mark_makes_the_refusal_an_error() {
    fn continued(session: Session) -> Result<String, Error> {
        session.into_generation(PROMPT, &short().top_p(7.0))?.text()
    }
    assert!(matches!(continued(load_demo().session()), Err(Error::Option { option: "top_p", value: 7.0, .. })));
}

#[test]
fn timings_say_how_much_of_a_prompt_was_held() {
    let model = load_demo();
    let ids = model.tokenizer().encode_prompt(PROMPT).unwrap();
    let mut session = model.session();
    let mut counts = |prompt: &[u32]| {
        let mut generation = session.generate_ids(prompt, &short().max_tokens(1)).unwrap();
        generation.text().unwrap();
        let timings = generation.finish().1;
        (timings.cached_tokens, timings.prompt_tokens)
    };
    let other = [&ids[..3], &[77, 78]].concat();
    assert_eq!(counts(&ids), (0, ids.len()));
    assert_eq!(counts(&ids), (ids.len() - 1, 1), "the last is computed for its logits");
    assert_eq!(counts(&other), (3, 2), "the common part");
    assert_eq!(counts(&[1]), (0, 1));
}

/// What the docs of `Session::logits` say.
#[test]
fn rows_of_a_call_across_the_original_context_are_those_of_a_long_sequence() {
    let model = common::load(common::named("phi-3.5").folder.join("bf16"));
    let rotation = |length| model.decoder().expect("on the processor").rotation(length);
    let held = (1..4096).take_while(|length| rotation(*length) == rotation(1)).count();
    assert_eq!(held, 256, "the original context");
    let ids: Vec<u32> = common::tokens(held + 2, 320);
    let rows = |session: &mut Session, ids: &[u32]| session.logits(ids).unwrap().to_vec2::<f32>().unwrap();
    let short = rows(&mut model.session(), &ids[..held]);
    let long = rows(&mut model.session(), &ids[..held + 1]);
    assert_eq!(rows(&mut model.session(), &ids)[..=held], long, "the length of a long sequence decides nothing");
    // Position 0 is rotated by nothing; every later row sees keys that are.
    let differ = (1..held).filter(|position| short[*position] != long[*position]).count();
    assert_eq!(differ, held - 1);
    // In two calls the session holds the same in the end, and the rows of the first were those of a short sequence.
    let mut session = model.session();
    assert_eq!(rows(&mut session, &ids[..held]), short);
    assert_eq!(rows(&mut session, &ids[held..=held])[0], long[held]);
    assert_eq!(rows(&mut session, &ids[held + 1..])[0], rows(&mut model.session(), &ids)[held + 1]);
    session.truncate(held - 1);
    assert_eq!(rows(&mut session, &ids[held - 1..held])[0], short[held - 1], "and back");
}
