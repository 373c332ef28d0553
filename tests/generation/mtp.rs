//! Guesses by the model's own multi-token prediction head: what it computes is what the formulas say, and text is that without it.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

mod made;
mod oracle;

use crate::common;
use candle_core::DType;
use common::archives::path as path_of;
use common::bits;
use common::given::{generate, kinds, options};
use made::{Reads, changed, counting, gguf_with, next, random_head, with_random_head};
use model_factory::decoder::{Compute, OutputRows, PassOptions, Segment};
use model_factory::error::DraftError;
use model_factory::generate::{Step, StopTokens, Timings};
use model_factory::session::WeightsDigest;
use model_factory::{
    CancellationToken, Error, FinishReason, GenerateOptions, Generation, KvDtype, Logits, Model, Session, Speculation,
};
use oracle::Oracle;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// On the processor: only there are such models.
fn builder() -> model_factory::ModelBuilder {
    common::builder().device(model_factory::DeviceChoice::Cpu)
}

fn load(path: impl AsRef<Path>) -> Model {
    builder().mtp(true).load(path).unwrap()
}

fn guessing(options: &GenerateOptions, tokens: usize) -> GenerateOptions {
    options.clone().speculate(Speculation::Mtp).speculative_tokens(tokens)
}

/// What the head was asked: a sequence, how many of its last tokens are guesses, and its logits.
type Asked = (Vec<u32>, usize, Vec<f32>);

/// A session that tells what its head says.
struct Watched(Session, Vec<Asked>);

impl Step for Watched {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits, Error> {
        self.0.next_logits_unless(tokens, cancel)
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn guess(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
        self.0.guess(tokens, likely)
    }

    fn draft_tokens(&self, most: usize, likely: Option<f64>) -> usize {
        self.0.draft_tokens(most, likely)
    }

