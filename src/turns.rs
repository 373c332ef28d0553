//! Who computes next: the sessions of a model take turns, first come, first served.
//!
//! A turn is one pass over the weights: a token of each session of a batch, or a chunk of a prompt. Every turn has all
//! threads of the pool. Who wants the next turn stands behind those that wait already, so between two turns of a
//! session each other one has at most one.

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::threads::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::debug_span;

/// How often one that waits looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// How long a forked process waits for the lock of the line, which is held for less than a microsecond: who holds it
/// longer is not there.
const FORKED: Duration = Duration::from_secs(1);

/// The line of those that compute on one model.
#[derive(Debug)]
pub(crate) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
    /// The process whose threads stand in the line.
    process: AtomicU32,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { line: Mutex::default(), moved: Condvar::new(), process: AtomicU32::new(process::id()) }
    }
}

/// Tickets in the order they were taken; the turn is the first one's.
#[derive(Debug, Default)]
struct Line {
    tickets: VecDeque<u64>,
    next: u64,
}

/// The right to compute, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// Turns of others between the request and this one, the running one included.
    pub(crate) ahead: usize,
}

impl Turns {
    /// Waits for a turn.
    ///
    /// # Errors
    /// `Cancelled`, within [`LOOK`] of it; the place in the line is given up. `Forked`.
    pub(crate) fn take(&self, cancel: &CancellationToken) -> Result<Turn<'_>> {
        if self.process.load(Ordering::Relaxed) != process::id() {
            self.move_in()?;
        }
        let mut line = self.line();
        let ahead = line.tickets.len();
        let ticket = line.next;
        line.next += 1;
        line.tickets.push_back(ticket);
        drop(line);
        if ahead == 0 {
            return Ok(Turn { turns: self, ahead });
        }
        let _span = debug_span!("wait", ahead).entered();
        let mut line = self.line();
        while line.tickets.front() != Some(&ticket) {
            if let Err(cancelled) = cancel.check() {
                line.tickets.retain(|other| *other != ticket);
                return Err(cancelled);
            }
            line = self.moved.wait_timeout(line, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Turn { turns: self, ahead })
    }

    /// Takes the line over in a process that was forked. Nobody computed meanwhile if nobody stood in it: then nothing is
    /// half done, and no lock is held by a thread that is not there.
    fn move_in(&self) -> Result<()> {
        let begun = Instant::now();
        let line = loop {
            match self.line.try_lock() {
                Ok(line) => break line,
                Err(TryLockError::Poisoned(line)) => break line.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() > FORKED => return Err(Error::Forked),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        };
        let mine = process::id();
        if self.process.load(Ordering::Relaxed) != mine && !line.tickets.is_empty() {
            return Err(Error::Forked);
        }
        self.process.store(mine, Ordering::Relaxed);
        Ok(())
    }

    /// Nothing panics while it is held.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.turns.line();
        line.tickets.pop_front();
        let others = !line.tickets.is_empty();
        drop(line);
        if others {
            self.turns.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn waiting(turns: &Turns) -> usize {
        turns.line().tickets.len()
    }

    /// Waits until `count` stand in the line, the one whose turn it is included.
    fn until_waiting(turns: &Turns, count: usize) {
        while waiting(turns) < count {
            thread::yield_now();
        }
    }

    #[test]
    fn turns_come_in_the_order_they_were_asked_for() {
        let (turns, cancel) = (Turns::default(), CancellationToken::new());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let first = turns.take(&cancel).unwrap();
            assert_eq!(first.ahead, 0);
            for index in 0..8 {
                scope.spawn({
                    let (turns, order, cancel) = (&turns, &order, &cancel);
                    move || {
                        let turn = turns.take(cancel).unwrap();
                        order.lock().unwrap().push((index, turn.ahead));
                    }
                });
                until_waiting(&turns, index + 2);
            }
            drop(first);
        });
        let expected: Vec<_> = (0..8).map(|index| (index, index + 1)).collect();
        assert_eq!(*order.lock().unwrap(), expected);
        assert_eq!(waiting(&turns), 0);
    }

    #[test]
    fn between_two_turns_of_one_each_other_has_one() {
        const ROUNDS: usize = 200;
        let (turns, cancel) = (Turns::default(), CancellationToken::new());
        let (inside, overlaps, order) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for index in 0..4 {
                let (turns, cancel, inside, overlaps, order) = (&turns, &cancel, &inside, &overlaps, &order);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let _turn = turns.take(cancel).unwrap();
                        overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                        if round < ROUNDS {
                            until_waiting(turns, 4); // the others want one too
                        }
                        order.lock().unwrap().push(index);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(overlaps.into_inner(), 0, "two had a turn");
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), 4 * ROUNDS);
        assert!((0..4).all(|index| order[..4].contains(&index)), "{:?}", &order[..4]);
        assert!(order.chunks(4).all(|round| round == &order[..4]), "{order:?}");
    }

    #[test]
    fn who_is_cancelled_leaves_the_line_and_the_others_move_up() {
        let (turns, cancel, stays) = (Turns::default(), CancellationToken::new(), CancellationToken::new());
        thread::scope(|scope| {
            let first = turns.take(&stays).unwrap();
            let leaves = scope.spawn(|| turns.take(&cancel).map(drop));
            until_waiting(&turns, 2);
            let last = scope.spawn(|| turns.take(&stays).map(drop));
            until_waiting(&turns, 3);
            cancel.cancel();
            assert!(matches!(leaves.join().unwrap(), Err(Error::Cancelled)));
            assert_eq!(waiting(&turns), 2, "the running one and the last");
            drop(first);
            last.join().unwrap().unwrap();
        });
        // A turn that nobody holds is not asked for its token: whoever computes looks at it first.
        assert!(turns.take(&cancel).is_ok());
    }

    #[test]
    fn a_turn_ends_with_a_panic() {
        let (turns, cancel) = (Turns::default(), CancellationToken::new());
        let panicked = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _turn = turns.take(&cancel).unwrap();
                panic!("in the middle of a turn");
            });
            thread.join().is_err()
        });
        assert!(panicked && turns.take(&cancel).unwrap().ahead == 0);
    }
}
