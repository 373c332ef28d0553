//! A request -> its response piece by piece, read by a thread of its own, so that waiting here can stop at any time.

use super::options::MinimumSpeed;
use crate::error::HubError;
use model_factory_format::CancellationToken;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use ureq::Body;
use ureq::http::Response;
use ureq::http::response::Parts;

/// How long a wait lasts before it checks for cancellation.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// The most bytes of a piece.
const PIECE_BYTES: usize = 128 << 10;

/// The most pieces that wait to be taken.
const PIECES: usize = 4;

/// A response of the Hub or of its store, whose body is being received.
pub(super) struct Incoming {
    /// Status and headers.
    pub(super) head: Parts,
    /// The Hub's own ETag, where it has one.
    pub(super) etag: Option<String>,
    pub(super) url: String,
    cancel: CancellationToken,
    speed: MinimumSpeed,
    /// Bytes received in all bodies.
    received: Arc<AtomicU64>,
    pieces: Receiver<Result<Vec<u8>, HubError>>,
    /// Time waited and bytes received since the window began.
    window: (Duration, u64),
}

/// Sends a request by `send`, and waits for the head of its response. The reading thread ends with the body, with
/// `Incoming`, or at a time limit of the connection.
pub(super) fn start(
    url: &str,
    cancel: &CancellationToken,
    speed: MinimumSpeed,
    received: Arc<AtomicU64>,
    send: impl FnOnce() -> Result<(Response<Body>, Option<String>), HubError> + Send + 'static,
) -> Result<Incoming, HubError> {
    let (head_out, head) = sync_channel(1);
    let (pieces_out, pieces) = sync_channel(PIECES);
    let address = url.to_owned();
    let work = move || match send() {
        Ok((response, etag)) => {
            let (head, body) = response.into_parts();
            if head_out.send(Ok((head, etag))).is_ok() {
                read(body, &address, &pieces_out);
            }
        }
        Err(error) => drop(head_out.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name("model-factory-hub".into());
    thread.spawn(work).map_err(|error| connection(url, &error))?;
    let (head, etag) = loop {
        cancel.check()?;
        match head.recv_timeout(SLICE) {
            Ok(head) => break head?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(connection(url, &"the request panicked")),
        }
    };
    let window = (Duration::ZERO, 0);
    Ok(Incoming { head, etag, url: url.into(), cancel: cancel.clone(), speed, received, pieces, window })
}

/// Passes on the body until it ends or breaks, or until nobody takes it any more.
fn read(body: Body, url: &str, pieces: &SyncSender<Result<Vec<u8>, HubError>>) {
    let mut body = body.into_reader();
    loop {
        let mut bytes = vec![0; PIECE_BYTES];
        let piece = match body.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => {
                bytes.truncate(count);
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(connection(url, &error)),
        };
        let broken = piece.is_err();
        if pieces.send(piece).is_err() || broken {
            return;
        }
    }
}

impl Incoming {
    /// The next bytes, at least one; `None` at the end.
    ///
    /// # Errors
    /// `Connection`, `Slow` or `Cancelled`.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, HubError> {
        loop {
            self.cancel.check()?;
            let start = Instant::now();
            let piece = match self.pieces.recv_timeout(SLICE) {
                Ok(piece) => Some(piece?),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            };
            self.pace(start.elapsed(), piece.as_ref().map_or(0, Vec::len) as u64)?;
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    /// Counts `bytes` that arrived after `waited`. Time in which nobody waits here does not count against the server.
    fn pace(&mut self, waited: Duration, bytes: u64) -> Result<(), HubError> {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.window.0 += waited;
        self.window.1 += bytes;
        let (time, found) = self.window;
        if time >= self.speed.window {
            if found < self.speed.window_bytes() {
                let (least, window) = (self.speed.bytes_per_second, self.speed.window);
                return Err(HubError::Slow { url: self.url.clone(), found, least, window });
            }
            self.window = (Duration::ZERO, 0);
        }
        Ok(())
    }
}

pub(super) fn connection(url: &str, error: &dyn std::fmt::Display) -> HubError {
    HubError::Connection { url: url.into(), reason: error.to_string() }
}
