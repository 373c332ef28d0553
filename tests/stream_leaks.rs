//! Streams that are dropped or cancelled leave no thread and no memory.
#![cfg(target_os = "linux")] // /proc tells threads and anonymous memory
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

mod common;

use common::spans::{Begun, watch_process};
use futures::StreamExt;
use futures::executor::block_on;
use model_factory::{CancellationToken, FinishReason, GenerateOptions, Model};
use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// The tests count the threads of the process: one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Threads that compute streams, by the name they have, which the system cuts at 15 letters. One that has just begun still
/// has the name of the thread that made it: this one.
fn stream_threads() -> usize {
    let own = std::fs::read_to_string("/proc/thread-self/comm").expect("/proc/thread-self/comm");
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc/self/task");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let of_stream = |name: &str| "model-factory-stream".starts_with(name.trim_end()) && name.len() > 14;
    names.filter(|name| of_stream(name) || *name == own).count() - 1
}

/// Waits until all streams' threads have ended. They need a step of a tiny model; a busy machine needs patience.
fn until_ended() {
    let begun = Instant::now();
    while stream_threads() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} threads are left", stream_threads());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tokens of the prompt that is dropped.
const PROMPT: usize = 6000;

/// Its layer where that happens.
const DROPPED_AT: usize = 5;

static REACHED: Barrier = Barrier::new(2);
static DROPPED: Barrier = Barrier::new(2);
static AFTER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Layers of the prompt that this thread has begun.
    static LAYERS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Holds the thread that computes the prompt at a layer, until the stream was dropped.
fn watch(span: &Begun) {
    if span.name == "prefill" && span.number("tokens") == Some(PROMPT as u64) {
        LAYERS.set(Some(0));
    } else if let ("layer", Some(layers)) = (span.name, LAYERS.get()) {
        LAYERS.set(Some(layers + 1));
        if layers == DROPPED_AT {
            REACHED.wait();
            DROPPED.wait();
        } else if layers > DROPPED_AT {
            AFTER.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn dropping_a_stream_in_its_prompt_ends_its_thread() {
    let _alone = ALONE.lock().unwrap();
    watch_process(watch);
    let model = common::load(common::named("llama-3").folder.join("bf16"));
    let word = "a ";
    let mut prompt = word.repeat(PROMPT);
    let ids = |prompt: &str| model.tokenizer().encode_prompt(prompt).unwrap().len();
    while ids(&prompt) > PROMPT {
        prompt.truncate(prompt.len() - 1);
    }
    assert_eq!(ids(&prompt), PROMPT);
    let stream = model.generate(&prompt, &GenerateOptions::default()).unwrap().into_stream();
    REACHED.wait();
    assert_eq!(stream_threads(), 1);
    drop(stream);
    DROPPED.wait();
    until_ended();
    assert_eq!(AFTER.load(Ordering::Relaxed), 0, "layers began after the drop");
}

/// Begins a generation and gives it up in one of five ways.
fn give_up(model: &Model, way: usize) {
    let cancel = CancellationToken::new();
    let options = GenerateOptions::default().max_tokens(200).cancel(&cancel);
    let generation = model.generate("Once upon a time there was", &options).unwrap();
    match way {
        0 => drop(generation.into_stream()),
        1 => {
            let mut stream = generation.into_stream();
            block_on(stream.next()).unwrap().unwrap();
        }
        2 => {
            let mut stream = generation.into_stream();
            block_on(stream.next()).unwrap().unwrap();
            cancel.cancel();
            let text = block_on(stream.text()).unwrap();
            assert!(text.len() < 2000 && stream.finish().0 == Some(FinishReason::Cancelled));
        }
        3 => {
            let mut text = pin!(model.generate_text("Once upon a time", 200));
            let polled = text.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "200 tokens at once");
        }
        _ => {
            let mut generation = generation;
            generation.next().unwrap().unwrap();
            cancel.cancel();
            assert!(generation.last().is_none());
        }
    }
}

/// What the allocator may keep of freed caches, for several threads. Each of these generations has a cache of 512 KiB: a
/// thousand that are left are 500 MiB.
const KEPT: u64 = 16 << 20;

#[test]
fn a_thousand_cancelled_generations_leave_nothing() {
    let _alone = ALONE.lock().unwrap();
    let model = common::load_demo();
    let threads = || std::fs::read_dir("/proc/self/task").expect("/proc/self/task").count();
    let anonymous = || common::status("RssAnon").expect("/proc/self/status has RssAnon");
    (0..100).for_each(|index| give_up(&model, index % 5));
    until_ended();
    let before = (threads(), anonymous());
    (0..1000).for_each(|index| give_up(&model, index % 5));
    until_ended();
    let after = (threads(), anonymous());
    println!("threads and anonymous bytes: {before:?} before, {after:?} after");
    assert!(after.0 <= before.0, "{} threads more", after.0 - before.0);
    assert!(after.1 <= before.1 + KEPT, "{} bytes more", after.1 - before.1);
}
