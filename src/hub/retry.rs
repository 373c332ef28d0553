//! When a request that failed is sent again, and when it is given up.

use crate::cancel::CancellationToken;
use crate::error::HubError;
use std::time::{Duration, Instant};

/// Tries in a row that may be fruitless.
const TRIES: u32 = 4;

/// How long a wait lasts before it looks whether it was cancelled.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// Sends a request again while it brings something: of tries that do not, four in a row.
pub(super) struct RetryPolicy {
    fruitless: u32,
    /// Bytes that a try must bring. A server that sends one, again and again, would hold us forever.
    fruit: u64,
}

impl RetryPolicy {
    /// A try is fruitless when it brings fewer bytes than `fruit`.
    pub(super) fn new(fruit: u64) -> RetryPolicy {
        RetryPolicy { fruitless: 0, fruit: fruit.max(1) }
    }

    /// Waits before the next try, after one that ended in `error` and brought `bytes`.
    ///
    /// # Errors
    /// `error` when there is to be none; `Cancelled`.
    pub(super) fn again(&mut self, error: HubError, bytes: u64, cancel: &CancellationToken) -> Result<(), HubError> {
        self.fruitless = if bytes >= self.fruit { 0 } else { self.fruitless + 1 };
        if !error.passes() || self.fruitless >= TRIES {
            return Err(error);
        }
        let end = Instant::now() + Duration::from_millis(100 << self.fruitless);
        while Instant::now() < end {
            if cancel.is_cancelled() {
                return Err(HubError::Cancelled);
            }
            std::thread::sleep(SLICE);
        }
        Ok(())
    }
}
