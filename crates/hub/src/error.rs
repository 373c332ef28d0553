//! Errors between this library and the Hub.

use model_factory_format::Cancelled;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a model could not be loaded from the Hub. None of these errors damages the cache.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum HubError {
    /// The model is not in the cache, and access to the Hub is disabled (exit code 1).
    #[error(
        "{id} is not in the cache {}, and the Hub may not be asked; unset HF_HUB_OFFLINE, or download the model first",
        cache.display()
    )]
    Offline { id: String, cache: PathBuf },
    /// Neither `HF_HUB_CACHE` nor `HF_HOME` nor a home folder says where the cache is (exit code 1).
    #[error("there is no home folder to keep the cache in; set HF_HOME to a folder")]
    NoCache,
    /// The Hub refuses or requires a login, with status 401 or 403; the token is never sent over a connection that
    /// others could read (exit code 1).
    #[error(
        "the Hub gives no access to {id} (status {status}): {}",
        match token {
            true => "the token it was given does not have it; accept the model's licence on its page, or set HF_TOKEN to another",
            false => "it does not exist, is private, or asks for a licence to be accepted; check the id, and set HF_TOKEN to \
                      a token of an account that may read it, which is sent by https, or to this very machine",
        }
    )]
    NoAccess { id: String, status: u16, token: bool },
    /// The token cannot be sent; no part of it is shown (exit code 1).
    #[error(
        "the token is not one word of ASCII: it has a line break, a space or another character that no token has; put the \
         token alone into HF_TOKEN, or into the file that HF_TOKEN_PATH names"
    )]
    Token,
    /// There is no such repository or revision (exit code 1).
    #[error("there is no {id} on the Hub, and no file or folder of that name here; check the id and its revision")]
    NotFound { id: String },
    /// The repository lists a file that it does not have (exit code 15).
    #[error("{id} lists {file}, and the Hub does not have that file; ask the model's makers to upload it again")]
    FileMissing { id: String, file: String },
    /// The Hub rejects further requests of this address or account; it may say how many seconds to wait (exit code 1).
    #[error(
        "the Hub answers no more requests for now (status 429); try again {}, or set HF_TOKEN for a higher limit",
        wait.map_or("later".into(), |seconds| format!("in {seconds} s"))
    )]
    RateLimited { wait: Option<u64> },
    /// The Hub answers with an unexpected status (exit code 1).
    #[error("the Hub answers status {status} to {url}; try again later")]
    Status { url: String, status: u16 },
    /// The Hub cannot be reached, or the connection breaks several times (exit code 1).
    #[error(
        "the connection to {url} fails: {reason}; check the network and HF_ENDPOINT, or the path if a file of this \
         machine was meant; HF_HUB_OFFLINE=1 uses what is in the cache"
    )]
    Connection { url: String, reason: String },
    /// The server sends less than [`HubOptions::minimum_speed`](crate::HubOptions::minimum_speed) requires, on several
    /// connections in a row; received bytes are kept, and the next load continues there (exit code 1).
    #[error(
        "{url} comes too slowly: {found} bytes in {} s, expected at least {least} a second; load again to continue there, \
         or allow less by HubOptions::minimum_speed",
        window.as_secs_f64()
    )]
    Slow { url: String, found: u64, least: u64, window: Duration },
    /// The load was cancelled; received bytes are kept, and the next load continues there (exit code 1).
    #[error("it was cancelled; load again to continue there")]
    Cancelled,
    /// A download was cut off; received bytes are kept, and the next one continues there (exit code 1).
    #[error("the download of {file} was cut off at {done} of {total} bytes: {reason}; load again to continue there")]
    Interrupted { file: String, done: u64, total: u64, reason: String },
    /// A file was downloaded twice and does not match the Hub's description; nothing of it is kept (exit code 1).
    /// Digests are SHA-256, or git's blob id where the ETag is as long as one.
    #[error(
        "the Hub sends another {file} than it describes: its digest is {found}, expected {expected}; check the network and \
         HF_ENDPOINT, and tell the model's makers if it stays so"
    )]
    Digest { file: String, found: String, expected: String },
    /// A file is not as long as the Hub reported before (exit code 1).
    #[error("the Hub sends {found} bytes of {file}, expected {expected}; try again, or tell the model's makers")]
    Length { file: String, found: u64, expected: u64 },
    /// A response does not follow the Hub's protocol (exit code 1).
    #[error("the answer to {url} is not the Hub's: {what}; check HF_ENDPOINT")]
    Answer { url: String, what: String },
    /// No model in the repository has that quantization or file name, or no vision tower that name (exit code 1).
    #[error("{repo} has no {wanted:?}; {}", match choices.is_empty() {
        true => "it has nothing of the kind".into(),
        false => format!("choose one of {}", choices.join(", ")),
    })]
    NoSuchModel { repo: String, wanted: String, choices: Vec<String> },
    /// A repository lists more files than any model has (exit code 1).
    #[error("{id} lists {found} {what}, at most {limit} are read: that is no model's repository")]
    TooManyFiles { id: String, what: &'static str, found: usize, limit: usize },
    /// The headers of a repository are longer than any model's (exit code 1).
    #[error("the headers of {id} take more than {limit} bytes, which no model's do")]
    TooLarge { id: String, limit: u64 },
    /// The cache has something else in place of a lock, a partial file or a reference; it is neither followed nor
    /// changed (exit code 1).
    #[error(
        "{} is {found}, expected a regular file: the cache keeps a file of its own there; move it away and load again",
        path.display()
    )]
    NotAFile { path: PathBuf, found: &'static str },
    /// The cache or a temporary folder cannot be read or written (exit code 1).
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<std::io::Error> },
}

impl From<Cancelled> for HubError {
    fn from(_: Cancelled) -> HubError {
        HubError::Cancelled
    }
}

impl HubError {
    /// The exit code, as documented.
    pub fn code(&self) -> u8 {
        match self {
            HubError::FileMissing { .. } => 15,
            _ => 1,
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> HubError {
        let path = path.into();
        move |source| HubError::Io { path, source: Arc::new(source) }
    }

    /// Whether a retry may help.
    pub(crate) fn passes(&self) -> bool {
        match self {
            HubError::Connection { .. } | HubError::Slow { .. } => true,
            HubError::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }
}
