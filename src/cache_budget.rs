//! The bytes that the KV caches of one model may take together, counted as their pages are reserved and freed.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the caches of all sessions of a model share.
#[derive(Debug)]
pub struct CacheBudget {
    bytes: u64,
    taken: AtomicU64,
}

/// What one cache has taken of a budget; dropping it gives that back.
#[derive(Debug)]
pub struct CacheShare {
    budget: Arc<CacheBudget>,
    bytes: u64,
}

impl CacheBudget {
    /// A budget of which nothing is taken.
    pub fn new(bytes: u64) -> Arc<CacheBudget> {
        Arc::new(CacheBudget { bytes, taken: AtomicU64::new(0) })
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that all shares have taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>) -> CacheShare {
        CacheShare { budget: Arc::clone(self), bytes: 0 }
    }
}

impl CacheShare {
    /// Takes what is missing to `bytes`.
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

    /// Hands `bytes` of it over to a share of their own; all where it has less.
    pub fn split(&mut self, bytes: u64) -> CacheShare {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        CacheShare { budget: Arc::clone(&self.budget), bytes }
    }

    /// Gives back what is more than `bytes`.
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
