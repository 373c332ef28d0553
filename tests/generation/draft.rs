//! Guesses by a draft model change only the time: ids, text, log-probabilities and the session are those that come without
//! it. Not for `TEST_DEVICE`: a draft model next to a model on a GPU is refused.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, demo};

use common::bits;
use common::given::{Given, generate, kinds, on_gpu, options, repeating};
use common::spans::{Begun, watch_thread, watch_threads};
use model_factory::error::DraftError;
use model_factory::generate::Timings;
use model_factory::{CancellationToken, Error, FinishReason, GenerateOptions, Model, ModelBuilder, Piece, Speculation};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;

fn small_demo() -> PathBuf {
    common::fixtures().join("demo-q4_k_m.gguf")
}

/// On the processor: only there are draft models.
fn builder() -> ModelBuilder {
    watch_threads();
    common::builder().device(model_factory::DeviceChoice::Cpu)
}

fn load(path: impl AsRef<Path>, draft: impl Into<PathBuf>) -> Model {
    builder().draft(draft).load(path).unwrap()
}

fn guessing(options: &GenerateOptions, tokens: usize) -> GenerateOptions {
    options.clone().speculate(Speculation::Draft).speculative_tokens(tokens)
}

/// Compares a generation without guesses to those with some at every step and as many as pay; the timings of the former.
fn same(model: &Model, prompt: &[u32], options: &GenerateOptions, what: &str) -> Vec<Timings> {
    let (expected, plain) = generate(model, prompt, options);
    assert_eq!((plain.guessed, plain.accepted), (0, 0));
    let paying = options.clone().speculate(Speculation::Draft);
    let (found, _) = generate(model, prompt, &paying);
    assert_eq!(found, expected, "{what}, as many guesses as pay, {options:?}");
    let with = [1, 4, 15].map(|count| {
        let (found, timings) = generate(model, prompt, &guessing(options, count));
        assert_eq!(found, expected, "{what}, {count} guesses a step, {options:?}");
        assert_eq!((timings.generated, timings.decode_steps), (plain.generated, plain.decode_steps));
        assert!(timings.accepted <= timings.guessed);
        timings
    });
    with.to_vec()
}

/// With the draws of the generation what it guesses of its own logits is what is drawn of them.
#[test]
fn a_model_is_right_about_itself() {
    let model = load(demo(), demo());
    let prompt = repeating(&model);
    for options in kinds(60) {
        for timings in same(&model, &prompt, &options, "demo") {
            let expected = timings.decode_steps / 2;
            assert!(timings.accepted == timings.guessed && timings.accepted >= expected, "{options:?} {timings:?}");
        }
    }
}

#[test]
fn another_model_is_right_at_times() {
    let models = |name: &str| common::archives::path(name);
    // Random weights agree with themselves in another dtype, and with no others: the first number is the least that is right.
    let pairs = [
        (500, demo(), small_demo()),
        (500, small_demo(), demo()),
        (500, models("llama-3.1/bf16"), models("llama-3.1/q8_0.gguf")),
        (0, models("llama-3.2/bf16"), common::fixtures().join("int8/llama-dynamic-tensor")),
        (0, models("qwen3/bf16"), models("qwen2.5/f16")),
    ];
    for (least, path, draft) in pairs {
        let model = load(&path, &draft);
        let prompt: Vec<u32> = (40..60).collect();
        let what = format!("{} for {}", draft.display(), path.display());
        let timings: Vec<Timings> =
            kinds(40).iter().flat_map(|options| same(&model, &prompt, options, &what)).collect();
        let sum = |of: fn(&Timings) -> usize| timings.iter().map(of).sum::<usize>();
        let (guessed, accepted) = (sum(|timings| timings.guessed), sum(|timings| timings.accepted));
        println!("{what}: {accepted} of {guessed}");
        assert!(accepted >= least && guessed > accepted, "{what}: {accepted} of {guessed}");
    }
}

