//! When a request that failed is sent again, and when it is given up.

use crate::error::HubError;
use model_factory_format::CancellationToken;
use std::time::{Duration, Instant};

/// Tries in a row that may be fruitless.
const TRIES: u32 = 4;

/// How long a wait lasts before it looks whether it was cancelled.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// Sends a request by `once` until it succeeds, which also says how many bytes it brought. Gives up after four tries in a row
/// that brought fewer than `fruit`: a server that sends one byte, again and again, would hold us forever.
///
/// # Errors
/// That of the last try; `Cancelled`.
pub(super) fn retried<T>(
    fruit: u64,
    cancel: &CancellationToken,
    mut once: impl FnMut(&mut u64) -> Result<T, HubError>,
) -> Result<T, HubError> {
    let mut fruitless = 0;
    loop {
        let mut bytes = 0;
        let error = match once(&mut bytes) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        fruitless = if bytes >= fruit.max(1) { 0 } else { fruitless + 1 };
        if !error.passes() || fruitless >= TRIES {
            return Err(error);
        }
        let end = Instant::now() + Duration::from_millis(100 << fruitless);
        while Instant::now() < end {
            check(cancel)?;
            std::thread::sleep(SLICE);
        }
    }
}

/// Ends what waits once it is cancelled.
pub(super) fn check(cancel: &CancellationToken) -> Result<(), HubError> {
    if cancel.is_cancelled() { Err(HubError::Cancelled) } else { Ok(()) }
}
