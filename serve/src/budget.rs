//! The bodies of requests and their parsed values: within a budget of bytes, and off the thread that serves all clients.

use crate::access::is_json;
use crate::api::{Refusal, blocking, done, refuse};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::stream::StreamExt;
use model_factory_openai::{ApiError, Outline, model_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the body of a request may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The most bytes of a body that is not counted and waits for no turn: the number of connections is limited anyway, and small
/// requests do not wait for large ones.
const SMALL_BODY: usize = 64 << 10;

/// The most bytes of a parsed request that is not counted: the number of requests that run at once is limited anyway.
const SMALL_REQUEST: usize = 1 << 20;

/// How many large bodies are scanned at once.
const TURNS: usize = 2;

/// How many times the memory of its values a request takes while it is parsed, until its answers begin.
const READING: usize = 2;

/// The unit of the budget in bytes.
const UNIT: usize = 1 << 10;

/// The memory that all requests may take together.
pub(crate) struct Budget {
    body_limit: usize,
    /// The budget of bodies, in units.
    bodies: Arc<Semaphore>,
    /// The budget of parsed values, in units, and its size.
    values: Arc<Semaphore>,
    all_values: usize,
    turns: Arc<Semaphore>,
    /// A runtime with one thread, on which large requests are parsed one after the other: the system's allocator keeps memory that
    /// a thread has freed, and reuses it on the same thread.
    large: Handle,
}

/// A share of a budget; it is freed when dropped.
pub(crate) type Share = Option<OwnedSemaphorePermit>;

/// The part of its room that a request keeps once it is parsed and its answers begin.
pub(crate) fn kept(mut room: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
    let units = room.num_permits();
    drop(room.split(units - units.div_ceil(READING)));
    room
}

pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// The model that it asks for, once it is scanned.
    pub(crate) model: Option<String>,
    share: Share,
}

impl Budget {
    /// A budget for bodies of at most `body_limit` bytes, and `bytes` for all requests: half for bodies, half for parsed
    /// values. Large requests are parsed on `large`, which has one thread for that.
    pub(crate) fn new(body_limit: usize, bytes: usize, large: Handle) -> Budget {
        let units = (bytes / UNIT / 2).min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        let [bodies, values] = [(); 2].map(|()| Arc::new(Semaphore::new(units)));
        Budget { body_limit, bodies, values, all_values: units, turns: Arc::new(Semaphore::new(TURNS)), large }
    }

    /// The most bytes of a request.
    pub(crate) fn body_limit(&self) -> usize {
        self.body_limit
    }

    /// Receives the body of a request.
    pub(crate) async fn body(&self, request: Request) -> Result<Body, Refusal> {
        let announced = self.check(request.headers())?;
        let body = tokio::time::timeout(BODY_TIME, self.arriving(request, announced)).await;
        body.unwrap_or_else(|_| Err(refuse(408, "the body took too long to arrive")))
    }

    /// Checks the headers of a body, and returns its length if they give it.
    fn check(&self, headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
        let text = |name| headers.get(name).map(HeaderValue::to_str).and_then(Result::ok);
        // A foreign page cannot send this type unless CORS allows it.
        if !text(header::CONTENT_TYPE).is_some_and(is_json) {
            return Err(refuse(415, "expected the content type application/json"));
        }
        let announced = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let announced = announced.map(usize::try_from).transpose().map_err(|_| self.too_large())?;
        if announced.is_some_and(|length| length > self.body_limit) {
            return Err(self.too_large());
        }
        Ok(announced)
    }

