//! The promise: the ids of a generation do not depend on what else runs. Random schedules of threads, streams, restored sessions
//! and batches by hand on one model, with prefixes that are shared and tokens that are guessed, and with others that are
//! cancelled, fail or panic, compared with the ids of each alone.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common;

use futures::StreamExt;
use futures::executor::block_on;
use model_factory::session::WeightsDigest;
use model_factory::{CancellationToken, Error, GenerateOptions, Generation, Model, Session, Speculation};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Models, and how many schedules of each; every one has up to 16 generations: attention, and each other kind of layer.
const SCHEDULES: [(&str, u64); 9] = [
    ("../demo-q4_k_m.gguf", 1000),
    ("qwen3.5/q8_0.gguf", 200),
    ("granite-4-h/q8_0.gguf", 100),
    ("deepseek-v3/q8_0.gguf", 20),
    ("mamba/q8_0.gguf", 20),
    ("kimi-linear/q8_0.gguf", 20),
    ("falcon-h1/q8_0.gguf", 20),
    ("llama-4/q8_0.gguf", 20),
    ("gemma-3n/q8_0.gguf", 20),
];

/// Tokens that each generates at most.
const GENERATED: usize = 10;

/// A generator of numbers (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What is generated: prompts of one token to several chunks, greedy or drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    seed: u32,
    prompt: usize,
    drawn: bool,
}

impl Request {
    fn prompt(self) -> Vec<u32> {
        (0..self.prompt as u32).map(|index| 20 + (index * 97 + self.seed * 31) % 230).collect()
    }

    fn options(self) -> GenerateOptions {
        let options = GenerateOptions::default().max_tokens(GENERATED).ignore_stop(true);
        match self.drawn {
            true => options.temperature(1.0).top_p(0.95).repetition_penalty(1.1).seed(u64::from(self.seed)),
            false => options.temperature(0.0),
        }
    }
}

/// What a request gives on a model of its own.
struct Alone {
    ids: Vec<u32>,
    text: String,
    /// The logits after its prompt.
    first: Vec<f32>,
    /// A session that holds a part of its prompt.
    saved: PathBuf,
}

impl Alone {
    fn new(model: &Model, request: Request, folder: &Path) -> Alone {
        let (prompt, mut session) = (request.prompt(), model.session());
        let saved = folder.join(format!("{request:?}.session"));
        let (begin, rest) = prompt.split_at(prompt.len() / 2);
        if !begin.is_empty() {
            session.forward(begin).unwrap();
        }
        session.save(&saved, WeightsDigest::Sampled).unwrap();
        let first = session.forward(rest).unwrap().to_vec1().unwrap();
        let mut generation = model.generate(&prompt, &request.options()).unwrap();
        let text = generation.text().unwrap();
        Alone { ids: generation.ids().to_vec(), text, first, saved }
    }
}

/// Guesses that were right.
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

/// How a generation takes part.
#[derive(Clone, Copy, Debug)]
enum Way {
    Thread,
    Stream,
    /// On a session from a file.
    Restored,
    /// By hand, in a batch of all requests of the schedule.
    Batch,
    /// Is cancelled after so many tokens.
    Cancelled(usize),
    /// Its caller panics after the first token.
    Panics,
    /// Asks for an id that is none.
    Fails,
}

fn ids(model: &Model, request: Request) -> Vec<u32> {
    let mut generation = model.generate(&request.prompt(), &request.options()).unwrap();
    generation.text().unwrap();
    generation.ids().to_vec()
}

/// Takes part, with so many guesses a step, and compares what it generated.
fn take_part(
    model: &Model,
    (request, way, guesses): (Request, Way, usize),
    all: &[Request],
    alone: &HashMap<Request, Alone>,
) {
    let expected = &alone[&request].ids;
    let begun = |ids: &[u32]| assert_eq!(ids, &expected[..ids.len()], "{request:?} {way:?}");
    let mut options = request.options();
    if guesses > 0 {
        // By chance it repeats what it is going to say.
        options = options.speculate(Speculation::Ngram).speculative_tokens(guesses);
        options = options.speculate_from(&alone[&request].text);
    }
    let ended = |generation: &Generation<Session>| {
        assert_eq!(generation.ids(), expected, "{request:?} {way:?} {guesses}");
        ACCEPTED.fetch_add(generation.finish().1.accepted, Ordering::Relaxed);
    };
    match way {
        Way::Thread | Way::Restored => {
            let session = match way {
                Way::Restored => model.restore(&alone[&request].saved).unwrap(),
                _ => model.session(),
            };
            let mut generation = session.into_generation(&request.prompt(), &options).unwrap();
            generation.text().unwrap();
            ended(&generation);
        }
        Way::Stream => {
            let mut stream = model.generate(&request.prompt(), &options).unwrap().into_stream();
            block_on(async { while stream.next().await.is_some_and(|piece| piece.is_ok()) {} });
            ended(&stream.into_generation().unwrap());
        }
        Way::Batch => {
            let prompts: Vec<Vec<u32>> = all.iter().map(|request| request.prompt()).collect();
            let mut sessions: Vec<Session> = prompts.iter().map(|_| model.session()).collect();
            let mut steps: Vec<(&mut Session, &[u32])> =
                sessions.iter_mut().zip(&prompts).map(|(session, ids)| (session, ids.as_slice())).collect();
            let rows = Session::batch(&mut steps).unwrap().to_vec2::<f32>().unwrap();
            for (request, row) in all.iter().zip(rows) {
                assert!(row == alone[request].first, "{request:?} in a batch of {}", all.len());
            }
        }
        Way::Cancelled(after) => {
            let cancel = CancellationToken::new();
            let mut generation = model.generate(&request.prompt(), &request.options().cancel(&cancel)).unwrap();
            for _ in 0..after {
                generation.next();
            }
            cancel.cancel();
            assert!(generation.all(|piece| piece.is_ok()));
            begun(generation.ids());
        }
        Way::Panics => {
            let mut generation = model.generate(&request.prompt(), &request.options()).unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                generation.next();
                std::panic::panic_any(());
            }));
            assert!(panicked.is_err());
            begun(generation.ids());
        }
        Way::Fails => {
            let outside = model.spec().vocab as u32;
            let refused = model.session().forward(&[1, outside]);
            assert!(matches!(refused, Err(Error::TokenOutOfVocabulary { .. })));
        }
    }
}

