//! Memory that is refused: an allocator fails the n-th allocation of 16 KiB or more, for every n, in a load, a prompt, a
//! generation, a batch, a chat and the restoring of a session. Each time there is a typed error or the right result, no byte is
//! lost, and what is asked next has the right bits. What aborts the process is an allocation of another crate, in the list below.
//!
//! `OUT_OF_MEMORY_FROM=1024` also fails smaller allocations; those may abort.
#![cfg(target_os = "linux")] // symbols of a backtrace
#![allow(unsafe_code)] // a global allocator
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

mod common;

use common::{demo, fixtures, tokens};
use model_factory::error::OutOfMemory;
use model_factory::session::WeightsDigest;
use model_factory::{Error, FinishReason, GenerateOptions, Message, Model, Session, Speculation};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// From this size on an allocation must be one that can fail.
const LARGE: usize = 16 << 10;

/// What aborts when it is refused memory, by a function in the backtrace, and the most bytes that it asks for in these tests:
/// the reading of `/proc`, vocabularies that are built and their patterns. All of it is in a load.
const FOREIGN: &[(&str, usize)] = &[
    ("sysinfo::", 64 << 10),
    ("model_factory_text::tokenizer::files::", 1 << 20),
    ("model_factory_format::tokenizer::files::", 128 << 10),
    ("model_factory_text::tokenizer::gguf::", 128 << 10),
    ("regex_automata::nfa::thompson::", 512 << 10),
    ("regex_syntax::", 32 << 10),
];

/// More large allocations than any case makes.
const MOST: i64 = 2000;

/// What an abort that is not in the list is counted as.
const UNLISTED: &str = "aborts, and is not in the list: ";

/// Counts bytes, and fails one allocation when it is armed.
struct Failing;

static LIVE: AtomicI64 = AtomicI64::new(0);
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Allocations that succeed before the one that fails; below 0 none fails any more.
static LEFT: AtomicI64 = AtomicI64::new(-1);
static FAILED: AtomicBool = AtomicBool::new(false);
/// The size of the allocation that failed.
static SIZE: AtomicUsize = AtomicUsize::new(0);

impl Failing {
    fn fails(size: usize) -> bool {
        if size < FROM.load(Ordering::Relaxed) || LEFT.fetch_sub(1, Ordering::Relaxed) != 0 {
            return false;
        }
        Failing::disarm();
        FAILED.store(true, Ordering::Relaxed);
        SIZE.store(size, Ordering::Relaxed);
        true
    }

    /// Fails allocation `n`, from 0, of `size` bytes or more.
    fn arm(n: i64, size: usize) {
        FAILED.store(false, Ordering::Relaxed);
        LEFT.store(n, Ordering::Relaxed);
        FROM.store(size, Ordering::Relaxed);
    }

    /// Fails nothing from now on.
    fn disarm() {
        FROM.store(usize::MAX, Ordering::Relaxed);
    }
}