    fn draft(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>, Error> {
        let logits = self.0.draft(sequence, cancel)?;
        if let Some(logits) = &logits {
            let guesses = sequence.len() - self.0.len() - 1;
            self.1.push((sequence.to_vec(), guesses, logits.to_vec()));
        }
        Ok(logits)
    }
}

/// What the head of `model` says in each step of a greedy text after `prompt`.
fn asked(model: &Model, prompt: &[u32], tokens: usize) -> Vec<Asked> {
    let mut session = model.session();
    // It reads along from the first draft on.
    assert!(session.draft(&[1], &CancellationToken::new()).unwrap().is_none());
    let (tokenizer, options) = (Arc::clone(model.tokenizer()), guessing(&options(tokens), 3));
    let step = Watched(session, Vec::new());
    let mut generation =
        Generation::new(step, tokenizer, &[], prompt.to_vec(), StopTokens::default(), &options).unwrap();
    generation.text().unwrap();
    generation.into_inner().1
}

/// The hidden states of `ids` as the output head reads them.
fn hidden_states(model: &Model, ids: &[u32]) -> Vec<Vec<f64>> {
    let decoder = model.decoder().unwrap();
    let mut cache = decoder.cache();
    let segment =
        Segment { tokens: ids.into(), cache: &mut cache, reach: ids.len(), second_text: None, rows: OutputRows::All };
    let output = decoder.pass(&mut [segment], PassOptions::HIDDEN_STATES, &CancellationToken::new()).unwrap();
    output.hidden_states.chunks(model.spec().hidden).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
}

/// The largest difference between the logits of the head and the oracle's, over all that it was asked.
fn difference(model: &Model, asked: &[Asked], oracle: impl Fn() -> Oracle) -> f64 {
    let mut largest: f64 = 0.0;
    for (sequence, guesses, logits) in asked {
        let known = sequence.len() - guesses;
        let states = hidden_states(model, &sequence[..known - 1]);
        let mut oracle = oracle();
        let mut last = (Vec::new(), Vec::new());
        for (position, token) in sequence.iter().enumerate().skip(1) {
            let state = states.get(position - 1).unwrap_or(&last.0);
            last = oracle.read(*token, state);
        }
        let differences = last.1.iter().zip(logits).map(|(expected, found)| (expected - f64::from(*found)).abs());
        largest = differences.fold(largest, f64::max);
    }
    largest
}

/// Sums of single precision in another order: the logits are of a magnitude of 5.
const TOLERANCE: f64 = 2e-4;

#[test]
fn it_says_what_the_formulas_say() {
    for name in ["qwen3.5", "qwen3.5-moe", "qwen3-next"] {
        let tensors = made::tensors(name);
        let head = random_head(&tensors, 7);
        let model = load(with_random_head(name).path());
        let prompt: Vec<u32> = (0..45).map(|index| (index * 37 + 11) % 250).collect();
        let asked = asked(&model, &prompt, 12);
        assert!(
            asked.len() > 20 && asked.iter().filter(|(_, guesses, _)| *guesses == 2).count() > 5,
            "{}",
            asked.len()
        );
        let embedding = &tensors["model.embed_tokens.weight"];
        let output = tensors.get("lm_head.weight").unwrap_or(embedding);
        let found = difference(&model, &asked, || Oracle::new(&head, embedding, output));
        println!("{name}: {found:e}");
        assert!(found < TOLERANCE, "{name}: {found}");
    }
}

#[test]
fn it_says_the_same_in_gguf() {
    let tensors = made::tensors("qwen3.5");
    let head = random_head(&tensors, 9);
    let folder = tempfile::tempdir().unwrap();
    let path = gguf_with(&head, "", folder.path());
    let model = load(&path);
    let prompt: Vec<u32> = (0..45).map(|index| (index * 37 + 11) % 250).collect();
    let asked = asked(&model, &prompt, 12);
    let embedding = tensors["model.embed_tokens.weight"].to_dtype(DType::F16).unwrap();
    let found = difference(&model, &asked, || Oracle::new(&head, &embedding, &embedding));
    println!("GGUF: {found:e}");
    assert!(asked.len() > 20 && found < TOLERANCE, "{found}");
}

/// Compares a generation without guesses to those with some at every step and as many as pay; the timings of the former.
fn same(model: &Model, prompt: &[u32], options: &GenerateOptions, what: &str) -> Vec<Timings> {
    let (expected, plain) = generate(model, prompt, options);
    assert_eq!((plain.guessed, plain.accepted), (0, 0));
    let paying = options.clone().speculate(Speculation::Mtp);
    assert_eq!(generate(model, prompt, &paying).0, expected, "{what}, as many guesses as pay, {options:?}");
    let with = [1, 4, 15].map(|count| {
        let (found, timings) = generate(model, prompt, &guessing(options, count));
        assert_eq!(found, expected, "{what}, {count} guesses a step, {options:?}");
        assert_eq!((timings.generated, timings.decode_steps), (plain.generated, plain.decode_steps));
        timings
    });
    with.to_vec()
}

/// A head that is right by construction saves steps, and one that reads the wrong position is never right.
#[test]
fn a_head_that_is_right_is_accepted() {
    let model = load(counting(Reads::Embedding).path());
    let prompt: Vec<u32> = vec![7, 200, 31];
    let (given, _) = generate(&model, &prompt, &options(40));
    let expected: Vec<u32> = std::iter::successors(Some(next(31)), |token| Some(next(*token))).take(40).collect();
    assert_eq!(given.ids, expected);
    for timings in same(&model, &prompt, &options(40), "right") {
        println!("{timings:?}");
        assert!(timings.accepted == timings.guessed && timings.accepted >= 19, "{timings:?}");
    }
    let model = load(counting(Reads::Hidden).path());
    for timings in same(&model, &prompt, &options(40), "wrong") {
        assert!(timings.accepted == 0 && timings.guessed > 20, "{timings:?}");
    }
}

#[test]
fn text_is_what_it_is_without() {
    let folder = tempfile::tempdir().unwrap();
    let head = random_head(&made::tensors("qwen3.5"), 9);
    gguf_with(&head, "", folder.path());
    let made = ["qwen3.5", "qwen3.5-moe", "qwen3-next"].map(with_random_head);
    let right = counting(Reads::Embedding);
    let paths = made.iter().chain([&right]).map(|folder| folder.path().to_owned());
    let prompt: Vec<u32> = (0..70).map(|index| (index * 37 + 11) % 250).collect();
    for path in paths.chain([folder.path().join("model.gguf")]) {
        let model = load(&path);
        for options in kinds(40) {
            let what = path.display().to_string();
            let timings = same(&model, &prompt, &options, &what);
            assert!(timings.iter().all(|timings| timings.guessed > 0), "{what} {timings:?}");
        }
    }
}

#[test]
fn it_ends_within_guesses_as_it_would_without() {
    let folder = counting(Reads::Embedding);
    let model = load(folder.path());
    for most in (1..20).chain([33]) {
        for timings in same(&model, &[7, 200, 31], &options(most), "max_tokens") {
            assert_eq!(timings.accepted, timings.guessed);
        }
    }
    let plain = generate(&model, &[7, 200, 31], &options(60)).0;
    let pieces: Vec<&str> =
        plain.pieces.iter().map(|piece| piece.text.as_str()).filter(|text| !text.is_empty()).collect();
    let mut stopped = 0;
    for text in pieces.into_iter().skip(3).step_by(5) {
        let options = options(60).stop(text);
        stopped += usize::from(generate(&model, &[7, 200, 31], &options).0.ids.len() < 60);
        same(&model, &[7, 200, 31], &options, "a stop string");
    }
    assert!(stopped > 3, "{stopped}");
    // A context that ends first.
    let short = builder().mtp(true).context_length(50).load(folder.path()).unwrap();
    for timings in same(&short, &[7, 200, 31], &options(100), "the context") {
        assert!(timings.accepted == timings.guessed && timings.accepted > 20, "{timings:?}");
    }
}

#[test]
fn threads_caches_and_kernels_change_nothing() {
    let folder = with_random_head("qwen3.5");
    let prompt: Vec<u32> = (0..300).map(|index| (index * 37 + 11) % 250).collect();
    for (threads, kv_dtype) in [(1, KvDtype::F32), (2, KvDtype::F16), (3, KvDtype::Q8_0)] {
        let model = builder().mtp(true).threads(threads).kv_cache(kv_dtype).load(folder.path()).unwrap();
        for options in kinds(20).into_iter().take(4) {
            same(&model, &prompt, &options, "threads and caches");
        }
        let without = builder().threads(threads).kv_cache(kv_dtype).load(folder.path()).unwrap();
        assert_eq!(generate(&model, &prompt, &options(20)).0, generate(&without, &prompt, &options(20)).0);
    }
}

/// Of a long prompt the head reads the last chunk, and guesses go across the ends of pages and of what states reach back to.
#[test]
fn long_prompts_are_read_from_their_last_chunk() {
    let model = load(counting(Reads::Embedding).path());
    let prompt: Vec<u32> = (0..1300).map(|index| (index * 37 + 11) % 250).collect();
    for begun in [511, 512, 513, 760, 1024, 1300] {
        for timings in same(&model, &prompt[..begun], &options(40), "long") {
            assert!(timings.accepted == timings.guessed && timings.accepted >= 17, "{begun} {timings:?}");
        }
    }
    let random = load(with_random_head("qwen3.5").path());
    same(&random, &prompt, &options(40), "long");
}

/// Turns of a conversation, what is cut back, forked, saved and restored: the head goes on, or begins again, and no text differs.
#[test]
fn a_session_goes_on_and_back() {
    let folder = counting(Reads::Embedding);
    let model = load(folder.path());
    let (plain, with) = (options(17), guessing(&options(17), 4));
    let file = folder.path().join("session");
    let turns: [&[u32]; 4] = [&[7, 200, 31], &[50, 51], &[90; 40], &[3]];
    let run = |options: &GenerateOptions| {
        let (mut session, mut prompt, mut given, mut accepted) = (model.session(), Vec::new(), Vec::new(), 0);
        for (turn, more) in turns.iter().enumerate() {
            prompt.extend_from_slice(more);
            let mut generation = session.generate_ids(&prompt, options).unwrap();
            generation.text().unwrap();
            let ids = generation.ids().to_vec();
            accepted += generation.finish().1.accepted;
            drop(generation);
            prompt.extend_from_slice(&ids);
            given.push(ids);
            match turn {
                0 => session = session.fork().unwrap(),
                1 => {
                    prompt.truncate(12);
                    session.truncate(12);
                }
                2 => {
                    session.save(&file, WeightsDigest::Sampled).unwrap();
                    session = model.restore(&file).unwrap();
                }
                _ => {}
            }
        }
        (given, bits(&mut session, &[9]), accepted)
    };
    let (expected, found) = (run(&plain), run(&with));
    assert_eq!((&found.0, &found.1), (&expected.0, &expected.1));
    assert!(expected.2 == 0 && found.2 > 30, "{}", found.2);
}

#[test]
fn company_and_shared_prefixes_change_nothing() {
    let folder = with_random_head("qwen3.5");
    let model = builder().mtp(true).prefix_caching(true).sessions(16).load(folder.path()).unwrap();
    let alone = builder().load(folder.path()).unwrap();
    let prompt: Vec<u32> = (0..600).map(|index| (index * 37 + 11) % 250).collect();
    let expected: Vec<Vec<u32>> = kinds(30).iter().map(|options| generate(&alone, &prompt, options).0.ids).collect();
    for _ in 0..3 {
        thread::scope(|scope| {
            for (options, expected) in kinds(30).into_iter().zip(&expected) {
                let (model, prompt) = (&model, &prompt);
                scope.spawn(move || assert_eq!(generate(model, prompt, &guessing(&options, 5)).0.ids, *expected));
            }
        });
    }
    // A batch by hand between steps with guesses.
    let (mut one, mut two) = (model.session(), model.session());
    let mut generation = one.generate_ids(&prompt, &guessing(&options(10), 3)).unwrap();
    generation.text().unwrap();
    assert_eq!(generation.ids(), &generate(&alone, &prompt, &options(10)).0.ids);
    drop(generation);
    let rows = Session::batch(&mut [(&mut one, &[5]), (&mut two, &[7, 8])]).unwrap().to_vec2::<f32>().unwrap();
    let mut plain = alone.session();
    plain.forward(one.ids().split_last().unwrap().1).unwrap();
    assert_eq!(rows[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), bits(&mut plain, &[5]));
}

/// After a generation that was cancelled before its first token, the next one guesses.
#[test]
fn a_cancel_leaves_a_session_that_goes_on() {
    let model = load(counting(Reads::Embedding).path());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut session = model.session();
    let stopped = guessing(&options(5), 3).cancel(&cancel);
    let mut generation = session.generate_ids(&[7, 200, 31], &stopped).unwrap();
    generation.text().unwrap();
    assert_eq!(generation.finish().0, Some(FinishReason::Cancelled));
    drop(generation);
    let mut generation = session.generate_ids(&[7, 200, 31], &guessing(&options(20), 3)).unwrap();
    generation.text().unwrap();
    let timings = generation.finish().1;
    assert!(timings.accepted > 10 && timings.accepted == timings.guessed, "{timings:?}");
}

/// The text of why `path` is refused with its head, and the exit code.
fn refused(path: impl AsRef<Path>) -> (u8, String) {
    match builder().mtp(true).load(path).unwrap_err() {
        Error::Refused(report) => (report.exit_code, report.reason.clone()),
        other => panic!("{other}"),
    }
}

#[test]
fn what_cannot_guess_is_refused_by_name() {
    for (path, says) in [
        ("qwen3.5/bf16", "there is no multi-token prediction head: tensor mtp.fc.weight is not stored"),
        (
            "qwen3.5/q8_0.gguf",
            "there is no multi-token prediction head: tensor blk.4.nextn.eh_proj.weight is not stored",
        ),
        ("llama-3.1/bf16", "there is no multi-token prediction head: models of the family llama have none"),
    ] {
        let (code, reason) = refused(path_of(path));
        assert!(code == 11 && reason.contains(says), "{code} {reason}");
    }
    let missing = changed("qwen3.5", |tensors, _| {
        tensors.extend(random_head(tensors, 7));
        tensors.remove("mtp.layers.0.mlp.up_proj.weight");
    });
    let (code, reason) = refused(missing.path());
    assert!(code == 15 && reason.contains("mtp.layers.0.mlp.up_proj.weight"), "{code} {reason}");
    for (key, value) in [("mtp_num_hidden_layers", json!(2)), ("mtp_use_dedicated_embeddings", json!(true))] {
        let other = changed("qwen3.5", |tensors, config| {
            tensors.extend(random_head(tensors, 7));
            config[key] = value;
        });
        let (code, reason) = refused(other.path());
        assert!(code == 11 && reason.contains(key), "{code} {reason}");
        builder().load(other.path()).unwrap();
    }
    let both = builder().mtp(true).draft(path_of("qwen3.5/bf16")).load(path_of("qwen3.5/bf16"));
    assert!(matches!(both.unwrap_err(), Error::Draft(error) if *error == DraftError::Both));
}

/// Without being asked for it is not loaded, and the report says that it is there and by what it is.
#[test]
fn it_is_loaded_where_it_is_asked_for() {
    let folder = with_random_head("qwen3.5");
    let (plain, with) = (builder().load(folder.path()).unwrap(), load(folder.path()));
    let refused = plain.generate("a", &options(5).speculate(Speculation::Mtp)).unwrap_err();
    assert!(matches!(&refused, Error::Draft(error) if **error == DraftError::NoPredictor), "{refused}");
    let said = |model: &Model| model.spec().assumptions.iter().any(|line| line.contains("ModelBuilder::mtp"));
    assert!(said(&plain) && !said(&with));
    assert!(plain.spec().unused_tensors.iter().all(|name| name.starts_with("mtp.")));
    assert_eq!((plain.spec().unused_tensors.len(), with.spec().unused_tensors.len()), (15, 0));
    assert_eq!(plain.spec().parameters, with.spec().parameters);
    let plans = [&plain, &with].map(|model| model.report().plan.clone().unwrap());
    assert_eq!((plans[0].draft(), plans[1].draft_weights, plans[0].total + plans[1].draft()), (0, 0, plans[1].total));
    // Keys and values of one layer, of two heads of 16 elements.
    let cache = plans[1].context.next_multiple_of(256) as u64 * 2 * 2 * 16 * 4;
    assert!(plans[1].draft_memory > cache && plans[1].draft_memory < cache + (4 << 20), "{}", plans[1].draft_memory);
    assert!(with.report().to_string().contains("prediction head "), "{}", with.report());
}

/// A GGUF file whose head has no norm of its own has that of the model, as in llama.cpp.
#[test]
fn the_norm_of_a_head_may_be_the_models() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = made::tensors("qwen3.5");
    let mut head = random_head(&tensors, 9);
    let model = load(gguf_with(&head, "shared_head_norm", folder.path()));
    let prompt: Vec<u32> = (0..45).map(|index| (index * 37 + 11) % 250).collect();
    let asked = asked(&model, &prompt, 12);
    head.insert("mtp.norm.weight".into(), tensors["model.norm.weight"].clone());
    let embedding = tensors["model.embed_tokens.weight"].to_dtype(DType::F16).unwrap();
    let found = difference(&model, &asked, || Oracle::new(&head, &embedding, &embedding));
    assert!(asked.len() > 20 && found < TOLERANCE, "{found}");
}
