//! The bytes that the grammars of one vocabulary may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all grammars of a vocabulary share.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
    taken: AtomicU64,
}

/// What one grammar has taken of a budget; dropping it gives that back.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

/// The others leave less than was asked for; nothing was taken.
#[derive(Debug)]
pub(super) struct Exhausted;

impl Budget {
    /// A budget of which nothing is taken.
    pub(super) fn new(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget { bytes, taken: AtomicU64::new(0) })
    }

    /// A share of nothing yet.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }
}

impl Share {
    /// Takes what is missing to `bytes`.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let (asked, limit) = (bytes.saturating_sub(self.bytes), self.budget.bytes);
        let fits = |taken: u64| taken.checked_add(asked).filter(|taken| *taken <= limit);
        let taken = self.budget.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(|_| self.bytes += asked).map_err(|_| Exhausted)
    }

    /// Bytes that it has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_no_more_than_the_budget_and_give_it_back() {
        let budget = Budget::new(10);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.grow_to(6).is_ok() && second.grow_to(5).is_err() && second.grow_to(4).is_ok());
        assert!(first.grow_to(3).is_ok() && first.bytes() == 6, "a share never shrinks");
        assert!(first.grow_to(u64::MAX).is_err() && first.bytes() == 6);
        drop(first);
        assert!(second.grow_to(10).is_ok());
    }
}
