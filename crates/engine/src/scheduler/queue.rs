//! The queue of requests: a thread that finds no other thread computing takes the next step for all of
//! them.
//!
//! A thread that waits alone computes its own requests, without waking another. Of several, all but one sleep; the one
//! whose request completes a step computes it, and all threads with a request in it wake with its result.
//!
//! # Threads that come back
//!
//! A thread whose request was finished most often has another one soon: for the next token. So that the same threads
//! are in the next step too, it waits for them, for an eighth of the time that the last step took. A slower thread is
//! not waited for again until it has come back. A thread with several sequences is back with the first of them.

use crate::error::{Error, Result};
use crate::memory;
use crate::threads::sync::{Arc, Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};
use thread::ThreadId;

/// How often a waiting thread checks whether its requests were cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a thread with a held request waits at most before it checks the request again.
pub(crate) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The least and the most time that a step waits for the threads of the last one. Under loom nothing ends by time only.
const REJOIN_WINDOW: [Duration; 2] =
    if cfg!(loom) { [Duration::ZERO; 2] } else { [Duration::from_micros(200), Duration::from_millis(20)] };

/// How long a forked process waits for the lock of the queue, which is held for microseconds: a thread that holds it
/// longer does not exist here.
const FORK_TIMEOUT: Duration = Duration::from_secs(1);

/// Computes the requests of a queue.
pub(crate) trait Steps {
    /// The type of a request.
    type Request;

    /// Takes the requests of the next step out of `waiting`, at least one unless all are held. The first was in no step for
    /// the longest time.
    fn choose(&self, waiting: &mut VecDeque<Waiting<Self::Request>>) -> Vec<Waiting<Self::Request>>;

    /// Computes a step of `chosen`. Does not panic.
    fn compute(&self, chosen: &mut [Waiting<Self::Request>]);

    /// Whether it pays to wait for the thread of `request`, which is finished, as it soon comes back with another one
    /// and one step computes requests of several callers.
    fn rejoins(&self, request: &Self::Request) -> bool;

    /// Whether `request` is finished, with a result or an error.
    fn is_finished(request: &Self::Request) -> bool;

    /// Whether `request` cannot be computed before something is freed: [`choose`](Self::choose) found so.
    fn is_held(request: &Self::Request) -> bool;

    /// Finishes `request` if it was cancelled, and returns whether it was.
    fn cancelled(request: &mut Self::Request) -> bool;
}

#[derive(Debug)]
pub(crate) struct Queue<R> {
    state: Mutex<QueueState<R>>,
    /// The process whose threads wait.
    process: AtomicU32,
}

#[derive(Debug)]
struct QueueState<R> {
    /// Requests in the order in which they came, or were in a step that did not finish them; without those in a step.
    waiting: VecDeque<Waiting<R>>,
    /// Requests that their callers have not fetched.
    finished: Vec<Waiting<R>>,
    computing: bool,
    /// Threads that the next step waits for, at most until `until`.
    returning: Vec<ThreadId>,
    until: Option<Instant>,
    next: u64,
    /// When held requests are checked again, unless something is freed before; `None` means at once.
    recheck_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Waiting<R> {
    pub(crate) request: R,
    pub(crate) caller: Arc<Caller>,
    ticket: u64,
    thread: ThreadId,
}

/// A caller that waits for requests of its own: a thread at a time.
#[derive(Debug, Default)]
pub struct Caller {
    changed: Condvar,
    called: AtomicBool,
}

impl<R> Default for Queue<R> {
    fn default() -> Queue<R> {
        let state = QueueState {
            waiting: VecDeque::new(),
            finished: Vec::new(),
            computing: false,
            returning: Vec::new(),
            until: None,
            next: 0,
            recheck_at: None,
        };
        Queue { state: Mutex::new(state), process: AtomicU32::new(process::id()) }
    }
}

impl<R> Queue<R> {
    /// Appends `requests`, which [`wait`](Self::wait) gives back to `caller` when they are finished; an error gives
    /// them back.
    pub(crate) fn submit(&self, caller: &Arc<Caller>, requests: Vec<R>) -> Result<(), (Error, Vec<R>)> {
        if let Err(error) = self.check_process() {
            return Err((error, requests));
        }
        let thread = thread::current().id();
        let mut state = self.state();
        if state.waiting.try_reserve(requests.len()).is_err() || state.finished.try_reserve(requests.len()).is_err() {
            let bytes = requests.len().saturating_mul(size_of::<Waiting<R>>());
            return Err((memory::OutOfMemory { what: "the queue of a model", bytes }.into(), requests));
        }
        state.returning.retain(|other| *other != thread);
        for request in requests {
            let ticket = state.next;
            state.next += 1;
            state.waiting.push_back(Waiting { request, caller: Arc::clone(caller), ticket, thread });
        }
        Ok(())
    }

    /// Takes part in computing until requests of `caller` are finished, or it was called, and returns them.
    pub(crate) fn wait<S: Steps<Request = R>>(&self, steps: &S, caller: &Arc<Caller>) -> Vec<R> {
        self.finished(steps, caller).into_iter().map(|waiting| waiting.request).collect()
    }

    /// Computes `requests` with all others, and returns them finished, in their order.
    pub(crate) fn run<S>(&self, steps: &S, caller: &Arc<Caller>, requests: Vec<R>) -> Result<Vec<R>, (Error, Vec<R>)>
    where
        S: Steps<Request = R>,
    {
        let (count, mut all) = (requests.len(), Vec::new());
        self.submit(caller, requests)?;
        while all.len() < count {
            all.append(&mut self.finished(steps, caller));
        }
        all.sort_unstable_by_key(|waiting| waiting.ticket);
        Ok(all.into_iter().map(|waiting| waiting.request).collect())
    }

