//! The thread pool: hundreds of short parallel regions for each token, each handed over in well under a microsecond or two.
//!
//! # How a region runs
//!
//! One word, `state`, holds the region's number, whether it is open, and how many workers are inside. The caller writes
//! the job and then opens the region in `state` (release); a worker that sees an open region it has not been in enters
//! by adding one (acquire), so it reads the job as written. Tasks are handed out by a counter. When the counter has run
//! out, the caller closes the region, after which no worker can enter, and waits until the workers inside have left
//! (release by the worker, acquire by the caller): then every task is done and its effects are visible, and the job,
//! which borrows from the caller's stack, is no longer referred to. A worker that comes too late is not waited for.
//!
//! All changes of `state` while a region is open add or take away in one step, so each continues the release sequences of those
//! before it: the caller acquires what every worker released, not only the last, and a worker acquires what the caller released,
//! whichever entered between. So the change that closes can be relaxed, and the counter too: its numbers publish nothing.
//!
//! In a process that was forked while no region ran, no worker ever enters, and the caller does every task itself.
//!
//! # Waiting
//!
//! A worker without a region spins for `SPIN`, then parks. Parking and opening could miss each other: the worker
//! announces that it is going to park and then looks at `state` once more, the caller opens the region and then looks
//! for announcements. All four are sequentially consistent, so at least one of the two sees the other.

mod grid;
#[doc(hidden)]
pub mod sync;

pub use grid::{Tile, TileMut};

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sync::thread::{self, JoinHandle};
use sync::{Arc, Mutex, UnsafeCell, hint, in_order};

/// How long an idle worker looks for the next region before it parks. The gaps between the regions of a token are
/// shorter; the time from one token to the next may be longer. For loom looking once is as good.
const SPIN: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_micros(100) };

/// How often a worker looks before it reads the clock.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 32 };

/// The parts of `state`: the number of workers inside, whether the region is open, whether the pool is being dropped, and the
/// region's number above.
const INSIDE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
const REGION: u64 = 1 << 18;

type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// The job that the caller of a region leaves for the workers.
#[derive(Clone, Copy)]
struct Job {
    task: Task<'static>,
    tasks: usize,
}

/// A value on cache lines of its own (two, as processors fetch them in pairs).
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    state: Apart<AtomicU64>,
    next: Apart<AtomicUsize>,
    /// Taken by the caller of the region.
    busy: Apart<AtomicBool>,
    /// Written by the holder of `busy` while no region is open, read by workers inside a region.
    job: UnsafeCell<Option<Job>>,
    /// Announcements of the workers that park.
    parked: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only part that is not `Sync` by itself. It is written by the one thread that holds `busy`, and
// only after the previous region was closed and left by all workers; it is read by workers only between entering and
// leaving an open region.
unsafe impl Sync for Shared {}