/// What a converter wrote into a GGUF file and what the checkpoint has are one vocabulary.
#[test]
fn vocabularies_are_compared_across_formats() {
    let mut pairs = 0;
    for fixture in common::all() {
        let (ggufs, checkpoints): (Vec<PathBuf>, Vec<PathBuf>) = fixture
            .expected
            .files
            .keys()
            .map(|file| fixture.folder.join(file))
            .partition(|path| path.extension().is_some_and(|extension| extension == "gguf"));
        let (Some(gguf), Some(checkpoint)) = (ggufs.first(), checkpoints.first()) else { continue };
        // A draft is cut back by every wrong guess, which a state is not to every position.
        const WITH_STATES: [&str; 14] = [
            "bamba",
            "falcon-h1",
            "granitehybrid",
            "jamba",
            "kimi-linear",
            "lfm2",
            "lfm2moe",
            "mamba",
            "mamba2",
            "nemotron_h",
            "olmo_hybrid",
            "qwen35",
            "qwen35moe",
            "qwen3next",
        ];
        if WITH_STATES.contains(&&*fixture.expected.family) {
            let refused = builder().draft(checkpoint).load(gguf).unwrap_err();
            assert!(
                matches!(&refused, Error::Draft(error) if matches!(**error, DraftError::Alone { .. })),
                "{refused}"
            );
        } else {
            load(gguf, checkpoint);
            load(checkpoint, gguf);
            pairs += 1;
        }
    }
    println!("{pairs} pairs");
    assert!(pairs >= 8, "{pairs}");
}

#[test]
fn it_ends_within_guesses_as_it_would_without() {
    let model = load(demo(), small_demo());
    let prompt = repeating(&model);
    let plain = generate(&model, &prompt, &options(60)).0;
    for most in (1..20).chain([33]) {
        same(&model, &prompt, &options(most), "max_tokens");
    }
    let text: String = plain.pieces.iter().map(|piece| piece.text.as_str()).collect();
    let letters: Vec<char> = text.chars().collect();
    for window in letters.windows(3).step_by(17) {
        let options = options(60).stop(window.iter().collect::<String>());
        assert!(matches!(generate(&model, &prompt, &options).0.finish, Some(FinishReason::StopString(0))));
        same(&model, &prompt, &options, "a stop string");
    }
}

/// What was accepted took no pass: each span of a token outside of the draft model is one.
#[test]
fn an_accepted_guess_saves_a_step() {
    let model = load(demo(), demo());
    let prompt = repeating(&model);
    let passes = Rc::new(Cell::new(0));
    let count = Rc::clone(&passes);
    let watch = move |span: &Begun| {
        count.set(count.get() + usize::from(span.name == "decode" && span.parent != Some("draft")));
    };
    let timings = watch_thread(watch, || {
        let mut generation = model.generate(&prompt, &guessing(&options(61), 5)).unwrap();
        generation.text().unwrap();
        generation.finish().1
    });
    assert_eq!((timings.decode_steps, timings.accepted, passes.get()), (60, 50, 10));
}

/// The tokens that a draft model computes while `body` runs.
fn drafted<R>(body: impl FnOnce() -> R) -> (usize, R) {
    let tokens = Rc::new(Cell::new(0));
    let count = Rc::clone(&tokens);
    let watch = move |span: &Begun| {
        if span.name == "draft" {
            count.set(count.get() + span.number("tokens").unwrap_or(0) as usize);
        }
    };
    let result = watch_thread(watch, body);
    (tokens.get(), result)
}

#[test]
fn the_draft_model_computes_no_token_twice() {
    let model = load(demo(), demo());
    let prompt = repeating(&model);
    let mut session = model.session();
    let (computed, ids) = drafted(|| {
        let mut generation = session.generate_ids(&prompt, &guessing(&options(31), 5)).unwrap();
        generation.text().unwrap();
        generation.ids().to_vec()
    });
    // All but the last of the last five guesses, and the token after them.
    assert_eq!(computed, prompt.len() + ids.len() - 2);
    // Nor in the next turn of a conversation.
    let next = [prompt, ids, vec![40, 41, 42]].concat();
    let (computed, ()) = drafted(|| {
        let mut generation = session.generate_ids(&next, &guessing(&options(31), 5)).unwrap();
        generation.text().unwrap();
    });
    assert_eq!(computed, 2 + 3 + 31 - 2);
}

