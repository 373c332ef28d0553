//! Who computes: threads put requests in a queue, and one that finds nobody computing takes the next step for all of them.
//!
//! A thread that is alone computes its own requests, without waking another. Of several, all but one sleep; the one whose
//! request completes a step computes it, and whoever was in it wakes with its result.
//!
//! # Threads that come back
//!
//! A thread whose request was finished most often has another one soon: for the next token. So that those of a step are in
//! the next one too, that waits for their threads, for an eighth of the time that the step took. Who takes longer is not
//! waited for again before it came back. A thread with several sequences came back with the first of them.

use crate::error::{Error, Result};
use crate::memory;
use crate::threads::sync::{Arc, Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};
use thread::ThreadId;

/// How often one that waits looks whether its requests were cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// How long one whose request is held waits at most before it is looked at again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The least and the most time that a step waits for the threads of the last one. Under loom nothing ends by time alone.
const RETURN: [Duration; 2] =
    if cfg!(loom) { [Duration::ZERO; 2] } else { [Duration::from_micros(200), Duration::from_millis(20)] };

/// How long a forked process waits for the lock of the queue, which is held for microseconds: who holds it longer is not
/// there.
const FORKED: Duration = Duration::from_secs(1);

/// Computes the requests of a queue.
pub(crate) trait Steps {
    /// What is asked for.
    type Request;

    /// Takes those of the next step out of `waiting`, at least one unless all are held. Who is first was in no step for the
    /// longest time.
    fn choose(&self, waiting: &mut VecDeque<Waiting<Self::Request>>) -> Vec<Waiting<Self::Request>>;

    /// Computes a step of `chosen`. Does not panic.
    fn compute(&self, chosen: &mut [Waiting<Self::Request>]);

    /// Whether one step computes requests of several callers, so that it pays to wait for them.
    fn shares_steps(&self) -> bool;

    /// Whether `request` is, with a result or an error.
    fn is_finished(request: &Self::Request) -> bool;

    /// Whether `request` cannot be computed before something is freed: [`choose`](Self::choose) found so.
    fn is_held(request: &Self::Request) -> bool;

    /// Finishes `request` if it was cancelled; whether it was.
    fn cancelled(request: &mut Self::Request) -> bool;
}

/// The requests of all threads.
#[derive(Debug)]
pub(crate) struct Queue<R> {
    line: Mutex<Line<R>>,
    /// The process whose threads wait.
    process: AtomicU32,
    /// Of those that compute something else between steps.
    others: Condvar,
}

#[derive(Debug)]
struct Line<R> {
    /// In the order in which they came, or were in a step that did not finish them. Those in a step are not here.
    waiting: VecDeque<Waiting<R>>,
    /// Those that their callers have not fetched.
    finished: Vec<Waiting<R>>,
    computing: bool,
    /// How many wait to compute something else, and since when the next step comes before them.
    others: usize,
    step_is_next: Option<Instant>,
    /// Threads that the next step waits for, and until when.
    returning: Vec<ThreadId>,
    until: Option<Instant>,
    next: u64,
    /// When those that are held are looked at again, unless something is freed before; `None` is at once.
    look: Option<Instant>,
}

/// A request and who made it.
#[derive(Debug)]
pub(crate) struct Waiting<R> {
    pub(crate) request: R,
    pub(crate) caller: Arc<Caller>,
    ticket: u64,
    thread: ThreadId,
}

/// One that waits for requests of its own: a thread at a time.
#[derive(Debug, Default)]
pub struct Caller {
    changed: Condvar,
    called: AtomicBool,
}

impl<R> Default for Queue<R> {
    fn default() -> Queue<R> {
        let line = Line {
            waiting: VecDeque::new(),
            finished: Vec::new(),
            computing: false,
            others: 0,
            step_is_next: None,
            returning: Vec::new(),
            until: None,
            next: 0,
            look: None,
        };
        Queue { line: Mutex::new(line), process: AtomicU32::new(process::id()), others: Condvar::new() }
    }
}

impl<R> Queue<R> {
    /// Appends `requests`, which [`wait`](Self::wait) gives back to `caller` when they are finished.
    ///
    /// # Errors
    /// `OutOfMemory`, `Forked`; with the requests.
    pub(crate) fn submit(&self, caller: &Arc<Caller>, requests: Vec<R>) -> Result<(), (Error, Vec<R>)> {
        if let Err(error) = self.check_process() {
            return Err((error, requests));
        }
        let thread = thread::current().id();
        let mut line = self.line();
        if line.waiting.try_reserve(requests.len()).is_err() || line.finished.try_reserve(requests.len()).is_err() {
            let bytes = requests.len().saturating_mul(size_of::<Waiting<R>>());
            return Err((memory::OutOfMemory { what: "the queue of a model", bytes }.into(), requests));
        }
        line.returning.retain(|other| *other != thread);
        for request in requests {
            let ticket = line.next;
            line.next += 1;
            line.waiting.push_back(Waiting { request, caller: Arc::clone(caller), ticket, thread });
        }
        Ok(())
    }

