//! The streams of a model: one thread computes them all, as long as there are some.

use super::queue::Caller;
use super::{Run, Scheduler};
use crate::decoder::Compute;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// A generation whose pieces are read at the reader's own pace.
pub trait Streaming: Send {
    /// Gives out what is ready as far as there is room, and begins the next step. `None` where it is being computed, or
    /// there is no room: `waker` is woken when there is.
    ///
    /// # Errors
    /// `Ended` when the stream has ended, or nobody reads it.
    fn next(&mut self, waker: &Waker) -> Result<Option<Run>, Ended>;

    /// Takes its session back and chooses a token.
    fn complete(&mut self, run: Run);
}

/// The stream is to be dropped.
#[derive(Debug)]
pub struct Ended;

/// The streams of a model, and the thread that computes them.
#[derive(Default)]
#[allow(missing_debug_implementations)] // streams have none
pub struct Streams {
    inbox: Mutex<Inbox>,
    caller: Arc<Caller>,
}

#[derive(Default)]
struct Inbox {
    new: Vec<Box<dyn Streaming>>,
    /// The process that has the thread.
    thread: Option<u32>,
}

impl Streams {
    /// Gives a stream to the thread that computes them. Returns whether none exists: then the caller starts one, which calls
    /// [`drive`](Self::drive).
    pub fn add(&self, stream: Box<dyn Streaming>, scheduler: &Scheduler) -> bool {
        let mut inbox = self.inbox();
        inbox.new.push(stream);
        let is_first = inbox.thread != Some(process::id());
        inbox.thread = Some(process::id());
        drop(inbox);
        scheduler.call(&self.caller);
        is_first
    }

    /// Drops all added streams: no thread could be started, or it panicked.
    pub fn give_up(&self) {
        let dropped = std::mem::take(&mut *self.inbox());
        drop(dropped); // not under the lock: somebody may be woken
    }

    /// Computes the streams until there are none.
    pub fn drive(&self, scheduler: &Arc<Scheduler>, compute: &dyn Compute) {
        let _inbox = ResetInbox(self);
        let waker = Waker::from(Arc::new(Call { scheduler: Arc::clone(scheduler), caller: Arc::clone(&self.caller) }));
        let (mut all, mut key) = (BTreeMap::<u64, Box<dyn Streaming>>::new(), 0u64);
        loop {
            let mut inbox = self.inbox();
            for stream in inbox.new.drain(..) {
                all.insert(key, stream);
                key += 1;
            }
            if all.is_empty() {
                inbox.thread = None;
                return;
            }
            drop(inbox);
            let mut runs = Vec::new();
            // A stream that panics is dropped, and tells its reader.
            all.retain(|key, stream| match catch_unwind(AssertUnwindSafe(|| stream.next(&waker))) {
                Ok(Ok(run)) => {
                    runs.extend(run.map(|run| Run { key: *key, ..run }));
                    true
                }
                Ok(Err(Ended)) | Err(_) => false,
            });
            let submitted = if runs.is_empty() { Ok(()) } else { scheduler.submit(&self.caller, runs) };
            let finished = match submitted {
                Ok(()) if all.is_empty() => continue,
                Ok(()) => scheduler.wait(compute, &self.caller),
                Err((error, mut runs)) => {
                    runs.iter_mut().for_each(|run| run.finish(Err(error.clone())));
                    runs
                }
            };
            for run in finished {
                let key = run.key;
                let Some(stream) = all.get_mut(&key) else { continue };
                if catch_unwind(AssertUnwindSafe(|| stream.complete(run))).is_err() {
                    all.remove(&key);
                }
            }
        }
    }

    /// Nothing panics while it is held.
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets another thread start where this one panicked.
struct ResetInbox<'a>(&'a Streams);

impl Drop for ResetInbox<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

struct Call {
    scheduler: Arc<Scheduler>,
    caller: Arc<Caller>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.scheduler.call(&self.caller);
    }
}