/// It computes no more than a chunk of 512 tokens at a time.
#[test]
fn a_long_prompt_is_followed_in_parts() {
    let model = load(common::named("llama-3.2").folder.join("bf16"), common::named("llama-3.2").folder.join("bf16"));
    let prompt: Vec<u32> = (0..1100).map(|index| 40 + index % 250).collect();
    let (expected, _) = generate(&model, &prompt, &options(12));
    let (found, timings) = generate(&model, &prompt, &guessing(&options(12), 3));
    assert_eq!(found, expected);
    // Of eleven steps after the first two are without guesses, two of nine give four tokens each, then one is left.
    assert_eq!((timings.guessed, timings.accepted), (6, 6));
}

#[test]
fn a_draft_model_guesses_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let short = copy_of_demo(
        folder.path(),
        "config.json",
        "\"max_position_embeddings\": 512",
        "\"max_position_embeddings\": 100",
    );
    let model = load(demo(), &short);
    assert_eq!((model.context_length(), model.draft().unwrap().context_length()), (512, 100));
    let prompt = &repeating(&model)[..40];
    let (expected, _) = generate(&model, prompt, &options(120));
    let (found, timings) = generate(&model, prompt, &guessing(&options(120), 5));
    assert_eq!(found, expected);
    // The first token, and then five guesses of six tokens up to the last that its context has room for.
    assert!((45..=55).contains(&timings.guessed) && timings.accepted == timings.guessed, "{timings:?}");
    // A context that ends first ends the text as ever.
    let model = builder().context_length(70).draft(demo()).load(demo()).unwrap();
    assert_eq!(model.draft().unwrap().context_length(), 70);
    for timings in same(&model, prompt, &options(120), "the context") {
        assert!(timings.accepted >= 14, "{timings:?}");
    }
}

#[test]
fn a_cancel_ends_it_in_the_middle_of_a_guess() {
    let model = load(demo(), small_demo());
    let prompt = repeating(&model);
    let (plain, _) = generate(&model, &prompt, &options(60));
    for cancelled_at in [1, 2, 3, 7, 12] {
        let (cancel, seen) = (CancellationToken::new(), Cell::new(0));
        let token = cancel.clone();
        let watch = move |span: &Begun| {
            seen.set(seen.get() + usize::from(span.name == "draft"));
            if seen.get() == cancelled_at {
                token.cancel();
            }
        };
        let generation = watch_thread(watch, || {
            let mut generation = model.generate(&prompt, &guessing(&options(60), 4).cancel(&cancel)).unwrap();
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            generation
        });
        assert_eq!(generation.finish().0, Some(FinishReason::Cancelled));
        let ids = generation.ids().to_vec();
        assert!(!ids.is_empty() && plain.ids.starts_with(&ids) && ids.len() < 60, "{ids:?}");
        // It goes on as if nothing had been guessed.
        let whole = [&prompt[..], &ids].concat();
        let mut session = generation.into_inner();
        assert_eq!(session.ids(), &whole[..whole.len() - 1]);
        let mut rest = session.generate_ids(&whole, &guessing(&options(60 - ids.len()), 4)).unwrap();
        rest.text().unwrap();
        assert_eq!([&ids, rest.ids()].concat(), plain.ids);
    }
}