    /// Takes part in computing until requests of `caller` are finished, or it was called, and returns them.
    pub(crate) fn wait<S: Steps<Request = R>>(&self, steps: &S, caller: &Arc<Caller>) -> Vec<R> {
        self.finished(steps, caller).into_iter().map(|waiting| waiting.request).collect()
    }

    /// Computes `requests` with all others, and returns them finished, in their order.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
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
        let mut line = self.line();
        loop {
            line.leave::<S>(|waiting| is_own(waiting) && S::cancelled(&mut waiting.request));
            let called = caller.called.swap(false, Ordering::Relaxed);
            let finished: Vec<_> = line.finished.extract_if(.., |waiting| is_own(waiting)).collect();
            if called || !finished.is_empty() {
                return finished;
            }
            let may_compute = !line.computing
                && !line.is_for_others()
                && line.waiting.iter().any(is_own)
                && line.first::<S>().is_some();
            let wait = if may_compute { line.until_complete().min(LOOK) } else { LOOK };
            if wait.is_zero() {
                line = self.step(line, steps, caller);
            } else {
                line = caller.changed.wait_timeout(line, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Wakes `caller` from [`wait`](Self::wait), now or when it comes there.
    pub(crate) fn call(&self, caller: &Caller) {
        let _line = self.line(); // not between its look and its sleep
        caller.called.store(true, Ordering::Relaxed);
        caller.changed.notify_one();
    }

    /// Lets those that are held be looked at.
    pub(crate) fn freed(&self) {
        if self.process.load(Ordering::Relaxed) != process::id() {
            return; // nobody of this process waits, and the lock may be held for ever
        }
        let mut line = self.line();
        line.look = None;
        if let Some(first) = line.waiting.front().filter(|_| !line.computing) {
            first.caller.changed.notify_one();
        }
    }

    /// Computes a step on this thread.
    fn step<'a, S: Steps<Request = R>>(
        &'a self,
        mut line: MutexGuard<'a, Line<R>>,
        steps: &S,
        caller: &Arc<Caller>,
    ) -> MutexGuard<'a, Line<R>> {
        line.until = None;
        line.step_is_next = None;
        line.returning.clear();
        let mut chosen = steps.choose(&mut line.waiting);
        let any_held = line.waiting.iter().any(|waiting| S::is_held(&waiting.request));
        line.look = any_held.then(|| Instant::now() + PATIENCE);
        if chosen.is_empty() {
            return line;
        }
        line.computing = true;
        drop(line);
        let begun = Instant::now();
        steps.compute(&mut chosen);
        let ended = Instant::now();
        let mut line = self.line();
        line.computing = false;
        let wait = (ended.duration_since(begun) / 8).clamp(RETURN[0], RETURN[1]);
        line.until = steps.shares_steps().then(|| ended + wait);
        for waiting in chosen {
            if !S::is_finished(&waiting.request) {
                line.waiting.push_back(waiting);
                continue;
            }
            if !line.returning.contains(&waiting.thread) {
                line.returning.push(waiting.thread);
            }
            if !Arc::ptr_eq(&waiting.caller, caller) {
                waiting.caller.changed.notify_one();
            }
            line.finished.push(waiting);
        }
        self.hand_on::<S>(&line);
        line
    }

    /// Runs `compute`, which is no step, while no step is computed. Steps and these take turns where both wait.
    ///
    /// # Errors
    /// `Forked`.
    pub(crate) fn between_steps<S: Steps<Request = R>, T>(&self, compute: impl FnOnce() -> T) -> Result<T> {
        self.check_process()?;
        let mut line = self.line();
        line.others += 1;
        while line.computing || line.is_for_step() && line.first::<S>().is_some() {
            line = self.others.wait_timeout(line, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        line.others -= 1;
        line.computing = true;
        drop(line);
        let computed = catch_unwind(AssertUnwindSafe(compute));
        let mut line = self.line();
        (line.computing, line.step_is_next) = (false, (!line.waiting.is_empty()).then(Instant::now));
        self.hand_on::<S>(&line);
        drop(line);
        computed.map_or_else(|panic| resume_unwind(panic), Ok)
    }

    /// Lets whoever computes next look.
    fn hand_on<S: Steps<Request = R>>(&self, line: &Line<R>) {
        line.wake_first::<S>();
        if line.others > 0 {
            self.others.notify_one();
        }
    }

    /// Takes the queue over in a process that was forked. Nobody computed meanwhile if nobody waited: then nothing is half
    /// done, and no lock is held by a thread that is not there.
    fn check_process(&self) -> Result<()> {
        let mine = process::id();
        if self.process.load(Ordering::Relaxed) == mine {
            return Ok(());
        }
        let begun = Instant::now();
        let line = loop {
            match self.line.try_lock() {
                Ok(line) => break line,
                Err(TryLockError::Poisoned(line)) => break line.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() > FORKED => return Err(Error::Forked),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        };
        if self.process.load(Ordering::Relaxed) != mine && (line.computing || !line.waiting.is_empty()) {
            return Err(Error::Forked);
        }
        self.process.store(mine, Ordering::Relaxed);
        Ok(())
    }

    /// Nothing panics while it is held.
    fn line(&self) -> MutexGuard<'_, Line<R>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Line<R> {
    /// Whether a step is computed next. It may come to nothing, as its requests can wait for memory: then it is waited for no
    /// longer than this.
    fn is_for_step(&self) -> bool {
        self.step_is_next.is_some_and(|since| since.elapsed() < LOOK)
    }

    /// Whether what is no step is computed next.
    fn is_for_others(&self) -> bool {
        self.others > 0 && !self.is_for_step()
    }

    /// How long the next step still waits for others.
    fn until_complete(&self) -> Duration {
        let until = self.until.filter(|_| !self.returning.is_empty());
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Finishes those that wait no more.
    fn leave<S: Steps<Request = R>>(&mut self, leaves: impl FnMut(&mut Waiting<R>) -> bool) {
        let mut leaves = leaves;
        let before = self.finished.len();
        for index in (0..self.waiting.len()).rev() {
            if leaves(&mut self.waiting[index]) {
                self.finished.extend(self.waiting.remove(index));
            }
        }
        if self.finished.len() > before {
            self.look = None; // it may be the one that others are held behind
            self.wake_first::<S>();
        }
    }

    /// The first that waits and may be computed.
    fn first<S: Steps<Request = R>>(&self) -> Option<&Waiting<R>> {
        let looks = self.look.is_none_or(|look| look <= Instant::now());
        self.waiting.iter().find(|waiting| looks || !S::is_held(&waiting.request))
    }

    /// Lets that one look whether a step is to be computed.
    fn wake_first<S: Steps<Request = R>>(&self) {
        if let Some(first) = self.first::<S>().filter(|_| !self.computing) {
            first.caller.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex as Log;

    /// Requests that are finished once they were in a step.
    struct Noted<'l>(&'l Log<Vec<char>>);

    impl Steps for Noted<'_> {
        type Request = bool;

        fn choose(&self, waiting: &mut VecDeque<Waiting<bool>>) -> Vec<Waiting<bool>> {
            waiting.drain(..).collect()
        }

        fn compute(&self, chosen: &mut [Waiting<bool>]) {
            self.0.lock().unwrap().push('s');
            chosen.iter_mut().for_each(|waiting| waiting.request = true);
        }

        fn shares_steps(&self) -> bool {
            false
        }

        fn is_finished(request: &bool) -> bool {
            *request
        }

        fn is_held(_: &bool) -> bool {
            false
        }

        fn cancelled(_: &mut bool) -> bool {
            false
        }
    }

    /// Each of the others takes longer than a step is waited for, so that one always waits while another computes.
    #[test]
    fn several_others_take_turns_with_steps() {
        let (queue, log) = (Queue::<bool>::default(), Log::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while log.lock().unwrap().iter().filter(|entry| **entry == 's').count() < 5 {
                        let compute = || {
                            log.lock().unwrap().push('o');
                            std::thread::sleep(LOOK * 2);
                        };
                        queue.between_steps::<Noted<'_>, ()>(compute).unwrap();
                    }
                });
            }
            while log.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
            for _ in 0..5 {
                assert!(queue.run(&Noted(&log), &Arc::default(), vec![false]).is_ok());
            }
        });
        let log: String = log.into_inner().unwrap().into_iter().collect();
        // A thread that was not there yet when one of the others ended lets two of them come first.
        assert!(!log.trim_end_matches('o').contains("oooo"), "{log}");
    }
}