// SAFETY: it hands out the system's memory, or none.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Failing::fails(layout.size()) {
            return std::ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Failing::fails(layout.size()) {
            return std::ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() && Failing::fails(size) {
            return std::ptr::null_mut();
        }
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Called when the process aborts, on the thread that does: says which allocation was refused, and where if it was a large one, as
/// the names of functions take a tenth of a second.
extern "C" fn aborting(_: libc::c_int) {
    if !FAILED.load(Ordering::Relaxed) {
        return;
    }
    let size = SIZE.load(Ordering::Relaxed);
    let trace = if size < LARGE { String::new() } else { Backtrace::force_capture().to_string().replace('\n', " ") };
    println!("site {size} {trace}");
}

/// What is attempted: it is prepared, then done with the allocator armed, and then asked again without.
trait Attempt {
    /// What is done; its result as text, bit by bit.
    fn run(&mut self) -> Result<String, Error>;

    /// What must hold after an error.
    fn check(&mut self) {}
}

/// One thread makes the same allocations each time; two may need their own memory or not.
fn load(path: impl AsRef<Path>, threads: usize) -> Model {
    common::builder().threads(threads).load(path).expect("the model loads")
}

/// The logits; fails nothing from then on.
fn bits(logits: &model_factory::candle_core::Tensor) -> String {
    Failing::disarm();
    let values = logits.flatten_all().and_then(|logits| logits.to_vec1::<f32>()).expect("logits");
    values.iter().fold(String::new(), |mut text, value| {
        let _ = write!(text, "{:08x}", value.to_bits());
        text
    })
}

/// A load: the model, and a token of it.
struct Load(PathBuf);

impl Attempt for Load {
    fn run(&mut self) -> Result<String, Error> {
        let model = common::builder().threads(2).load(&self.0)?;
        Failing::disarm();
        Ok(bits(&model.session().forward(&[1, 2, 3])?))
    }
}

/// A prompt in a session that has some tokens, next to another session.
struct Prompt {
    session: Session,
    other: Session,
    count: usize,
    all: bool,
}

impl Prompt {
    fn boxed(model: &Model, count: usize, all: bool) -> Box<dyn Attempt> {
        let (mut session, mut other) = (model.session(), model.session());
        session.forward(&[7, 8, 9]).expect("tokens compute");
        other.forward(&[4, 5]).expect("tokens compute");
        Box::new(Prompt { session, other, count, all })
    }
}

impl Attempt for Prompt {
    fn run(&mut self) -> Result<String, Error> {
        let tokens = tokens(self.count, 250);
        self.session.truncate(3);
        let logits = if self.all { self.session.logits(&tokens) } else { self.session.forward(&tokens) };
        logits.map(|logits| bits(&logits))
    }

    fn check(&mut self) {
        let page = self.other.cache_bytes();
        assert_eq!(
            (self.session.ids(), self.session.cache_bytes()),
            (&[7, 8, 9][..], page),
            "the session is as it was"
        );
        let next = self.other.forward(&[6]).expect("the other session lives");
        self.other.truncate(2);
        let expected = self.session.model().session().forward(&[4, 5, 6]).expect("a third session");
        assert_eq!(bits(&next), bits(&expected), "the other session is untouched");
    }
}

/// A generation, or a chat.
struct Generate {
    session: Session,
    options: GenerateOptions,
    chat: Option<Vec<Message>>,
}

impl Attempt for Generate {
    fn run(&mut self) -> Result<String, Error> {
        self.session.truncate(0);
        let mut generation = match &self.chat {
            Some(messages) => self.session.generate(messages, &self.options)?,
            None => self.session.generate_ids(&tokens(100, 250), &self.options)?,
        };
        let mut text = String::new();
        for piece in &mut generation {
            let piece = piece?;
            let _ = write!(text, "{:?} {:?} ", piece.token, piece.logprobs);
        }
        assert!(!matches!(generation.finish().0, Some(FinishReason::Cancelled)));
        Ok(text)
    }

    fn check(&mut self) {
        let model = self.session.model().clone();
        let ids = self.session.ids().to_vec();
        // What it holds is what was computed: it goes on from there.
        let mut again = model.session();
        again.forward(&[&ids[..], &[3]].concat()).expect("tokens compute");
        let expected = bits(&again.forward(&[4]).expect("tokens compute"));
        self.session.forward(&[3]).expect("tokens compute");
        assert_eq!(bits(&self.session.forward(&[4]).expect("tokens compute")), expected, "the session is sound");
    }
}

/// A batch of three sessions, in one pass or one by one.
struct Batch {
    sessions: Vec<Session>,
    each: usize,
}

impl Attempt for Batch {
    fn run(&mut self) -> Result<String, Error> {
        let tokens = tokens(self.each, 250);
        self.sessions.iter_mut().for_each(|session| session.truncate(1));
        let mut steps: Vec<(&mut Session, &[u32])> =
            self.sessions.iter_mut().enumerate().map(|(i, session)| (session, &tokens[i..])).collect();
        Session::batch(&mut steps).map(|logits| bits(&logits))
    }

    fn check(&mut self) {
        for session in &self.sessions {
            assert_eq!((session.len(), session.cache_bytes()), (1, self.sessions[0].cache_bytes()));
        }
    }
}

/// A session that is restored from a file, next to another.
struct Restore {
    model: Model,
    other: Session,
    file: tempfile::NamedTempFile,
}

impl Restore {
    fn boxed(model: Model, count: usize) -> Box<dyn Attempt> {
        let (mut session, mut other) = (model.session(), model.session());
        let file = tempfile::NamedTempFile::new().expect("a file");
        session.forward(&tokens(count, 250)).expect("tokens compute");
        session.save(file.path(), WeightsDigest::Sampled).expect("a session is saved");
        other.forward(&[4, 5]).expect("tokens compute");
        Box::new(Restore { model, other, file })
    }
}

impl Attempt for Restore {
    fn run(&mut self) -> Result<String, Error> {
        let mut session = self.model.restore(self.file.path())?;
        // What is attempted is the restoring.
        Failing::disarm();
        session.forward(&[7]).map(|logits| bits(&logits))
    }

    fn check(&mut self) {
        let next = self.other.forward(&[6]).expect("the other session lives");
        self.other.truncate(2);
        let expected = self.model.session().forward(&[4, 5, 6]).expect("a third session");
        assert_eq!(bits(&next), bits(&expected), "the other session is untouched");
    }
}

/// A case: its name, the smallest allocation that fails in it, and lists of what must have been refused.
type Case = (&'static str, usize, &'static [&'static [&'static str]]);