/// The draft model's caches have a page for one session, and another one holds it.
#[test]
fn a_draft_model_that_fails_ends_the_guesses_alone() {
    let model = builder().context_length(250).draft(small_demo()).load(demo()).unwrap();
    let prompt = repeating(&model);
    let (expected, _) = generate(&model, &prompt, &options(60));
    let mut first = model.generate(&prompt, &guessing(&options(60), 4)).unwrap();
    let begun: Vec<Piece> = first.by_ref().take(9).map(Result::unwrap).collect();
    assert!(first.finish().1.guessed > 0);
    let (found, timings) = generate(&model, &prompt, &guessing(&options(60), 4));
    assert_eq!((&found, timings.guessed), (&expected, 0));
    let pieces: Vec<Piece> = begun.into_iter().chain(first.by_ref().map(Result::unwrap)).collect();
    assert_eq!(pieces, expected.pieces);
    drop(first);
    let (found, timings) = generate(&model, &prompt, &guessing(&options(60), 4));
    assert!(found == expected && timings.guessed > 0);
    // Two that are planned have a page each.
    let model = builder().context_length(250).sessions(2).draft(small_demo()).load(demo()).unwrap();
    let mut first = model.generate(&prompt, &guessing(&options(60), 4)).unwrap();
    first.by_ref().take(9).for_each(|piece| drop(piece.unwrap()));
    assert!(generate(&model, &prompt, &guessing(&options(60), 4)).1.guessed > 0);
}

#[test]
fn company_changes_nothing() {
    for model in [load(demo(), small_demo()), builder().prefix_caching(true).draft(small_demo()).load(demo()).unwrap()]
    {
        let prompt = repeating(&model);
        let expected: Vec<Given> = kinds(60).iter().map(|options| generate(&model, &prompt, options).0).collect();
        for round in 0..4 {
            thread::scope(|scope| {
                for (options, expected) in kinds(60).into_iter().zip(&expected) {
                    let (model, prompt) = (&model, &prompt);
                    scope.spawn(move || {
                        let paying = options.clone().speculate(Speculation::Draft);
                        let options = if round % 2 == 0 { guessing(&options, 5) } else { paying };
                        assert_eq!(generate(model, prompt, &options).0.pieces, expected.pieces);
                    });
                }
            });
        }
    }
}

#[test]
fn a_fork_and_a_session_after_any_piece_are_as_they_would_be_without() {
    let model = load(demo(), demo());
    let prompt = repeating(&model);
    let after = |options: &GenerateOptions, pieces: usize| {
        let mut generation = model.generate(&prompt, options).unwrap();
        generation.by_ref().take(pieces).for_each(|piece| drop(piece.unwrap()));
        let mut session = generation.into_inner();
        let mut fork = session.fork().unwrap();
        (session.ids().to_vec(), bits(&mut session, &[7]), bits(&mut fork, &[7]), session.cache_bytes())
    };
    for pieces in 1..14 {
        assert_eq!(after(&guessing(&options(60), 6), pieces), after(&options(60), pieces), "{pieces} pieces");
    }
}

#[test]
fn guesses_by_a_draft_model_need_one() {
    let model = common::load(demo());
    let refused = model.generate("Once", &options(5).speculate(Speculation::Draft)).err().unwrap();
    let Error::Draft(error) = &refused else { panic!("{refused}") };
    assert_eq!((&**error, refused.code()), (&DraftError::Missing, 2));
    let one_scale = common::fixtures().join("int8/llama-dynamic-tensor");
    for path in if on_gpu() { vec![demo(), one_scale] } else { vec![one_scale] } {
        let refused = common::builder().draft(demo()).load(path).unwrap_err();
        assert!(matches!(&refused, Error::Draft(error) if matches!(**error, DraftError::Alone { .. })), "{refused}");
    }
}

