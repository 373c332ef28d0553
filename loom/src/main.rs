//! The pool and the queue of the library, in every order that threads can take their steps: loom runs each model again
//! and again, a different order each time, and fails on an access without order, a deadlock and a false claim.

use library::cancel::CancellationToken;
use library::scheduler::queue::{Caller, Queue, Steps, Waiting};
use library::threads; // by the path that it has in the library
use library::threads::Pool;
use loom::cell::UnsafeCell;
use loom::hint;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The sources of the library, with loom's types.
#[path = "../../crates"]
#[allow(dead_code, unused_imports)] // what is not tried
mod library {
    #[path = "format/src/cancel.rs"]
    pub mod cancel;
    #[path = "engine/src/scheduler"]
    pub mod scheduler {
        pub mod queue;
    }
    #[path = "kernels/src/threads/mod.rs"]
    pub mod threads;
}

/// What the sources above need of the library's errors.
mod error {
    #[derive(Debug)]
    pub enum Error {
        Forked,
        #[allow(dead_code)] // nothing is refused
        OutOfMemory(crate::memory::OutOfMemory),
    }
    pub type Result<T, E = Error> = std::result::Result<T, E>;

    impl From<crate::memory::OutOfMemory> for Error {
        fn from(refused: crate::memory::OutOfMemory) -> Error {
            Error::OutOfMemory(refused)
        }
    }
}

/// What they need of its memory.
mod memory {
    #[derive(Debug)]
    #[allow(dead_code)] // as above
    pub struct OutOfMemory {
        pub what: &'static str,
        pub bytes: usize,
    }
}

/// Runs `model` in every order, or in those with at most `preemptions` threads held up in the middle of their work, and
/// prints how many orders there were.
fn try_orders(name: &str, preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let (start, orders) = (Instant::now(), std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check({
        let orders = orders.clone();
        move || {
            orders.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            model();
        }
    });
    let bound = preemptions.map_or("every order".into(), |most| format!("up to {most} preemptions"));
    println!(
        "{name}: {} orders ({bound}), {:.1} s",
        orders.load(std::sync::atomic::Ordering::Relaxed),
        start.elapsed().as_secs_f64()
    );
}

/// A count that loom watches: two threads at it without an order between them fail the model.
struct Watched(UnsafeCell<usize>);

// SAFETY: loom fails the model where two threads are at it at once.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: loom fails the model where another thread is at it.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn count(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|count| unsafe { *count })
    }
}

fn watched(count: usize) -> Vec<Watched> {
    (0..count).map(|_| Watched::new()).collect()
}

fn counts(of: &[Watched]) -> Vec<usize> {
    of.iter().map(Watched::count).collect()
}

/// A region of `tasks`: each is run once, and what it wrote is seen after the region.
fn region(pool: &Pool, tasks: usize) {
    let runs = watched(tasks);
    pool.run(tasks, &|task| runs[task].add());
    assert!(counts(&runs).iter().all(|runs| *runs == 1));
}

/// A region whose first two tasks wait for each other: it ends only when a worker comes.
fn meeting(pool: &Pool) {
    let met = AtomicUsize::new(0);
    pool.run(2, &|_| {
        met.fetch_add(1, Ordering::AcqRel);
        while met.load(Ordering::Acquire) < 2 {
            hint::spin_loop();
        }
    });
}

fn main() {
    try_orders("a pool that was not used is dropped", None, || drop(Pool::new(2)));
    try_orders("a region", None, || region(&Pool::new(2), 2));
    try_orders("more tasks than threads", Some(4), || region(&Pool::new(2), 3));
    try_orders("a region on two workers", Some(2), || region(&Pool::new(3), 3));
    try_orders("a region behind another", Some(4), || {
        let pool = Pool::new(2);
        region(&pool, 2);
        region(&pool, 3);
    });
    try_orders("a worker comes, parked or not", None, || meeting(&Pool::new(2)));
    try_orders("a worker comes again", Some(4), || {
        let pool = Pool::new(2);
        meeting(&pool);
        meeting(&pool);
    });
    try_orders("the parts of a slice are apart", None, || {
        let pool = Pool::new(2);
        let mut data = watched(3);
        pool.chunks(&mut data, 2, |_, part| part.iter().for_each(Watched::add));
        assert_eq!(counts(&data), [1; 3]);
    });
    try_orders("a region within a task runs there", Some(4), || {
        let pool = Pool::new(2);
        let runs = watched(4);
        pool.run(2, &|outer| pool.run(2, &|inner| runs[2 * outer + inner].add()));
        assert_eq!(counts(&runs), [1; 4]);
    });
    try_orders("two callers at once", Some(3), || {
        let pool = Arc::new(Pool::new(2));
        let other = thread::spawn({
            let pool = Arc::clone(&pool);
            move || region(&pool, 2)
        });
        region(&pool, 2);
        other.join().expect("the other caller ends well");
    });
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The one that a model is about is expected, often.
        if panic.payload().downcast_ref() != Some(&"expected") {
            hook(panic);
        }
    }));
    try_orders("a panic in a task", Some(3), || {
        let pool = Pool::new(2);
        let runs = watched(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(2, &|task| {
                runs[task].add();
                assert!(task != 1, "expected");
            });
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"expected"));
        assert_eq!(counts(&runs), [1; 2]);
        region(&pool, 2);
    });
    queue();
}

