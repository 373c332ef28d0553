//! Where the Hub and its cache are, and how it is asked.

use super::environment::{ENDPOINT, Environment, Secret, Token};
use crate::error::HubError;
use std::path::PathBuf;
use std::time::Duration;

/// Where the Hub and its cache are, who asks, and how slow an answer may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOptions {
    pub(super) cache: PathBuf,
    pub(super) endpoint: String,
    pub(super) token: Option<Secret>,
    pub(super) offline: bool,
    pub(super) minimum_speed: MinimumSpeed,
}

/// What a server must bring, so that it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumSpeed {
    pub(super) bytes_per_second: u64,
    pub(super) window: Duration,
}

/// 1 KiB a second, measured over 30 seconds.
const MINIMUM_SPEED: MinimumSpeed = MinimumSpeed { bytes_per_second: 1 << 10, window: Duration::from_secs(30) };

impl MinimumSpeed {
    pub(super) fn window_bytes(self) -> u64 {
        (self.bytes_per_second as f64 * self.window.as_secs_f64()) as u64
    }
}

impl HubOptions {
    /// As the environment says, as other tools of the Hub read it ([the variables](super#the-cache)).
    ///
    /// # Errors
    /// [`HubError::NoCache`] when neither a variable nor a home folder says where the cache is.
    pub fn from_env() -> Result<HubOptions, HubError> {
        let Environment { cache, endpoint, token, offline } =
            Environment::read(|name| std::env::var_os(name), std::env::home_dir());
        let token = token.and_then(|token| match token {
            Token::Given(token) => Some(token.0),
            Token::File(path) => std::fs::read_to_string(path).ok(),
        });
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(HubOptions::new(cache.ok_or(HubError::NoCache)?).endpoint(endpoint).token(token).offline(offline))
    }

    /// The Hub itself, asked without a token, and the cache in the folder `cache`.
    pub fn new(cache: impl Into<PathBuf>) -> HubOptions {
        let minimum_speed = MINIMUM_SPEED;
        HubOptions { cache: cache.into(), endpoint: ENDPOINT.into(), token: None, offline: false, minimum_speed }
    }

    /// Another server of the same protocol.
    pub fn endpoint(mut self, url: impl Into<String>) -> HubOptions {
        self.endpoint = url.into().trim_end_matches('/').into();
        self
    }

    /// The token of the account that asks. It is sent to the endpoint's host alone, by `https` or to this very machine.
    pub fn token(mut self, token: Option<String>) -> HubOptions {
        self.token = token.map(Secret);
        self
    }

    /// Whether the cache alone may answer.
    pub fn offline(mut self, offline: bool) -> HubOptions {
        self.offline = offline;
        self
    }

    /// What a server must bring over each `window` of waiting for it; by default 1024 bytes a second over 30 seconds. A
    /// connection that brings less is given up and made anew, and after four in a row the download ends with
    /// [`HubError::Slow`], to be continued. How long a download takes in all is not limited. With 0 bytes a second only a
    /// connection that brings nothing in `window` is given up.
    pub fn minimum_speed(mut self, bytes_per_second: u64, window: Duration) -> HubOptions {
        self.minimum_speed = MinimumSpeed { bytes_per_second, window };
        self
    }
}