/// The demo in `folder`, with `new` in place of the first `old` of `file`.
fn copy_of_demo(folder: &Path, file: &str, old: &str, new: &str) -> PathBuf {
    for entry in std::fs::read_dir(demo()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(text.contains(old), "{old}");
    std::fs::write(folder.join(file), text.replacen(old, new, 1)).unwrap();
    folder.to_owned()
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused_by_the_first_token_that_differs() {
    let refused = |path: &Path, draft: &Path| {
        let error = builder().draft(draft).load(path).unwrap_err();
        assert_eq!(error.code(), 2);
        let text = error.to_string();
        assert!(text.contains(&*path.to_string_lossy()) && text.contains(&*draft.to_string_lossy()), "{text}");
        match error {
            Error::Draft(error) => match *error {
                DraftError::Vocabulary { model, draft: other, id, in_model, in_draft } => {
                    assert_eq!((&*model, &*other), (path, draft));
                    (id, in_model, in_draft)
                }
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
    };
    let model = common::load(demo());
    let entry = |id| model.tokenizer().token_text(id).unwrap();
    let written = |text: &str| serde_json::to_string(text).unwrap();
    // Two entries that no merge makes have changed places.
    let (first, second) = (entry(70), entry(75));
    let json = std::fs::read_to_string(demo().join("tokenizer.json")).unwrap();
    let places = [(&first, 70), (&second, 75)].map(|(text, id)| format!("{}: {id}", written(text)));
    let folder = tempfile::tempdir().unwrap();
    let swapped = copy_of_demo(folder.path(), "tokenizer.json", &places[0], &format!("{}: 70", written(&second)));
    let half = std::fs::read_to_string(swapped.join("tokenizer.json")).unwrap();
    assert_ne!(half, json);
    std::fs::write(swapped.join("tokenizer.json"), half.replacen(&places[1], &format!("{}: 75", written(&first)), 1))
        .unwrap();
    let (id, here, there) = refused(&demo(), &swapped);
    assert_eq!((id, here, there), (70, format!("the token {first:?}"), format!("the token {second:?}")));
    // Files of other tokenizers, in both directions.
    let tiny = common::named("tinyllama").folder.join("bf16");
    assert_ne!(refused(&demo(), &tiny), refused(&tiny, &demo()));
    // A special token that is none.
    let folder = tempfile::tempdir().unwrap();
    let plain = copy_of_demo(folder.path(), "tokenizer.json", "\"special\": true", "\"special\": false");
    let (_, here, there) = refused(&demo(), &plain);
    assert!(here.starts_with("the special token") && there.starts_with("the added token"), "{here} {there}");
}

#[test]
fn a_draft_model_is_in_the_plan_and_refused_where_there_is_no_room_for_both() {
    let model = load(demo(), small_demo());
    let (plan, draft) = (model.report().plan.clone().unwrap(), model.draft().unwrap());
    let own = draft.report().plan.clone().unwrap();
    assert_eq!(plan.draft_weights, std::fs::metadata(small_demo()).unwrap().len());
    assert_eq!(plan.draft(), own.weights_file + own.kv_cache + own.activations);
    assert_eq!((own.context, own.cache_budget), (plan.context, own.kv_cache));
    assert!(model.report().to_string().contains("draft model"), "{}", model.report());
    assert_eq!(builder().draft(small_demo()).diagnose(demo()).plan.unwrap().draft(), plan.draft());

    let enough = plan.total + (1 << 12);
    let read = |limit: u64| {
        let mapped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = std::sync::Arc::clone(&mapped);
        let builder = builder().memory_limit(limit).context_length(plan.context).on_progress(move |progress| {
            if progress.stage == model_factory::load::Stage::Mapping {
                told.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let alone = builder.clone().diagnose(demo()).verdict.runs();
        (builder.draft(small_demo()).load(demo()), alone, mapped.load(std::sync::atomic::Ordering::Relaxed))
    };
    let (loaded, _, mapped) = read(enough);
    assert!(loaded.is_ok() && mapped);
    let (refused, alone, mapped) = read(enough - plan.draft());
    let Err(Error::Refused(report)) = refused else { panic!("{refused:?}") };
    assert_eq!((report.exit_code, alone, mapped), (14, true, false), "{report}");
    assert_eq!(report.remedies[0].to_string(), "load it without the draft model");
    // One that does not run is refused by its own report.
    let missing = builder().draft("/no/such/model").load(demo());
    let Err(Error::Refused(report)) = missing else { panic!("{missing:?}") };
    assert!(report.input.path.contains("/no/such/model"), "{report}");
}
