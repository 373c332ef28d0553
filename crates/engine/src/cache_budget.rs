//! The bytes that the KV caches of one model may take together, counted as their pages are reserved and freed.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that the caches of all sessions of a model share.
#[derive(Debug, Default)]
pub struct CacheBudget {
    bytes: u64,
    taken: AtomicU64,
    /// The taken bytes that reservations hold.
    reserved: AtomicU64,
    /// Reservations that hold bytes, or held some.
    running: AtomicUsize,
    /// The process that counts them, and how many of them belong to threads that a fork did not copy.
    process: AtomicU32,
    left_behind: AtomicUsize,
}

/// The bytes that one cache has taken of a budget; dropping it gives them back.
#[derive(Debug)]
pub struct CacheShare {
    budget: Arc<CacheBudget>,
    bytes: u64,
}

impl CacheBudget {
    /// A budget of which nothing is taken.
    pub fn new(bytes: u64) -> Arc<CacheBudget> {
        Arc::new(CacheBudget { bytes, process: AtomicU32::new(std::process::id()), ..CacheBudget::default() })
    }

    /// Bytes of the whole budget.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that all shares have taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Taken bytes that are reserved and not used by a page yet.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Generations of this process that hold a reservation, and give back what they took when they end.
    pub fn running(&self) -> usize {
        let (running, process) = (self.running.load(Ordering::Acquire), std::process::id());
        if self.process.swap(process, Ordering::Relaxed) != process {
            self.left_behind.store(running, Ordering::Relaxed);
        }
        running.saturating_sub(self.left_behind.load(Ordering::Relaxed))
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>) -> CacheShare {
        CacheShare { budget: Arc::clone(self), bytes: 0 }
    }
}

/// What a generation may still take of a budget: all that it can need from its admission to its end, so that it
/// does not wait for others when it has begun.
#[derive(Debug)]
pub struct Reservation {
    /// Positions of the sequence when the generation ends, at most.
    pub positions: usize,
    held: Mutex<Option<Reserved>>,
}

#[derive(Debug)]
struct Reserved(CacheShare);

impl Reservation {
    /// A reservation that holds nothing yet.
    pub fn new(positions: usize) -> Reservation {
        Reservation { positions, held: Mutex::new(None) }
    }

    /// Whether it was admitted.
    pub fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Holds `share`: it is admitted.
    pub fn hold(&self, share: CacheShare) {
        share.budget.running.fetch_add(1, Ordering::AcqRel);
        share.budget.reserved.fetch_add(share.bytes, Ordering::Relaxed);
        *self.held() = Some(Reserved(share));
    }

    /// Takes up to `bytes` of it, where it is admitted.
    pub fn take(&self, bytes: u64) -> Option<CacheShare> {
        self.held().as_mut().map(|Reserved(share)| {
            let taken = share.split(bytes);
            share.budget.reserved.fetch_sub(taken.bytes, Ordering::Relaxed);
            taken
        })
    }

    /// Gives back what was not taken: it must be admitted again.
    pub fn release(&self) {
        let held = self.held().take();
        drop(held);
    }

    fn held(&self) -> MutexGuard<'_, Option<Reserved>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.budget.reserved.fetch_sub(self.0.bytes, Ordering::Relaxed);
        self.0.shrink_to(0);
        self.0.budget.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl CacheShare {
    /// Takes what is missing for `bytes` in all.
    ///
    /// # Errors
    /// `CacheBudget` when that is more than the others leave; nothing is taken then.
    pub fn grow_to(&mut self, bytes: u64) -> Result<()> {
        let (asked, budget) = (bytes.saturating_sub(self.bytes), self.budget.bytes);
        let fits = |taken: u64| taken.checked_add(asked).filter(|taken| *taken <= budget);
        match self.budget.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => self.bytes += asked,
            Err(taken) => return Err(Error::CacheBudget { asked, left: budget.saturating_sub(taken), budget }),
        }
        Ok(())
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves `bytes` of it to a new share; all of them where it has fewer.
    pub fn split(&mut self, bytes: u64) -> CacheShare {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        CacheShare { budget: Arc::clone(&self.budget), bytes }
    }

    /// Gives back what exceeds `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.budget.taken.fetch_sub(more, Ordering::Relaxed);
        self.bytes -= more;
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_are_given_back() {
        let budget = CacheBudget::new(100);
        let (mut first, mut second) = (budget.share(), budget.share());
        first.grow_to(60).unwrap();
        first.grow_to(50).unwrap();
        let refused = second.grow_to(41);
        assert!(matches!(refused, Err(Error::CacheBudget { asked: 41, left: 40, budget: 100 })), "{refused:?}");
        second.grow_to(40).unwrap();
        first.shrink_to(10);
        second.grow_to(90).unwrap();
        drop(first);
        assert!(matches!(second.grow_to(u64::MAX), Err(Error::CacheBudget { left: 10, .. })));
        second.grow_to(100).unwrap();
        let mut part = second.split(30);
        drop(second);
        assert_eq!(budget.taken(), 30);
        assert_eq!(part.split(31).bytes, 30);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_reservation_is_taken_until_it_is_dropped() {
        let budget = CacheBudget::new(100);
        let (reservation, mut share) = (Reservation::new(1), budget.share());
        assert!(!reservation.is_held() && reservation.take(1).is_none());
        share.grow_to(80).unwrap();
        reservation.hold(share);
        assert_eq!((budget.taken(), budget.reserved(), budget.running()), (80, 80, 1));
        let page = reservation.take(30).unwrap();
        assert_eq!((budget.taken(), budget.reserved(), page.bytes()), (80, 50, 30));
        assert!(budget.share().grow_to(21).is_err());
        let more = reservation.take(60).unwrap();
        assert_eq!((budget.reserved(), more.bytes(), budget.running()), (0, 50, 1));
        drop(more);
        reservation.release();
        assert_eq!((budget.taken(), budget.reserved(), budget.running()), (30, 0, 0));
    }

    #[test]
    fn threads_that_grow_at_once_share_exactly_the_budget() {
        let budget = CacheBudget::new(1000);
        let shares: Vec<CacheShare> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut share = budget.share();
                        while share.grow_to(share.bytes + 1).is_ok() {}
                        share
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), 1000);
    }
}