const PASS: &[&str] =
    &["a page of the KV cache", "the residual stream", "queries, keys and values", "the input of a product"];

const EXPERTS: &[&str] =
    &["the input of experts", "the outputs of a router", "the rows of experts", "the activations of experts"];

// Where smaller ones fail too, all large ones are among them.
const CASES: &[Case] = &[
    ("load-gguf", LARGE, &[]),
    ("load-safetensors", LARGE, &[]),
    ("prompt", 1 << 10, &[PASS, &["logits", "queries of attention"]]),
    ("prompt-on-two-threads", LARGE, &[]),
    ("prompt-long", LARGE, &[PASS]),
    ("prompt-of-experts", 1 << 10, &[EXPERTS]),
    ("logits", LARGE, &[&["logits", "the logits of every token"]]),
    // A pass of several that is refused memory is computed one by one.
    ("batch", LARGE, &[]),
    ("batch-in-chunks", LARGE, &[]),
    ("greedy", 1 << 10, &[PASS, &["logits"]]),
    ("drawn", 1 << 10, &[PASS, &["logits"]]),
    ("drawn-of-all", 1 << 10, &[&["logits", "the candidates for a token", "the probabilities of a draw"]]),
    // What is refused for guesses is done without.
    ("guessed", 1 << 10, &[&["the right result", "logits"]]),
    ("drafted", 1 << 10, &[&["the right result", "logits"]]),
    ("chat", LARGE, &[PASS]),
    ("restore", 1 << 10, &[&["a page of the KV cache", "the ids of a session"]]),
];

