//! Requests of the Hub's protocol -> bytes of files; redirects, tokens, statuses and broken connections.

use super::names::{self, encoded};
use super::options::{HubOptions, MinimumSpeed, Secret};
use super::transfer::{Incoming, SLICE, connection, start};
use crate::error::HubError;
use model_factory_format::CancellationToken;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

/// The most fruitless tries in a row.
const TRIES: u32 = 4;

/// The most redirects from the Hub to the store that has the bytes; normally there is one.
const REDIRECTS: usize = 8;

/// The most bytes of the description of a repository. One of 100,000 files has about 10 MB.
const INFO_BYTES: u64 = 64 << 20;

/// The longest time limit: a window may be of any length, a time limit may not.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The most files of a repository that are listed; the Hub advises against more.
const FILES: usize = 100_000;

/// Asks one server about one repository.
pub(super) struct Client {
    sender: Arc<Sender>,
    endpoint: String,
    repo: String,
    speed: MinimumSpeed,
    pub(super) cancel: CancellationToken,
    received: Arc<AtomicU64>,
}

/// Sends requests, and follows redirects.
struct Sender {
    agent: Agent,
    token: Option<Secret>,
}

/// A response whose body has not been read.
pub(super) struct Answer {
    /// The name of the content in a cache.
    pub(super) etag: Option<String>,
    /// The length of the whole file.
    pub(super) total: u64,
    /// The offset in the file at which the body begins.
    pub(super) start: u64,
    body: Incoming,
}

pub(super) struct FileRange {
    pub(super) bytes: Vec<u8>,
    pub(super) total: u64,
    pub(super) etag: Option<String>,
}

