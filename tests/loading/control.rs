//! Loads and computations that are watched and cancelled from outside. What is counted is work, not time.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, bits, demo, tokens};

use common::spans::{Begun, watch_thread, watch_threads};
use model_factory::decoder::Compute;
use model_factory::load::Stage;
use model_factory::{
    CancellationToken, Error, FinishReason, GenerateOptions, Message, Model, ModelBuilder, Progress, TextModel,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Tokens of a chunk of a prompt.
const CHUNK: usize = model_factory::diagnostics::plan::PREFILL_CHUNK;

fn builder() -> ModelBuilder {
    watch_threads();
    common::builder()
}

fn load(path: PathBuf) -> Model {
    builder().load(path).unwrap()
}

/// A model with room for several chunks.
fn long() -> Model {
    load(common::named("llama-3").folder.join("bf16"))
}

/// Runs `body` and cancels `cancel` where layer number `at` begins, counted over all chunks. Returns how many layers
/// began in all.
fn cancel_at_layer<R>(at: usize, cancel: &CancellationToken, body: impl FnOnce() -> R) -> (usize, R) {
    let (begun, cancel) = (Arc::new(AtomicUsize::new(0)), cancel.clone());
    let count = Arc::clone(&begun);
    let watch = move |span: &Begun| {
        if span.name == "layer" && count.fetch_add(1, Ordering::Relaxed) == at {
            cancel.cancel();
        }
    };
    let result = watch_thread(watch, body);
    (begun.load(Ordering::Relaxed), result)
}

#[test]
fn a_cancelled_prompt_stops_in_its_layer_and_the_session_goes_on() {
    let model = long();
    let layers = model.spec().layers();
    let prompt = tokens(2 * CHUNK + 100, 320);
    let expected = bits(&mut model.session(), &prompt);
    for at in 0..3 * layers {
        let (cancel, mut session) = (CancellationToken::new(), model.session());
        let (begun, result) = cancel_at_layer(at, &cancel, || session.next_logits_unless(&prompt, &cancel).map(drop));
        assert!(matches!(result, Err(Error::Cancelled)), "layer {at}: {result:?}");
        assert_eq!(begun, at + 1, "no layer begins after the cancel");
        let complete = at / layers * CHUNK;
        assert_eq!((session.len(), session.ids()), (complete, &prompt[..complete]), "layer {at}");
        // It holds the memory of only those.
        let mut alone = model.session();
        if complete > 0 {
            alone.forward(&prompt[..complete]).unwrap();
        }
        assert_eq!(session.cache_bytes(), alone.cache_bytes(), "layer {at}");
        assert_eq!(bits(&mut session, &prompt[complete..]), expected, "layer {at}");
    }
    // Nothing begins for what was cancelled before.
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (begun, result) = cancel_at_layer(usize::MAX, &cancel, || model.session().next_logits_unless(&prompt, &cancel));
    assert!(begun == 0 && matches!(result, Err(Error::Cancelled)));
}

#[test]
fn a_prompt_computed_anew_for_another_rotation_is_cancelled_too() {
    let model = load(common::named("phi-3.5").folder.join("bf16"));
    let layers = model.spec().layers();
    let rotation = |length| model.decoder().expect("on the processor").rotation(length);
    let held = (1..4096).take_while(|length| rotation(*length) == rotation(1)).count();
    assert!(held < 4095, "the rotation never changes");
    let prompt = tokens(held + 1, 320);
    let expected = bits(&mut model.session(), &prompt);
    for at in 0..layers {
        let (cancel, mut session) = (CancellationToken::new(), model.session());
        session.forward(&prompt[..held]).unwrap();
        let (begun, result) = cancel_at_layer(at, &cancel, || session.next_logits_unless(&prompt[held..], &cancel));
        assert!(begun == at + 1 && matches!(result, Err(Error::Cancelled)), "layer {at}");
        assert_eq!(session.ids(), &prompt[..held], "layer {at}: no token is lost");
        assert_eq!(bits(&mut session, &prompt[held..]), expected, "layer {at}");
    }
    // Cut back after the cancel, it is rotated as a short sequence again.
    let (cancel, mut session) = (CancellationToken::new(), model.session());
    session.forward(&prompt[..held]).unwrap();
    let (_, result) = cancel_at_layer(0, &cancel, || session.next_logits_unless(&prompt[held..], &cancel));
    assert!(matches!(result, Err(Error::Cancelled)));
    session.truncate(held - 1);
    let short = bits(&mut session, &prompt[held - 1..held]);
    assert_eq!(short, bits(&mut model.session(), &prompt[..held]));
}

#[test]
fn computing_anew_goes_on_behind_the_chunk_that_was_complete() {
    // The fixture's original context is shorter than a chunk.
    let (folder, fixture) = (tempfile::tempdir().unwrap(), common::named("phi-3.5").folder.join("bf16"));
    for file in std::fs::read_dir(&fixture).unwrap().map(|entry| entry.unwrap().path()) {
        std::fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let config = std::fs::read_to_string(fixture.join("config.json")).unwrap();
    let held = 2 * CHUNK + 100;
    let (from, to) =
        ("\"original_max_position_embeddings\": 256", format!("\"original_max_position_embeddings\": {held}"));
    assert!(config.contains(from));
    std::fs::write(folder.path().join("config.json"), config.replace(from, &to)).unwrap();
    let model = load(folder.path().into());
    let (layers, prompt) = (model.spec().layers(), tokens(held + 1, 320));
    let expected = bits(&mut model.session(), &prompt);
    let mut begun_in_all = Vec::new();
    for at in 0..3 * layers {
        let (cancel, mut session) = (CancellationToken::new(), model.session());
        session.forward(&prompt[..held]).unwrap();
        let (begun, result) = cancel_at_layer(at, &cancel, || session.next_logits_unless(&prompt[held..], &cancel));
        assert!(begun == at + 1 && matches!(result, Err(Error::Cancelled)), "layer {at}");
        assert_eq!(session.ids(), &prompt[..held], "layer {at}: no token is lost");
        let (rest, logits) =
            cancel_at_layer(usize::MAX, &CancellationToken::new(), || bits(&mut session, &prompt[held..]));
        assert_eq!(logits, expected, "layer {at}");
        begun_in_all.push(rest);
    }
    // Two chunks of what was held and one of its rest and the new token. Those that were complete are not computed again.
    let chunks = |complete: usize| (3 - complete) * layers;
    let expected: Vec<usize> = (0..3).flat_map(|complete| vec![chunks(complete); layers]).collect();
    assert_eq!(begun_in_all, expected);
}

#[test]
fn a_cancelled_generation_ends_and_says_so() {
    let model = long();
    let prompt = tokens(CHUNK + 1, 320);
    let cancel = CancellationToken::new();
    let options = GenerateOptions::default().max_tokens(4).cancel(&cancel);
    let mut session = model.session();
    let mut generation = session.generate_ids(&prompt, &options).unwrap();
    let (_, first) = cancel_at_layer(model.spec().layers(), &cancel, || generation.next());
    assert!(first.is_none(), "{first:?}");
    let (finish, timings) = generation.finish();
    assert_eq!((finish, timings.generated), (Some(FinishReason::Cancelled), 0));
    assert_eq!(FinishReason::Cancelled.to_string(), "cancelled");
    assert_eq!(session.len(), CHUNK, "the first chunk was complete");
    // What was complete is not computed again, and the text is that of an undisturbed generation.
    let options = GenerateOptions::default().max_tokens(4).temperature(0.0);
    let mut again = session.generate_ids(&prompt, &options).unwrap();
    let text = again.text().unwrap();
    assert_eq!(again.finish().1.prompt_tokens, 1);
    assert_eq!(text, model.session().generate_ids(&prompt, &options).unwrap().text().unwrap());
}

#[test]
fn text_that_was_held_back_comes_before_the_end() {
    let model = load(demo());
    let whole = model.generate("Once upon a time", &GenerateOptions::default().max_tokens(8)).unwrap().text().unwrap();
    // All of the text may become this stop string, so none of it is given out.
    let cancel = CancellationToken::new();
    let options = GenerateOptions::default().stop(format!("{whole}\u{1}")).cancel(&cancel);
    let mut generation = model.generate("Once upon a time", &options).unwrap();
    let held: String = generation.by_ref().take(8).map(|piece| piece.unwrap().text).collect();
    assert_eq!(held, "");
    cancel.cancel();
    assert_eq!(generation.text().unwrap(), whole);
    assert_eq!(generation.finish().0, Some(FinishReason::Cancelled));
}

/// What a load of `path` tells.
fn progress(path: PathBuf) -> Vec<Progress> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    builder().on_progress(move |progress| list.lock().unwrap().push(progress)).load(path).unwrap();
    std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn a_load_tells_how_far_it_is() {
    let size = |path: PathBuf| std::fs::metadata(path).unwrap().len();
    let gguf = common::fixtures().join("demo-q4_k_m.gguf");
    let (weights, json) = (demo().join("model.safetensors"), demo().join("tokenizer.json"));
    for (path, mapped, tokenizer) in [(gguf.clone(), size(gguf), 0), (demo(), size(weights), size(json))] {
        let told = progress(path.clone());
        let of = |stage| -> Vec<(u64, u64)> {
            let told = told.iter().filter(|progress| progress.stage == stage);
            told.map(|progress| (progress.bytes_done, progress.bytes_total)).collect()
        };
        assert_eq!(of(Stage::Mapping), [(0, mapped), (mapped, mapped)], "{told:?}");
        assert_eq!(of(Stage::Tokenizer), [(0, tokenizer), (tokenizer, tokenizer)], "{told:?}");
        let read = builder().diagnose(&path).input.header_bytes_read.unwrap();
        assert_eq!(of(Stage::Header), [(0, 0), (read, read)], "{told:?}");
        assert!(told.len() == 6 && told[..2].iter().all(|progress| progress.stage == Stage::Header), "{told:?}");
    }
}

#[test]
fn a_load_is_cancelled_in_every_stage() {
    let mut stages = 0;
    for (stage, done) in
        [Stage::Header, Stage::Tokenizer, Stage::Mapping].into_iter().flat_map(|s| [(s, false), (s, true)])
    {
        let cancel = CancellationToken::new();
        let canceller = cancel.clone();
        let builder = builder().cancel(&cancel).on_progress(move |progress| {
            if progress.stage == stage && (progress.bytes_done > 0) == done {
                canceller.cancel();
            }
        });
        let result = builder.load(demo());
        assert!(matches!(result, Err(Error::Cancelled)), "{stage}: {result:?}");
        // Before anything is read.
        assert!(matches!(builder.load("no/such/path"), Err(Error::Cancelled)));
        stages += 1;
    }
    assert_eq!(stages, 6);
    assert_eq!(Error::Cancelled.code(), 1);
}

/// What a callback panics with.
#[derive(Debug, PartialEq)]
struct Mine(Stage, bool);

#[test]
fn a_callback_that_panics_ends_the_load_with_its_panic_at_every_stage() {
    for path in [demo(), demo().with_file_name("demo-q4_k_m.gguf")] {
        for threads in [1, 3] {
            for stage in [Stage::Header, Stage::Tokenizer, Stage::Mapping] {
                for end in [false, true] {
                    let left = Arc::new(AtomicUsize::new(1));
                    let builder = builder().threads(threads).on_progress(move |progress: Progress| {
                        // Of a GGUF file's tokenizer beginning and end look the same.
                        let ends = progress.bytes_done == progress.bytes_total && progress.bytes_total > 0;
                        let here = progress.stage == stage && (ends == end || progress.stage == Stage::Tokenizer);
                        if here && left.fetch_sub(1, Ordering::Relaxed) == 1 {
                            std::panic::panic_any(Mine(stage, end));
                        }
                    });
                    let panic = catch_unwind(AssertUnwindSafe(|| builder.load(&path).map(drop))).unwrap_err();
                    assert_eq!(panic.downcast_ref(), Some(&Mine(stage, end)), "{threads} threads");
                    // The same builder loads afterwards.
                    let model = builder.load(&path).unwrap();
                    assert!(!model.generate("Once", &GenerateOptions::default()).unwrap().text().unwrap().is_empty());
                }
            }
        }
    }
}

#[test]
fn spans_tell_load_prefill_and_decode() {
    let spans = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&spans);
    let watch = move |span: &Begun| {
        match span.name {
            "prefill" => assert_eq!(span.number("tokens"), Some(3)),
            "decode" => assert!(span.number("position") >= Some(3)),
            _ => {}
        }
        list.lock().unwrap().push((span.name, span.parent));
    };
    let builder = builder();
    watch_thread(watch, || {
        let model = builder.load(demo()).unwrap();
        let options = GenerateOptions::default().max_tokens(3);
        model.session().generate_ids(&[3, 4, 5], &options).unwrap().text().unwrap();
    });
    let spans = spans.lock().unwrap();
    let step = |name| [(name, None), ("layer", Some(name)), ("layer", Some(name))];
    let load = [("load", None), ("header", Some("load")), ("tokenizer", Some("load")), ("weights", Some("load"))];
    assert_eq!(spans[..4], load);
    assert_eq!(spans[4..], [step("prefill"), step("decode"), step("decode")].concat());
}

#[test]
fn a_program_takes_any_text_model() {
    let model = load(common::named("qwen3").folder.join("bf16"));
    let options = GenerateOptions::default().max_tokens(5).temperature(0.0);
    let messages = [Message::user("Hello")];
    let any: &dyn TextModel = &model;
    for (mut one, mut other) in [
        (any.generate("Hello", &options).unwrap(), model.generate("Hello", &options).unwrap()),
        (any.chat(&messages, &options).unwrap(), model.chat(&messages, &options).unwrap()),
    ] {
        let text: String = one.by_ref().map(|piece| piece.unwrap().text).collect();
        assert_eq!(text, other.text().unwrap());
        assert!(one.finish().0.is_some() && one.finish().0 == other.finish().0);
    }
    assert_eq!(any.report().first_line(), model.report().first_line());
}

/// How long a cancel takes to return in the middle of a prompt of 1024 tokens, on the model that `MODEL_FACTORY_MODEL`
/// names. The bound is meant for 1.1B parameters.
#[test]
#[ignore = "measures time on a model of your own"]
fn a_cancel_returns_within_100_ms() {
    let path = std::env::var("MODEL_FACTORY_MODEL").expect("MODEL_FACTORY_MODEL names a model");
    let cores = std::thread::available_parallelism().unwrap().get();
    let model = builder().threads(cores).load(path).unwrap();
    let prompt = tokens(1024, 320);
    model.session().forward(&prompt).unwrap(); // the first reads the file from the disk
    let begun = Instant::now();
    model.session().forward(&prompt).unwrap();
    let whole = begun.elapsed();
    let mut latencies: Vec<Duration> = (1..16)
        .map(|part| {
            let cancel = CancellationToken::new();
            let canceller = cancel.clone();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(whole * part / 20);
                canceller.cancel();
                Instant::now()
            });
            let result = model.session().next_logits_unless(&prompt, &cancel);
            let returned = Instant::now();
            assert!(matches!(result, Err(Error::Cancelled)), "the prompt was complete before part {part} of 20");
            returned - thread.join().unwrap()
        })
        .collect();
    latencies.sort();
    println!(
        "1024 tokens take {whole:.2?}; a cancel returns after {:.2?}, at most {:.2?}",
        latencies[7], latencies[14]
    );
    assert!(latencies[14] < Duration::from_millis(100));
}
