//! Environment -> where the Hub and its cache are.

use super::error::HubError;
use hf_hub::Cache;
use std::fmt;
use std::path::{Path, PathBuf};

const ENDPOINT: &str = "https://huggingface.co";

/// Where the Hub and its cache are, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    cache: PathBuf,
    endpoint: String,
    token: Option<String>,
    offline: bool,
}

impl HubOptions {
    /// As the environment says, as other tools of the Hub read it: `HF_HOME` (`~/.cache/huggingface` when absent; the cache
    /// is its folder `hub`), `HF_ENDPOINT`, `HF_TOKEN` or else the file `token` in `HF_HOME`, `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// [`HubError::NoCache`] when there is neither `HF_HOME` nor a home folder.
    pub fn from_env() -> Result<HubOptions, HubError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        // The crate's own default panics without a home folder.
        if variable("HF_HOME").is_none() && std::env::home_dir().is_none() {
            return Err(HubError::NoCache);
        }
        let cache = match variable("HF_HOME") {
            Some(_) => Cache::from_env(),
            None => Cache::default(),
        };
        let yes = |value: String| matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
        let token = variable("HF_TOKEN").map(|token| token.trim().to_owned()).or_else(|| cache.token());
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into());
        let offline = variable("HF_HUB_OFFLINE").is_some_and(yes);
        Ok(HubOptions::new(cache.path()).endpoint(endpoint).token(token).offline(offline))
    }

    /// The Hub itself, asked without a token, and the cache in the folder `cache`.
    pub fn new(cache: impl Into<PathBuf>) -> HubOptions {
        HubOptions { cache: cache.into(), endpoint: ENDPOINT.into(), token: None, offline: false }
    }

    /// Another server of the same protocol.
    pub fn endpoint(mut self, url: impl Into<String>) -> HubOptions {
        self.endpoint = url.into().trim_end_matches('/').into();
        self
    }

    /// The token of the account that asks. It is sent to the endpoint's host alone, by `https` or to this very machine.
    pub fn token(mut self, token: Option<String>) -> HubOptions {
        self.token = token;
        self
    }

    /// Whether the cache alone may answer.
    pub fn offline(mut self, offline: bool) -> HubOptions {
        self.offline = offline;
        self
    }

    pub(super) fn cache_folder(&self) -> &Path {
        &self.cache
    }

    pub(super) fn url(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(super) fn is_offline(&self) -> bool {
        self.offline
    }
}

impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("HubOptions")
            .field("cache", &self.cache)
            .field("endpoint", &self.endpoint)
            .field("token", &token)
            .field("offline", &self.offline)
            .finish()
    }
}