#[derive(serde::Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(serde::Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Client {
    pub(super) fn new(options: &HubOptions, repo: &str, cancel: &CancellationToken) -> Client {
        let speed = options.minimum_speed;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("model-factory/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            // The waiting thread gets its error earlier, by the minimum speed; this limit ends the reading thread.
            .timeout_per_read(Some(speed.window.min(DAY) + Duration::from_secs(1)))
            .build();
        Client {
            sender: Arc::new(Sender { agent: config.into(), token: options.token.clone() }),
            endpoint: options.endpoint.clone(),
            repo: repo.into(),
            speed,
            cancel: cancel.clone(),
            received: Arc::default(),
        }
    }

    /// Sends a request by `once`, which also reports how many bytes arrived, until it succeeds. Gives up after
    /// [`TRIES`] in a row that brought fewer bytes than a window of the minimum speed: a server that sends single bytes
    /// again and again would keep us waiting forever.
    pub(super) fn retried<T>(&self, mut once: impl FnMut(&mut u64) -> Result<T, HubError>) -> Result<T, HubError> {
        let mut fruitless = 0;
        loop {
            let mut bytes = 0;
            let error = match once(&mut bytes) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            fruitless = if bytes >= self.speed.window_bytes().max(1) { 0 } else { fruitless + 1 };
            if !error.passes() || fruitless >= TRIES {
                return Err(error);
            }
            let end = Instant::now() + Duration::from_millis(100 << fruitless);
            while Instant::now() < end {
                self.cancel.check()?;
                std::thread::sleep(SLICE);
            }
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The commit of `revision`, and the names that are files inside of a folder; other names are left out.
    pub(super) fn describe(&self, revision: &str) -> Result<(String, Vec<String>), HubError> {
        let url = format!("{}/api/models/{}/revision/{}", self.endpoint, self.repo, encoded(revision, false));
        let wrong = |what: String| HubError::Answer { url: url.clone(), what };
        let text = self.retried(|_| {
            let mut body = self.send(&url, None)?;
            self.refuse_status(&body, HubError::NotFound { id: format!("{}@{revision}", self.repo) })?;
            let mut text = Vec::new();
            while let Some(bytes) = body.next()? {
                text.extend_from_slice(&bytes);
                if text.len() as u64 > INFO_BYTES {
                    return Err(wrong(format!("it is longer than {INFO_BYTES} bytes")));
                }
            }
            Ok(text)
        })?;
        let info: Info = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if !names::is_commit(&info.sha) {
            return Err(wrong("its sha is no commit".into()));
        }
        if info.siblings.len() > FILES {
            let (id, found) = (self.repo.clone(), info.siblings.len());
            return Err(HubError::TooManyFiles { id, what: "files", found, limit: FILES });
        }
        let mut names: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        names.retain(|name| names::is_inside(name));
        names.sort();
        names.dedup();
        Ok((info.sha, names))
    }

    /// The bytes `range` of `file`, or as many of them as exist. With `whole`, a longer file returns none.
    pub(super) fn part(&self, commit: &str, file: &str, range: Range<u64>, whole: bool) -> Result<FileRange, HubError> {
        let mut part = FileRange { bytes: Vec::new(), total: 0, etag: None };
        self.retried(|came| {
            let start = range.start + part.bytes.len() as u64;
            let mut answer = self.open(commit, file, start, Some(range.end))?;
            (part.total, part.etag) = (answer.total, answer.etag.take());
            let end = range.end.min(part.total);
            if (whole && part.total > range.end) || start >= end {
                return Ok(());
            }
            if answer.start != start {
                let what = "it is the whole file, expected a range of it".into();
                return Err(HubError::Answer { url: answer.body.url, what });
            }
            while start + *came < end {
                let bytes = answer.read(end - start - *came)?;
                *came += bytes.len() as u64;
                part.bytes.extend_from_slice(&bytes);
            }
            Ok(())
        })?;
        Ok(part)
    }

    /// Requests the bytes of `file` from `start` on, up to `end`.
    pub(super) fn open(&self, commit: &str, file: &str, start: u64, end: Option<u64>) -> Result<Answer, HubError> {
        let url = format!("{}/{}/resolve/{commit}/{}", self.endpoint, self.repo, encoded(file, true));
        let end = end.map(|end| (end - 1).to_string()).unwrap_or_default();
        let body = self.send(&url, Some(format!("bytes={start}-{end}")))?;
        let (status, headers) = (body.head.status.as_u16(), &body.head.headers);
        if status != 416 {
            self.refuse_status(&body, HubError::FileMissing { id: self.repo.clone(), file: file.into() })?;
        }
        let wrong = |what: &str| HubError::Answer { url: url.clone(), what: what.into() };
        let (start, total) = match status {
            206 => {
                let range = text(headers, "content-range").and_then(names::content_range);
                range.ok_or_else(|| wrong("Content-Range is missing or unclear"))?
            }
            416 => {
                let total = text(headers, "content-range").and_then(|range| range.strip_prefix("bytes */"));
                let total = total.and_then(|total| total.parse().ok());
                // An empty file has no range.
                let total =
                    total.filter(|total| *total <= start).ok_or_else(|| wrong("it refuses a range of the file"))?;
                (start, total)
            }
            _ => {
                let length = text(headers, "content-length").and_then(|length| length.parse().ok());
                (0, length.ok_or_else(|| wrong("Content-Length is missing or unclear"))?)
            }
        };
        let etag = body.etag.as_deref().map(names::blob_name);
        let etag = etag.map(|etag| etag.ok_or_else(|| wrong("its ETag cannot be a file's name"))).transpose()?;
        Ok(Answer { etag, total, start, body })
    }

    fn send(&self, url: &str, range: Option<String>) -> Result<Incoming, HubError> {
        let (sender, to) = (Arc::clone(&self.sender), url.to_owned());
        let (cancel, received) = (self.cancel.clone(), Arc::clone(&self.received));
        start(url, &self.cancel, self.speed, received, move || sender.send(&to, range, &cancel))
    }

    /// The error for the status of `response`; `missing` where there is nothing at its address.
    fn refuse_status(&self, response: &Incoming, missing: HubError) -> Result<(), HubError> {
        let Incoming { head, url, .. } = response;
        let error = match head.status.as_u16() {
            200 | 206 => return Ok(()),
            status @ (401 | 403) => {
                let token = self.sender.token.is_some() && names::is_private(url);
                HubError::NoAccess { id: self.repo.clone(), status, token }
            }
            404 => missing,
            429 => {
                let wait = text(&head.headers, "retry-after").and_then(|wait| wait.parse().ok());
                HubError::RateLimited { wait }
            }
            status => HubError::Status { url: url.into(), status },
        };
        Err(error)
    }
}

impl Sender {
    /// Sends a request, follows redirects, and returns the ETag of the Hub itself, which is the content's.
    fn send(
        &self,
        url: &str,
        range: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<(Response<Body>, Option<String>), HubError> {
        let wrong = |what: &str| HubError::Answer { url: url.into(), what: what.into() };
        let (mut at, mut etag) = (url.to_owned(), None);
        for _ in 0..=REDIRECTS {
            cancel.check()?;
            let mut request = self.agent.get(&at);
            if names::is_local(&at) {
                // A proxy could read it, and its localhost is another machine.
                request = request.config().proxy(None).build();
            }
            if let Some(range) = &range {
                request = request.header("Range", range);
            }
            // Only the Hub gets the token, and only over a private connection.
            let private = names::host(&at) == names::host(url) && names::is_private(&at);
            if let Some(Secret(token)) = self.token.as_ref().filter(|_| private) {
                if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(HubError::Token);
                }
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|error| match error {
                ureq::Error::BadUri(_) | ureq::Error::Http(_) => wrong("its address is unclear"),
                error => connection(url, &error),
            })?;
            let headers = response.headers();
            let linked = text(headers, "x-linked-etag");
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                let own = text(headers, "etag").map(str::to_owned);
                let etag = etag.or_else(|| linked.map(str::to_owned)).or(own);
                return Ok((response, etag));
            }
            let to = text(headers, "location").ok_or_else(|| wrong("it leads elsewhere and does not say where"))?;
            let to = names::joined(&at, to).ok_or_else(|| wrong("it leads to an address that is unclear"))?;
            if at.starts_with("https:") && !to.starts_with("https:") {
                return Err(wrong("it leads from https to another protocol"));
            }
            if names::host(&to) != names::host(&at) {
                // The store that the Hub redirects to has ETags of its own.
                etag = etag.or_else(|| linked.or(text(headers, "etag")).map(str::to_owned));
            }
            at = to;
        }
        Err(wrong("it leads in a circle"))
    }
}

impl Answer {
    /// The next bytes of the body, at least one and at most `most`.
    pub(super) fn read(&mut self, most: u64) -> Result<Vec<u8>, HubError> {
        let Some(mut bytes) = self.body.next()? else { return Err(connection(&self.body.url, &"it ended early")) };
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(bytes)
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