/// Requests that take so many steps each.
struct Requests {
    computed: Watched,
    /// The most requests in one step.
    most: usize,
    /// Whether there is room for those that need some.
    room: AtomicBool,
}

impl Requests {
    fn new(most: usize) -> Arc<Requests> {
        Arc::new(Requests { computed: Watched::new(), most, room: AtomicBool::new(false) })
    }
}

struct Request {
    steps: usize,
    cancel: CancellationToken,
    cancelled: bool,
    needs_room: bool,
    held: bool,
}

impl Request {
    fn new(steps: usize) -> Request {
        Request { steps, cancel: CancellationToken::new(), cancelled: false, needs_room: false, held: false }
    }
}

impl Steps for Arc<Requests> {
    type Request = Request;

    fn choose(&self, waiting: &mut VecDeque<Waiting<Request>>) -> Vec<Waiting<Request>> {
        let room = self.room.load(Ordering::Relaxed);
        let (mut chosen, mut others) = (Vec::new(), VecDeque::new());
        for mut waiting in waiting.drain(..) {
            waiting.request.held = waiting.request.needs_room && !room;
            if waiting.request.held || chosen.len() == self.most {
                others.push_back(waiting);
            } else {
                chosen.push(waiting);
            }
        }
        *waiting = others;
        chosen
    }

    fn compute(&self, chosen: &mut [Waiting<Request>]) {
        assert!(!chosen.is_empty(), "a step of nothing");
        for waiting in chosen {
            self.computed.add(); // loom fails where two compute at once
            waiting.request.steps -= 1;
        }
    }

    fn rejoins(&self, _: &Request) -> bool {
        true
    }

    fn is_finished(request: &Request) -> bool {
        request.steps == 0 || request.cancelled
    }

    fn is_held(request: &Request) -> bool {
        request.held
    }

    fn cancelled(request: &mut Request) -> bool {
        request.cancelled = request.cancel.is_cancelled();
        request.cancelled
    }
}

/// One thread computes at a time, every request is finished and comes back to who made it, and nobody waits for ever: under
/// loom a wait ends by a notification alone.
fn queue() {
    for (name, others, rounds, most, preemptions) in [
        ("two threads, a step takes both", 1, 2, 2, Some(3)),
        ("two threads, a step takes one", 1, 1, 1, None),
        ("three threads, a step takes two", 2, 1, 2, Some(2)),
    ] {
        try_orders(name, preemptions, move || {
            let shared = Arc::new((Queue::default(), Requests::new(most)));
            let run = move |shared: &(Queue<Request>, Arc<Requests>)| {
                let caller = Arc::new(Caller::default());
                for round in 1..=rounds {
                    let request = Request::new(round);
                    let Ok(finished) = shared.0.run(&shared.1, &caller, vec![request]) else { panic!("refused") };
                    assert!(finished.len() == 1 && finished[0].steps == 0);
                }
            };
            let others: Vec<_> = (0..others)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || run(&shared))
                })
                .collect();
            run(&shared);
            let threads = others.len() + 1;
            others.into_iter().for_each(|other| other.join().expect("each is finished"));
            assert_eq!(shared.1.computed.count(), threads * (1..=rounds).sum::<usize>());
        });
    }
    try_orders("one that is called wakes", None, || {
        let shared = Arc::new((Queue::default(), Arc::new(Caller::default())));
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.0.wait(&Requests::new(1), &shared.1).is_empty()
        });
        shared.0.call(&shared.1);
        assert!(other.join().expect("it wakes"));
    });
    try_orders("one of two is cancelled", Some(3), || {
        let shared = Arc::new((Queue::default(), Requests::new(1)));
        let cancel = CancellationToken::new();
        let other = thread::spawn({
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            move || {
                let request = Request { cancel: cancel.clone(), ..Request::new(1) };
                let caller = Arc::new(Caller::default());
                cancel.cancel();
                shared.0.run(&shared.1, &caller, vec![request]).is_ok_and(|finished| finished.len() == 1)
            }
        });
        let request = Request::new(1);
        let finished = shared.0.run(&shared.1, &Arc::new(Caller::default()), vec![request]);
        assert!(finished.is_ok_and(|finished| finished[0].steps == 0));
        assert!(other.join().expect("it leaves"));
    });
    // Who frees the room computes before, or beside it, or not at all.
    for (name, steps, preemptions) in
        [("one is held until there is room", 0, None), ("one is held while another computes", 2, Some(3))]
    {
        try_orders(name, preemptions, move || {
            let shared = Arc::new((Queue::default(), Requests::new(2)));
            let run = |shared: &(Queue<Request>, Arc<Requests>), request| {
                let finished = shared.0.run(&shared.1, &Arc::new(Caller::default()), vec![request]);
                assert!(finished.is_ok_and(|finished| finished[0].steps == 0));
            };
            let held = thread::spawn({
                let shared = Arc::clone(&shared);
                move || run(&shared, Request { needs_room: true, ..Request::new(1) })
            });
            if steps > 0 {
                run(&shared, Request::new(steps));
            }
            shared.1.room.store(true, Ordering::Relaxed);
            shared.0.freed();
            held.join().expect("it is computed");
        });
    }
}