/// The folder of a fixture's weights in BF16, looked for once: an attempt does not unpack nor read what it is compared with.
fn bf16(found: &'static OnceLock<PathBuf>, name: &str) -> &'static Path {
    found.get_or_init(|| common::named(name).folder.join("bf16"))
}

static PHI: OnceLock<PathBuf> = OnceLock::new();
static QWEN: OnceLock<PathBuf> = OnceLock::new();

fn attempt(case: &str) -> Box<dyn Attempt> {
    let (gguf, phi) = (fixtures().join("demo-q4_k_m.gguf"), || bf16(&PHI, "phi-3.5"));
    let options = GenerateOptions::default().max_tokens(8).seed(5).logprobs(3);
    let generate = |path: &Path, options: GenerateOptions, chat| {
        Box::new(Generate { session: load(path, 1).session(), options, chat }) as Box<dyn Attempt>
    };
    let batch = |each| {
        let model = load(demo(), 1);
        let mut sessions = vec![model.session(), model.session(), model.session()];
        sessions.iter_mut().for_each(|session| drop(session.forward(&[9]).expect("tokens compute")));
        Box::new(Batch { sessions, each })
    };
    match case {
        "load-gguf" => Box::new(Load(gguf)),
        "load-safetensors" => Box::new(Load(demo())),
        "prompt" => Prompt::boxed(&load(demo(), 1), 500, false),
        "prompt-on-two-threads" => Prompt::boxed(&load(gguf, 2), 500, false),
        "prompt-of-experts" => Prompt::boxed(&load(bf16(&QWEN, "qwen2-moe"), 1), 300, false),
        // Longer than a chunk, than a part of attention and than the original context.
        "prompt-long" => Prompt::boxed(&load(phi(), 1), 2500, false),
        "logits" => Prompt::boxed(&load(demo(), 1), 300, true),
        "batch" => batch(100),
        "batch-in-chunks" => batch(400),
        "greedy" => generate(&demo(), options.temperature(0.0), None),
        "drawn" => generate(&gguf, options.temperature(0.8).top_k(40).top_p(0.9), None),
        "drawn-of-all" => generate(&gguf, options.temperature(0.8), None),
        "restore" => Restore::boxed(load(demo(), 1), 300),
        "guessed" => {
            // It repeats itself where it is made to.
            let options = options.temperature(0.0).frequency_penalty(-2.0).ignore_stop(true).max_tokens(12);
            generate(&demo(), options.speculate(Speculation::Ngram).speculative_tokens(4), None)
        }
        "drafted" => {
            let model = common::builder().threads(1).draft(demo()).load(gguf).expect("the model loads");
            let options = options.temperature(0.8).speculate(Speculation::Draft).speculative_tokens(3).max_tokens(6);
            Box::new(Generate { session: model.session(), options, chat: None })
        }
        "chat" => {
            let long = "Tell me something about the sea. ".repeat(40);
            generate(phi(), options, Some(vec![Message::user(long)]))
        }
        other => panic!("no case is called {other}"),
    }
}

/// One attempt in which allocation `n` fails: what came of it, or `None` when there were not so many.
fn attempted(case: &str, n: i64, from: usize, expected: &str) -> Option<String> {
    // On a thread of its own, whose memory goes with it.
    let run = || {
        let mut attempt = attempt(case);
        Failing::arm(n, from);
        let result = attempt.run();
        Failing::disarm();
        let failed = FAILED.load(Ordering::Relaxed);
        let outcome = match result {
            Ok(result) => {
                assert_eq!(result, expected, "{case} {n}: other bits");
                "the right result".to_owned()
            }
            Err(Error::OutOfMemory(OutOfMemory { what, bytes })) => {
                assert!(bytes > 0, "{case} {n}: {bytes} bytes for {what}");
                what.to_owned()
            }
            Err(error) => format!("code {}: {error}", error.code()),
        };
        if failed {
            if outcome != "the right result" {
                attempt.check();
            }
            let again = attempt.run().unwrap_or_else(|error| panic!("{case} {n}, asked again: {error}"));
            assert_eq!(again, expected, "{case} {n}: other bits when asked again");
        }
        failed.then_some(outcome)
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("an attempt"))
}

/// What the child process does: attempts from `first` on, a line each, until nothing fails any more.
fn child(case: &str, first: i64, from: usize) {
    let expected = std::thread::scope(|scope| {
        let run = || attempt(case).run().expect("the case runs");
        scope.spawn(run).join().expect("a result")
    });
    attempted(case, i64::MAX, from, &expected); // all that is allocated once
    for n in first..first + MOST {
        let before = LIVE.load(Ordering::Relaxed);
        let outcome = attempted(case, n, from, &expected);
        let bytes = outcome.as_ref().map_or(0, String::capacity) as i64;
        let lost = LIVE.load(Ordering::Relaxed) - before - bytes;
        assert_eq!(lost, 0, "{case} {n}: bytes lost; {outcome:?}");
        match outcome {
            Some(outcome) => println!("outcome {n} {outcome}"),
            None => return println!("end {n}"),
        }
    }
    panic!("{case}: no end after {MOST} attempts");
}

/// Runs a case in child processes, each to the first abort, and counts what came of it.
fn outcomes(case: &str, from: usize) -> BTreeMap<String, usize> {
    let run = |first: i64| {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "in_a_child", "--nocapture", "--test-threads=1"]);
        child.env("OUT_OF_MEMORY_CASE", format!("{case} {first} {from}"));
        let output = child.output().expect("a child process");
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
            output.status,
        )
    };
    let (mut counts, mut first) = (BTreeMap::new(), 0);
    loop {
        let (lines, errors, status) = run(first);
        for outcome in lines.lines().filter_map(|line| line.split_once("outcome ")?.1.split_once(' ')) {
            first = outcome.0.parse::<i64>().expect("a number") + 1;
            *counts.entry(outcome.1.to_owned()).or_default() += 1;
        }
        if status.success() {
            assert!(lines.contains(&format!("end {first}")), "{case}: {lines}");
            return counts;
        }
        assert_eq!(status.signal(), Some(6), "{case}, allocation {first}: {status}\n{lines}{errors}");
        let site = lines.lines().find_map(|line| line.split_once("site ")?.1.split_once(' '));
        let (size, trace) = site.expect("an allocation aborts");
        let size: usize = size.parse().expect("a size");
        let foreign = FOREIGN.iter().find(|(name, most)| trace.contains(name) && size <= *most);
        let name = match foreign {
            Some((name, _)) => format!("abort in {name}"),
            None if size < LARGE => "abort of a small allocation".to_owned(),
            None => format!("{UNLISTED}{}", trace.split(" 24: ").next().unwrap_or_default()),
        };
        *counts.entry(name).or_default() += 1;
        first += 1;
    }
}

