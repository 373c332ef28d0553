//! Requests of the Hub's protocol -> bytes of files; redirects, tokens, statuses and broken connections.

use super::error::HubError;
use super::names::{self, encoded};
use super::options::HubOptions;
use serde::Deserialize;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

/// Hops from the Hub to the store that has the bytes; there is one.
const REDIRECTS: usize = 8;

/// Bytes of the description of a repository. One of 100,000 files has about 10 MB.
const INFO_BYTES: u64 = 64 << 20;

/// Tries in a row that may bring nothing.
const TRIES: u32 = 4;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Asks one server about one repository.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    repo: String,
    token: Option<String>,
    received: AtomicU64,
}

/// What a repository is at one commit.
pub(super) struct Description {
    pub(super) commit: String,
    /// Names that are files inside of a folder; any others are left out.
    pub(super) names: Vec<String>,
}

/// An answer whose body has not been read.
pub(super) struct Answer {
    /// What a cache calls the content.
    pub(super) etag: Option<String>,
    /// The length of the whole file.
    pub(super) total: u64,
    /// The place in the file that the body begins at.
    pub(super) start: u64,
    body: Body,
}

/// A part of a file.
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// The length of the whole file.
    pub(super) total: u64,
}

/// Counts how often nothing has come.
pub(super) struct Patience {
    fruitless: u32,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { fruitless: 0 }
    }

    /// Whether to try once more after `error`, which came after bytes had or had not; waits before.
    pub(super) fn goes_on(&mut self, error: &HubError, progress: bool) -> bool {
        self.fruitless = if progress { 0 } else { self.fruitless + 1 };
        let more = error.passes() && self.fruitless < TRIES;
        if more {
            std::thread::sleep(Duration::from_millis(100 << self.fruitless));
        }
        more
    }
}