/// Workers that wait for parallel regions; the calling thread takes part in each.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// The process that has the workers: one forked from it has none.
    process: u32,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` threads in all, the caller's included: `threads - 1` are started. If the system refuses to
    /// start more, the pool is as large as it allows.
    pub fn new(threads: usize) -> Pool {
        let workers = threads.clamp(1, INSIDE as usize) - 1;
        let shared = Arc::new(Shared {
            state: Apart(AtomicU64::new(0)),
            next: Apart(AtomicUsize::new(0)),
            busy: Apart(AtomicBool::new(false)),
            job: UnsafeCell::new(None),
            parked: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
        });
        let workers = (0..workers).map_while(|index| {
            let shared = Arc::clone(&shared);
            let name = format!("model-factory-{}", index + 1);
            thread::Builder::new().name(name).spawn(move || work(&shared, index)).ok()
        });
        let workers = workers.collect();
        Pool { shared, workers, process: std::process::id() }
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, on all threads, and returns when all are done. Callable from
    /// several threads at once and from within a task: a caller that finds the workers busy runs its tasks itself.
    /// Panics when a task panicked, with the payload of one that did; the other tasks have run nevertheless.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        if tasks <= 1 || self.workers.is_empty() || shared.busy.0.swap(true, Ordering::Acquire) {
            run_alone(tasks, task);
            return;
        }
        // SAFETY: only the lifetime changes. The region is left by all workers before this function returns or unwinds,
        // and nobody looks at the job outside an open region.
        let task = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        // SAFETY: this thread holds `busy` and no region is open, so no other thread looks at the job.
        shared.job.with_mut(|job| unsafe { *job = Some(Job { task, tasks }) });
        shared.next.0.store(0, Ordering::Relaxed);
        // No worker is inside and the region is closed: adding both opens the next one.
        shared.state.0.fetch_add(REGION | OPEN, Ordering::SeqCst);
        in_order();
        let wanted = self.workers.iter().zip(&shared.parked).take(tasks - 1);
        for (worker, parked) in wanted {
            if parked.load(Ordering::SeqCst) && parked.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.take_tasks(task, tasks);
        shared.state.0.fetch_and(!OPEN, Ordering::Relaxed);
        let mut waited = 0u32;
        while shared.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            wait_a_little(&mut waited);
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.0.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Runs `task(index, chunk)` for every chunk of `chunk_len` elements of `data` (the last may be shorter), as
    /// [`Pool::run`] does. Panics if `chunk_len` is 0.
    pub fn chunks<T: Send>(&self, data: &mut [T], chunk_len: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        assert!(chunk_len > 0, "chunks have at least one element");
        let len = data.len();
        let data = Split::new(data);
        self.run(len.div_ceil(chunk_len), &|index| {
            let start = index * chunk_len;
            // SAFETY: the chunks of different tasks do not overlap, and each task is run once.
            task(index, unsafe { data.part(start, chunk_len.min(len - start)) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Threads of another process cannot be joined or detached.
            std::mem::forget(std::mem::take(&mut self.workers));
            return;
        }
        self.shared.state.0.fetch_or(STOP, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Panics of tasks are caught, so no worker ends by one.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Runs tasks until there are none left to take.
    fn take_tasks(&self, task: Task<'_>, tasks: usize) {
        loop {
            let index = self.next.0.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
                return;
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(index))) {
                let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(payload);
            }
        }
    }

    /// Enters the region in `state`, unless it has changed meanwhile.
    fn enter(&self, state: u64) -> bool {
        self.state.0.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Runs all tasks on this thread, with the same treatment of panics as a shared region.
fn run_alone(tasks: usize, task: Task<'_>) {
    let mut panic = None;
    for index in 0..tasks {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(index))) {
            panic.get_or_insert(payload);
        }
    }
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// Spins, and yields the processor to others now and then once that has not been enough.
#[inline]
fn wait_a_little(waited: &mut u32) {
    *waited = waited.wrapping_add(1);
    if *waited > 2000 && waited.is_multiple_of(64) {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}

/// The main loop of a worker.
fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    let mut idle_since: Option<Instant> = None;
    let mut waited = 0u32;
    loop {
        let state = shared.state.0.load(Ordering::Acquire);
        if state & STOP != 0 {
            return;
        }
        let region = state / REGION;
        if state & OPEN != 0 && region != seen {
            if shared.enter(state) {
                seen = region;
                // SAFETY: this worker is inside an open region, and the job was written before that was opened.
                if let Some(job) = shared.job.with(|job| unsafe { *job }) {
                    shared.take_tasks(job.task, job.tasks);
                }
                shared.state.0.fetch_sub(1, Ordering::Release);
                (idle_since, waited) = (None, 0);
            }
            continue;
        }
        waited = waited.wrapping_add(1);
        if !waited.is_multiple_of(LOOKS) {
            hint::spin_loop();
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SPIN {
            continue;
        }
        shared.parked[index].store(true, Ordering::SeqCst);
        in_order();
        let state = shared.state.0.load(Ordering::SeqCst);
        if state & STOP == 0 && (state & OPEN == 0 || state / REGION == seen) {
            thread::park();
        }
        shared.parked[index].store(false, Ordering::SeqCst);
        (idle_since, waited) = (None, 0);
    }
}

/// A slice that several threads write, each its own part.
pub(crate) struct Split<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out parts of a slice of `Send` elements; that they do not overlap is the contract of `part`.
unsafe impl<T: Send> Sync for Split<'_, T> {}

impl<'a, T> Split<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Split<'a, T> {
        Split { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The same slice once more, for another thread.
    pub(crate) fn share(&self) -> Split<'a, T> {
        Split { start: self.start, len: self.len, slice: PhantomData }
    }

    /// The elements `start .. start + len`. Panics when there are fewer.
    ///
    /// # Safety
    /// Parts that exist at the same time do not overlap.
    #[allow(clippy::mut_from_ref)] // the contract takes the place of the unique borrow
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {}", self.len);
        // SAFETY: the elements are inside the slice, which is borrowed for `'a`; the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn each_once(pool: &Pool, tasks: usize) {
        let runs: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
        pool.run(tasks, &|index| {
            runs[index].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn runs_each_task_once() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for round in 0..200 {
                for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                    each_once(&pool, tasks);
                }
                if round % 50 == 49 {
                    thread::sleep(3 * SPIN); // parked workers come back
                }
            }
        }
    }

    #[test]
    fn serves_nested_and_concurrent_callers() {
        let pool = Pool::new(3);
        let count = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(8, &|_| pool.run(4, &|_| _ = count.fetch_add(1, Ordering::Relaxed)));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4 * 100 * 8 * 4);
    }

    #[test]
    fn passes_a_panic_on_and_lives() {
        for threads in [1, 2, 4] {
            let pool = Pool::new(threads);
            for bad in [0, 5, 15] {
                let runs = AtomicU32::new(0);
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.run(16, &|index| {
                        runs.fetch_add(1, Ordering::Relaxed);
                        assert!(index != bad, "task {index}");
                    });
                }));
                let payload = caught.unwrap_err();
                assert_eq!(payload.downcast_ref::<String>(), Some(&format!("task {bad}")));
                assert_eq!(runs.into_inner(), 16);
                each_once(&pool, 100);
            }
        }
    }

    #[test]
    fn hands_out_every_chunk_once() {
        let pool = Pool::new(2);
        let mut data = vec![0usize; 1001];
        pool.chunks(&mut data, 10, |index, chunk| chunk.iter_mut().for_each(|x| *x += index + 1));
        assert!(data.iter().enumerate().all(|(i, &x)| x == i / 10 + 1));
        pool.chunks(&mut [] as &mut [u8], 10, |_, _| panic!("no chunks"));
    }
}