#[test]
fn in_a_child() {
    let Ok(case) = std::env::var("OUT_OF_MEMORY_CASE") else { return };
    let words: Vec<&str> = case.split(' ').collect();
    let [case, first, from] = words[..] else { panic!("{case}") };
    let (first, from) = (first.parse().expect("a number"), from.parse().expect("a number"));
    // SAFETY: the process ends after the handler, and what it calls was not interrupted: an abort is a call.
    unsafe { libc::signal(libc::SIGABRT, aborting as *const () as libc::sighandler_t) };
    child(case, first, from);
}

#[test]
fn every_large_allocation_may_fail() {
    let from = std::env::var("OUT_OF_MEMORY_FROM").ok().map(|from| from.parse().expect("bytes"));
    let only = std::env::var("OUT_OF_MEMORY_ONLY").ok();
    let mut wrong = Vec::new();
    for (case, large, refused) in CASES.iter().filter(|(case, ..)| only.as_ref().is_none_or(|only| only == case)) {
        let counts = outcomes(case, from.unwrap_or(*large));
        println!("{case}, from {} bytes", from.unwrap_or(*large));
        for (outcome, count) in &counts {
            println!("{count:>8} {outcome}");
        }
        assert!(!counts.is_empty(), "{case}: nothing failed");
        wrong.extend(
            refused
                .iter()
                .copied()
                .flatten()
                .filter(|what| !counts.contains_key(**what))
                .map(|what| (case, format!("never: {what}"))),
        );
        wrong.extend(counts.into_keys().filter(|outcome| outcome.starts_with(UNLISTED)).map(|site| (case, site)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
