//! The pool and the turns of the library, in every order that threads can take their steps: loom runs each model again
//! and again, a different order each time, and fails on an access without order, a deadlock and a false claim.

use library::cancel::CancellationToken;
use library::threads::Pool;
use library::turns::Turns;
use library::{cancel, threads}; // by the paths that they have in the library
use loom::cell::UnsafeCell;
use loom::hint;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The sources of the library, with loom's types.
#[path = "../../src"]
#[allow(dead_code, unused_imports)] // what is not tried
mod library {
    pub mod cancel;
    pub mod threads;
    pub mod turns;
}

/// What the sources above need of the library's errors.
mod error {
    #[derive(Debug)]
    pub enum Error {
        Cancelled,
        Forked,
    }
    pub type Result<T> = std::result::Result<T, Error>;
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

/// A region of `tasks`: each is run once, and what it wrote is seen behind the region.
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
    turns();
}

/// Turns come one at a time, those that were asked for earlier first, and nobody waits for ever: under loom a wait ends
/// by a notification alone.
fn turns() {
    for (name, others, rounds, preemptions) in [("two take turns", 1, 2, None), ("three take turns", 2, 1, Some(4))] {
        try_orders(name, preemptions, move || {
            let shared = Arc::new((Turns::default(), CancellationToken::new(), Watched::new()));
            let take = move |shared: &(Turns, CancellationToken, Watched)| {
                let (turns, cancel, served) = shared;
                for _ in 0..rounds {
                    let turn = turns.take(cancel).expect("nobody cancels");
                    assert!(served.count() >= turn.ahead, "it passed one of {} ahead", turn.ahead);
                    served.add();
                }
            };
            let others: Vec<_> = (0..others)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || take(&shared))
                })
                .collect();
            take(&shared);
            let threads = others.len() + 1;
            others.into_iter().for_each(|other| other.join().expect("each has its turns"));
            assert_eq!(shared.2.count(), threads * rounds);
        });
    }
}