    /// Takes part in computing until requests of `caller` are finished, or it was called.
    fn finished<S: Steps<Request = R>>(&self, steps: &S, caller: &Arc<Caller>) -> Vec<Waiting<R>> {
        let is_own = |waiting: &Waiting<R>| Arc::ptr_eq(&waiting.caller, caller);
        let mut state = self.state();
        loop {
            state.leave::<S>(|waiting| is_own(waiting) && S::cancelled(&mut waiting.request));
            let called = caller.called.swap(false, Ordering::Relaxed);
            let finished: Vec<_> = state.finished.extract_if(.., |waiting| is_own(waiting)).collect();
            if called || !finished.is_empty() {
                return finished;
            }
            let may_compute = !state.computing && state.waiting.iter().any(is_own) && state.first::<S>().is_some();
            let wait = if may_compute { state.until_complete().min(POLL_INTERVAL) } else { POLL_INTERVAL };
            if wait.is_zero() {
                state = self.step(state, steps, caller);
            } else {
                state = caller.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Wakes `caller` from [`wait`](Self::wait), now or when it comes there.
    pub(crate) fn call(&self, caller: &Caller) {
        let _state = self.state(); // not between its look and its sleep
        caller.called.store(true, Ordering::Relaxed);
        caller.changed.notify_one();
    }

    /// Has held requests checked again.
    pub(crate) fn freed(&self) {
        if self.process.load(Ordering::Relaxed) != process::id() {
            return; // nobody of this process waits, and the lock may be held for ever
        }
        let mut state = self.state();
        state.recheck_at = None;
        if let Some(first) = state.waiting.front().filter(|_| !state.computing) {
            first.caller.changed.notify_one();
        }
    }

    fn step<'a, S: Steps<Request = R>>(
        &'a self,
        mut state: MutexGuard<'a, QueueState<R>>,
        steps: &S,
        caller: &Arc<Caller>,
    ) -> MutexGuard<'a, QueueState<R>> {
        state.until = None;
        state.returning.clear();
        let mut chosen = steps.choose(&mut state.waiting);
        let any_held = state.waiting.iter().any(|waiting| S::is_held(&waiting.request));
        state.recheck_at = any_held.then(|| Instant::now() + ADMISSION_TIMEOUT);
        if chosen.is_empty() {
            return state;
        }
        state.computing = true;
        drop(state);
        let begun = Instant::now();
        steps.compute(&mut chosen);
        let ended = Instant::now();
        let mut state = self.state();
        state.computing = false;
        let wait = (ended.duration_since(begun) / 8).clamp(REJOIN_WINDOW[0], REJOIN_WINDOW[1]);
        state.until = Some(ended + wait);
        for waiting in chosen {
            if !S::is_finished(&waiting.request) {
                state.waiting.push_back(waiting);
                continue;
            }
            if steps.rejoins(&waiting.request) && !state.returning.contains(&waiting.thread) {
                state.returning.push(waiting.thread);
            }
            if !Arc::ptr_eq(&waiting.caller, caller) {
                waiting.caller.changed.notify_one();
            }
            state.finished.push(waiting);
        }
        state.wake_first::<S>();
        state
    }

    /// Takes the queue over in a process that was forked. If nobody waited, nobody computed: then nothing is
    /// half done, and no lock is held by a thread that does not exist here.
    fn check_process(&self) -> Result<()> {
        let mine = process::id();
        if self.process.load(Ordering::Relaxed) == mine {
            return Ok(());
        }
        let state = lock_after_fork(&self.state)?;
        if self.process.load(Ordering::Relaxed) != mine && (state.computing || !state.waiting.is_empty()) {
            return Err(Error::Forked);
        }
        self.process.store(mine, Ordering::Relaxed);
        Ok(())
    }

    /// Nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, QueueState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks what a thread of another process, from which this one was forked, may hold for ever.
///
/// # Errors
/// `Forked` where it is held for [`FORK_TIMEOUT`].
pub(crate) fn lock_after_fork<T>(lock: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    let begun = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() > FORK_TIMEOUT => return Err(Error::Forked),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
}

impl<R> QueueState<R> {
    /// How long the next step still waits for others.
    fn until_complete(&self) -> Duration {
        let until = self.until.filter(|_| !self.returning.is_empty());
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    fn leave<S: Steps<Request = R>>(&mut self, mut leaves: impl FnMut(&mut Waiting<R>) -> bool) {
        let before = self.finished.len();
        for index in (0..self.waiting.len()).rev() {
            if leaves(&mut self.waiting[index]) {
                self.finished.extend(self.waiting.remove(index));
            }
        }
        if self.finished.len() > before {
            self.recheck_at = None; // it may be the one that others wait for
            self.wake_first::<S>();
        }
    }

    /// The first request that waits and may be computed.
    fn first<S: Steps<Request = R>>(&self) -> Option<&Waiting<R>> {
        let is_due = self.recheck_at.is_none_or(|at| at <= Instant::now());
        self.waiting.iter().find(|waiting| is_due || !S::is_held(&waiting.request))
    }

    /// Wakes the thread of that request, to check whether a step is to be computed.
    fn wake_first<S: Steps<Request = R>>(&self) {
        if let Some(first) = self.first::<S>().filter(|_| !self.computing) {
            first.caller.changed.notify_one();
        }
    }
}