    async fn arriving(&self, request: Request, announced: Option<usize>) -> Result<Body, Refusal> {
        let mut chunks = request.into_body().into_data_stream();
        let mut body = Body { bytes: Vec::new(), model: None, share: None };
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| refuse(400, format!("the body did not arrive: {error}")))?;
            let length = body.bytes.len() + chunk.len();
            if length > self.body_limit {
                return Err(self.too_large());
            }
            let no_memory = |_| refuse(503, "there is no memory for the body; try again later");
            let own = &mut body.bytes;
            // With a known length only the bytes that came are resident. A buffer that doubles is copied, and counts in full.
            let counted = if let Some(announced) = announced {
                own.try_reserve_exact(announced.max(length) - own.len()).map_err(no_memory)?;
                length
            } else {
                own.try_reserve(chunk.len()).map_err(no_memory)?;
                own.capacity()
            };
            self.grow(&mut body.share, counted)?;
            body.bytes.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn too_large(&self) -> Refusal {
        refuse(413, format!("the body is larger than the {} bytes that are taken", self.body_limit))
    }

    /// Sets `share` to that of a body of `length` bytes.
    fn grow(&self, share: &mut Share, length: usize) -> Result<(), Refusal> {
        let units = length.saturating_sub(SMALL_BODY).div_ceil(UNIT);
        let missing = units.saturating_sub(share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if missing == 0 {
            return Ok(());
        }
        let more =
            u32::try_from(missing).ok().and_then(|units| Arc::clone(&self.bodies).try_acquire_many_owned(units).ok());
        let full = "the requests that are here take all memory there is for them; try again later";
        let more = more.ok_or_else(|| ApiError::new(429, full, None, Some("request_memory")))?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }

    /// Scans a body for the memory that parsing it will take and for the model that it asks for, and gives it back. Nothing else of it
    /// is stored.
    pub(crate) async fn outline(&self, body: Body) -> Result<(Body, Outline), Refusal> {
        let is_small = body.bytes.len() <= SMALL_BODY;
        let turn = if is_small { None } else { Arc::clone(&self.turns).acquire_owned().await.ok() };
        let look = move || {
            let _turn = turn;
            let outline = Outline::of(&body.bytes).map_err(ApiError::from)?;
            let model = model_of(&body.bytes);
            Ok((Body { model, ..body }, outline))
        };
        blocking(look).await
    }

    /// Parses a request and makes its prompt by `read`, on the thread for requests of its size.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        outline: Outline,
        read: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let thread = if outline.bytes > SMALL_REQUEST { self.large.clone() } else { Handle::current() };
        done(thread.spawn_blocking(read)).await
    }

    /// Waits until there is room for the parsed values of a request.
    pub(crate) async fn room(&self, outline: &Outline) -> Result<Share, Refusal> {
        if outline.bytes <= SMALL_REQUEST {
            return Ok(None);
        }
        let units = outline.bytes.saturating_mul(READING).div_ceil(UNIT);
        let Some(units) = u32::try_from(units).ok().filter(|_| units <= self.all_values) else {
            let (bytes, all) = (outline.bytes, self.all_values * UNIT);
            let message =
                format!("what is read of the request would take {bytes} bytes of memory, and there are {all} for it");
            return Err(refuse(413, message));
        };
        Ok(Arc::clone(&self.values).acquire_many_owned(units).await.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body as Sent, Bytes};
    use futures_util::stream::iter;
    use std::convert::Infallible;

    /// A body of three parts, with the length that its headers give.
    async fn arrived(announced: Option<usize>) -> Body {
        let budget = Budget::new(1 << 20, 1 << 20, Handle::current());
        let parts = (0..3).map(|_| Ok::<_, Infallible>(Bytes::from(vec![b' '; 40_000])));
        let request = Request::builder().header(header::CONTENT_TYPE, "application/json");
        let request = announced.into_iter().fold(request, |request, length| request.header("content-length", length));
        budget.body(request.body(Sent::from_stream(iter(parts))).expect("a request")).await.expect("it arrives")
    }

    #[test]
    fn a_body_takes_no_more_than_is_counted_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for announced in [Some(120_000), None] {
            let body = runtime.block_on(arrived(announced));
            assert_eq!(body.bytes.len(), 120_000);
            let counted = SMALL_BODY + UNIT * body.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let taken = body.bytes.capacity();
            assert!(taken <= counted, "{announced:?}: {taken} bytes, of which {counted} are counted");
        }
    }
}