#[test]
fn ids_do_not_depend_on_the_company() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref() != Some(&()) {
            hook(panic);
        }
    }));
    let mut others = 0;
    for (file, schedules) in SCHEDULES {
        let accepted = ACCEPTED.load(Ordering::Relaxed);
        run_schedules(&common::archives::path(file), schedules);
        let accepted = ACCEPTED.load(Ordering::Relaxed) - accepted;
        match schedules {
            100.. => assert!(accepted > schedules as usize / 10, "{file}: {accepted} guesses were right"),
            // The random weights of some repeat themselves hardly ever.
            _ => others += accepted,
        }
    }
    // How many depends on who computes with whom; one says that guesses were made and accepted.
    assert!(others > 0, "{others} guesses were right");
}

fn run_schedules(file: &Path, schedules: u64) {
    let model = common::builder().threads(2).prefix_caching(true).load(file).unwrap();
    // Where each is computed, whatever others have left.
    let plain = common::load(file);
    let folder = tempfile::tempdir().unwrap();
    let mut alone: HashMap<Request, Alone> = HashMap::new();
    for schedule in 1..=schedules {
        let mut random = Random(schedule * 0x9e37_79b9_7f4a_7c15);
        let count = 1 + random.below(16);
        let parts: Vec<((Request, Way, usize), u64)> = (0..count)
            .map(|_| {
                let prompt = [1, 2, 7, 30, 129, 200][random.below(6) as usize];
                let request = Request { seed: random.below(6) as u32, prompt, drawn: random.below(2) == 0 };
                let way = match random.below(24) {
                    0..10 => Way::Thread,
                    10..14 => Way::Stream,
                    14..17 => Way::Restored,
                    17 => Way::Batch,
                    18..20 => Way::Cancelled(random.below(GENERATED as u64) as usize),
                    20..22 => Way::Panics,
                    _ => Way::Fails,
                };
                let guesses = [0, 0, 0, 1, 4][random.below(5) as usize];
                ((request, way, guesses), random.below(4))
            })
            .collect();
        let all: Vec<Request> = parts.iter().map(|((request, ..), _)| *request).collect();
        for request in &all {
            alone.entry(*request).or_insert_with(|| Alone::new(&plain, *request, folder.path()));
        }
        thread::scope(|scope| {
            for (part, delay) in parts {
                let (model, all, alone) = (&model, &all, &alone);
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(delay * 300));
                    take_part(model, part, all, alone);
                });
            }
        });
    }
}

#[test]
fn batches_by_hand_and_threads_share_a_model() {
    let model = common::builder().threads(2).load(common::demo()).unwrap();
    let requests: Vec<Request> = (0..4).map(|seed| Request { seed, prompt: 40, drawn: false }).collect();
    let alone: Vec<Vec<u32>> = requests.iter().map(|request| ids(&model, *request)).collect();
    thread::scope(|scope| {
        for (request, expected) in requests.iter().zip(&alone) {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(ids(&model, *request), *expected)));
        }
        scope.spawn(|| {
            let logits = |session: &mut Session, ids: &[u32]| session.forward(ids).unwrap().to_vec1::<f32>().unwrap();
            let prompts: Vec<Vec<u32>> = requests.iter().map(|request| request.prompt()).collect();
            let expected: Vec<Vec<f32>> = prompts.iter().map(|ids| logits(&mut model.session(), ids)).collect();
            for _ in 0..20 {
                let mut sessions: Vec<Session> = prompts.iter().map(|_| model.session()).collect();
                let mut steps: Vec<(&mut Session, &[u32])> =
                    sessions.iter_mut().zip(&prompts).map(|(session, ids)| (session, ids.as_slice())).collect();
                assert_eq!(Session::batch(&mut steps).unwrap().to_vec2::<f32>().unwrap(), expected);
            }
        });
    });
}

/// Many more streams than a step takes, all at once.
#[test]
fn a_thousand_streams_finish() {
    let model = common::load(common::fixtures().join("demo-q4_k_m.gguf"));
    let request = Request { seed: 3, prompt: 5, drawn: false };
    let expected = ids(&model, request);
    let streams = (0..1000).map(|_| model.generate(&request.prompt(), &request.options()).unwrap().into_stream());
    let ended = futures::future::join_all(streams.map(|mut stream| async {
        stream.text().await.unwrap();
        stream.into_generation().unwrap().ids().to_vec()
    }));
    assert!(block_on(ended).iter().all(|ids| *ids == expected));
}