#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Client {
    pub(super) fn new(options: &HubOptions, repo: &str) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("model-factory/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            .timeout_per_read(Some(Duration::from_secs(30)))
            .build();
        Client {
            agent: config.into(),
            endpoint: options.url().into(),
            repo: repo.into(),
            token: options.secret().map(str::to_owned),
            received: AtomicU64::new(0),
        }
    }

    /// Bytes of bodies that have come.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The commit and the files of `revision`.
    pub(super) fn describe(&self, revision: &str) -> Result<Description, HubError> {
        let url = format!("{}/api/models/{}/revision/{}", self.endpoint, self.repo, encoded(revision, false));
        let mut patience = Patience::new();
        let text = loop {
            match self.describe_once(&url) {
                Err(error) if patience.goes_on(&error, false) => {}
                result => break result?,
            }
        };
        let wrong = |what: String| HubError::Answer { url: url.clone(), what };
        let info: Info = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if !names::is_commit(&info.sha) {
            return Err(wrong("its sha is no commit".into()));
        }
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename);
        let mut names: Vec<String> = files.filter(|name| names::is_inside(name)).collect();
        names.sort();
        names.dedup();
        Ok(Description { commit: info.sha, names })
    }

    fn describe_once(&self, url: &str) -> Result<Vec<u8>, HubError> {
        let (response, _) = self.send(url, None)?;
        self.refuse_status(url, None, &response)?;
        let mut text = Vec::new();
        let mut body = response.into_body().into_reader().take(INFO_BYTES + 1);
        body.read_to_end(&mut text).map_err(|error| connection(url, &error))?;
        self.received.fetch_add(text.len() as u64, Ordering::Relaxed);
        if text.len() as u64 > INFO_BYTES {
            return Err(HubError::Answer { url: url.into(), what: format!("it is longer than {INFO_BYTES} bytes") });
        }
        Ok(text)
    }

    /// Where `file` of `commit` is.
    fn url(&self, commit: &str, file: &str) -> String {
        format!("{}/{}/resolve/{commit}/{}", self.endpoint, self.repo, encoded(file, true))
    }

    /// The bytes `range` of `file`, or as many of them as there are. Of a longer file, none where `whole` is asked for.
    pub(super) fn part(&self, commit: &str, file: &str, range: Range<u64>, whole: bool) -> Result<Part, HubError> {
        let mut part = Part { bytes: Vec::new(), total: 0 };
        let mut patience = Patience::new();
        loop {
            let before = part.bytes.len();
            match self.part_once(commit, file, &range, whole, &mut part) {
                Ok(()) => return Ok(part),
                Err(error) if patience.goes_on(&error, part.bytes.len() > before) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn part_once(
        &self,
        commit: &str,
        file: &str,
        range: &Range<u64>,
        whole: bool,
        part: &mut Part,
    ) -> Result<(), HubError> {
        let start = range.start + part.bytes.len() as u64;
        let mut answer = self.open(commit, file, start, Some(range.end))?;
        part.total = answer.total;
        let end = range.end.min(answer.total);
        if (whole && answer.total > range.end) || start >= end {
            return Ok(());
        }
        if answer.start != start {
            let what = "it is the whole file, expected a range of it".into();
            return Err(HubError::Answer { url: self.url(commit, file), what });
        }
        let mut left = end - start;
        while left > 0 {
            let bytes = answer.read(self, commit, file, left)?;
            left -= bytes.len() as u64;
            part.bytes.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Asks for the bytes of `file` from `start` on, and up to `end`.
    pub(super) fn open(&self, commit: &str, file: &str, start: u64, end: Option<u64>) -> Result<Answer, HubError> {
        let url = self.url(commit, file);
        let end = end.map(|end| (end - 1).to_string()).unwrap_or_default();
        let (response, etag) = self.send(&url, Some(format!("bytes={start}-{end}")))?;
        let status = response.status().as_u16();
        if status != 416 {
            self.refuse_status(&url, Some(file), &response)?;
        }
        let wrong = |what: &str| HubError::Answer { url: url.clone(), what: what.into() };
        let (start, total) = match status {
            206 => {
                let range = text(response.headers(), "content-range").and_then(names::content_range);
                range.ok_or_else(|| wrong("Content-Range is missing or unclear"))?
            }
            416 => {
                let total = text(response.headers(), "content-range").and_then(|range| range.strip_prefix("bytes */"));
                let total = total.and_then(|total| total.parse().ok());
                // A file of no bytes has no range.
                let total =
                    total.filter(|total| *total <= start).ok_or_else(|| wrong("it refuses a range of the file"))?;
                (start, total)
            }
            _ => {
                let length = text(response.headers(), "content-length").and_then(|length| length.parse().ok());
                (0, length.ok_or_else(|| wrong("Content-Length is missing or unclear"))?)
            }
        };
        let etag = etag.as_deref().map(names::blob_name);
        let etag = etag.map(|etag| etag.ok_or_else(|| wrong("its ETag cannot be a file's name"))).transpose()?;
        Ok(Answer { etag, total, start, body: response.into_body() })
    }

    /// Sends a request, follows redirects, and gives the ETag of the Hub itself, which is the content's.
    fn send(&self, url: &str, range: Option<String>) -> Result<(Response<Body>, Option<String>), HubError> {
        let wrong = |what: &str| HubError::Answer { url: url.into(), what: what.into() };
        let (mut at, mut etag) = (url.to_owned(), None);
        for _ in 0..=REDIRECTS {
            let mut request = self.agent.get(&at);
            if let Some(range) = &range {
                request = request.header("Range", range);
            }
            // Nobody but the Hub sees the token, and no line in between.
            let private = names::host(&at) == names::host(url) && names::is_private(&at);
            if let Some(token) = self.token.as_ref().filter(|_| private) {
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
                // The store behind has tags of its own.
                etag = etag.or_else(|| linked.or(text(headers, "etag")).map(str::to_owned));
            }
            at = to;
        }
        Err(wrong("it leads in a circle"))
    }

    /// The error that the status of `response` is, with `file` where one was asked for.
    fn refuse_status(&self, url: &str, file: Option<&str>, response: &Response<Body>) -> Result<(), HubError> {
        let id = self.repo.clone();
        let error = match response.status().as_u16() {
            200 | 206 => return Ok(()),
            status @ (401 | 403) => HubError::NoAccess { id, status, token: self.token.is_some() },
            404 => match file {
                Some(file) => HubError::FileMissing { id, file: file.into() },
                None => HubError::NotFound { id },
            },
            429 => {
                let wait = text(response.headers(), "retry-after").and_then(|wait| wait.parse().ok());
                HubError::RateLimited { wait }
            }
            status => HubError::Status { url: url.into(), status },
        };
        Err(error)
    }
}

impl Answer {
    /// The next bytes of the body, at least one and at most `most`.
    pub(super) fn read(&mut self, client: &Client, commit: &str, file: &str, most: u64) -> Result<Vec<u8>, HubError> {
        let mut bytes = vec![0; usize::try_from(most).unwrap_or(usize::MAX).min(BUFFER_BYTES)];
        let url = || client.url(commit, file);
        let count = loop {
            match self.body.as_reader().read(&mut bytes) {
                Ok(0) => {
                    let reason = "it ended early".into();
                    return Err(HubError::Connection { url: url(), reason });
                }
                Ok(count) => break count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(connection(&url(), &error)),
            }
        };
        client.received.fetch_add(count as u64, Ordering::Relaxed);
        bytes.truncate(count);
        Ok(bytes)
    }
}

fn connection(url: &str, error: &dyn std::fmt::Display) -> HubError {
    HubError::Connection { url: url.into(), reason: error.to_string() }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
