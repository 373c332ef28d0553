//! Where the Hub and its cache are, and how it is asked; environment variables are read as in huggingface_hub's
//! `constants.py` and `_auth.py`.

use crate::error::HubError;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const ENDPOINT: &str = "https://huggingface.co";

/// Values that count as yes, in capitals.
const YES: [&str; 4] = ["1", "ON", "YES", "TRUE"];

/// Where the Hub and its cache are, who asks, and how slow an answer may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOptions {
    pub(super) cache: PathBuf,
    pub(super) endpoint: String,
    pub(super) token: Option<Secret>,
    pub(super) offline: bool,
    pub(super) minimum_speed: MinimumSpeed,
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The least that a server must send for us to keep waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumSpeed {
    pub(super) bytes_per_second: u64,
    pub(super) window: Duration,
}

/// The default minimum speed: 1 KiB a second, measured over 30 seconds.
const MINIMUM_SPEED: MinimumSpeed = MinimumSpeed { bytes_per_second: 1 << 10, window: Duration::from_secs(30) };

impl MinimumSpeed {
    pub(super) fn window_bytes(self) -> u64 {
        (self.bytes_per_second as f64 * self.window.as_secs_f64()) as u64
    }
}

impl HubOptions {
    /// Options from the environment, read like other tools of the Hub do ([the variables](super#the-cache)).
    ///
    /// # Errors
    /// [`HubError::NoCache`] when neither a variable nor a home folder says where the cache is.
    pub fn from_env() -> Result<HubOptions, HubError> {
        let file = |path: PathBuf| std::fs::read_to_string(path).ok();
        HubOptions::read(|name| std::env::var_os(name), std::env::home_dir(), file)
    }

    /// Reads variables by `variable`, where empty or blank ones count as not set, and the token by `file` where no
    /// variable holds it.
    fn read(
        variable: impl Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
        file: impl Fn(PathBuf) -> Option<String>,
    ) -> Result<HubOptions, HubError> {
        let variable = |name: &str| variable(name).filter(|value| !value.to_string_lossy().trim().is_empty());
        let text = |name: &str| Some(variable(name)?.to_string_lossy().trim().to_owned());
        let path = |name: &str| Some(expanded(variable(name)?, variable, home.as_ref()));
        let yes = |name: &str| text(name).is_some_and(|value| YES.contains(&value.to_ascii_uppercase().as_str()));

        let caches = path("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
        let own = path("HF_HOME").or_else(|| Some(caches?.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| Some(own.as_ref()?.join("hub"))).ok_or(HubError::NoCache)?;
        let stored = || file(path("HF_TOKEN_PATH").or_else(|| Some(own.as_ref()?.join("token")))?);
        let token = match yes("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).or_else(stored),
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into());
        let offline = yes(if text("HF_HUB_OFFLINE").is_some() { "HF_HUB_OFFLINE" } else { "TRANSFORMERS_OFFLINE" });
        Ok(HubOptions::new(cache).endpoint(endpoint).token(token).offline(offline))
    }

    /// Options for the Hub itself, without a token, and with the cache in the folder `cache`.
    pub fn new(cache: impl Into<PathBuf>) -> HubOptions {
        let minimum_speed = MINIMUM_SPEED;
        HubOptions { cache: cache.into(), endpoint: ENDPOINT.into(), token: None, offline: false, minimum_speed }
    }

    /// Sets another server of the same protocol.
    pub fn endpoint(mut self, url: impl Into<String>) -> HubOptions {
        self.endpoint = url.into().trim_end_matches('/').into();
        self
    }

    /// Sets the token of the account. It is sent only to the endpoint's host, by `https` or to this machine.
    pub fn token(mut self, token: Option<String>) -> HubOptions {
        self.token = token.map(Secret);
        self
    }

    /// Sets whether only the cache may be used.
    pub fn offline(mut self, offline: bool) -> HubOptions {
        self.offline = offline;
        self
    }

    /// Sets what a server must send over each `window` of waiting for it; by default 1024 bytes a second over 30
    /// seconds. A slower connection is closed and made again, and after four in a row the download ends with
    /// [`HubError::Slow`], to be continued. The total time of a download is not limited. With 0 bytes a second only a
    /// connection that sends nothing in `window` is closed.
    pub fn minimum_speed(mut self, bytes_per_second: u64, window: Duration) -> HubOptions {
        self.minimum_speed = MinimumSpeed { bytes_per_second, window };
        self
    }
}

/// A path with `~`, `$NAME` and `${NAME}` expanded, where such a home and variable exist.
fn expanded(path: OsString, variable: impl Fn(&str) -> Option<OsString>, home: Option<&PathBuf>) -> PathBuf {
    let text = match path.into_string() {
        Ok(text) => text,
        Err(path) => return path.into(),
    };
    let (mut whole, mut rest) = (OsString::new(), text.as_str());
    if let (Some(home), Some(after)) =
        (home, rest.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')))
    {
        whole.push(home);
        rest = after;
    }
    while let Some((before, named)) = rest.split_once('$') {
        whole.push(before);
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after) = match named.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(braced) => braced,
            None => named.split_at(named.find(|c| !of_name(c)).unwrap_or(named.len())),
        };
        match variable(name) {
            Some(value) => whole.push(value),
            None => whole.push(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    whole.push(rest);
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options whose files hold their own paths.
    fn read(variables: &[(&str, &str)]) -> HubOptions {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let file = |path: PathBuf| Some(format!("{}\n", path.display()));
        HubOptions::read(variable, Some("/home/u".into()), file).unwrap()
    }

    fn token_of(options: &HubOptions) -> Option<&str> {
        options.token.as_ref().map(|token| token.0.as_str())
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        for (variables, cache, token) in [
            (&[] as &[(&str, &str)], "/home/u/.cache/huggingface/hub", "/home/u/.cache/huggingface/token"),
            (&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub", "/x/huggingface/token"),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], "/h/hub", "/h/token"),
            (
                &[("HF_HOME", " "), ("HF_HUB_CACHE", "")],
                "/home/u/.cache/huggingface/hub",
                "/home/u/.cache/huggingface/token",
            ),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c", "/h/token"),
            (&[("HUGGINGFACE_HUB_CACHE", "/old")], "/old", "/home/u/.cache/huggingface/token"),
            (&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/c")], "/c", "/home/u/.cache/huggingface/token"),
            (&[("HF_HOME", "/h"), ("HF_TOKEN_PATH", "/t/file")], "/h/hub", "/t/file"),
            (&[("HF_HOME", "~/m")], "/home/u/m/hub", "/home/u/m/token"),
            (&[("HF_HOME", "$D/m${E}x"), ("D", "/d"), ("E", "e")], "/d/mex/hub", "/d/mex/token"),
            (&[("HF_HOME", "/a/$NONE/${NONE}/~b")], "/a/$NONE/${NONE}/~b/hub", "/a/$NONE/${NONE}/~b/token"),
        ] {
            let found = read(variables);
            assert_eq!(found.cache, PathBuf::from(cache), "{variables:?}");
            assert_eq!(token_of(&found), Some(token), "{variables:?}");
        }
        assert!(matches!(HubOptions::read(|_| None, None, |_| None), Err(HubError::NoCache)));
        let named = HubOptions::read(|name| (name == "HF_HUB_CACHE").then(|| "/c".into()), None, |_| None).unwrap();
        assert_eq!((named.cache, named.token), ("/c".into(), None));
    }

    #[test]
    fn a_token_is_not_shown() {
        let shown = format!("{:?}", read(&[("HF_TOKEN", "hf_secret")]));
        assert!(shown.contains("hidden") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn tokens_and_switches_are_those_of_other_tools() {
        assert_eq!(token_of(&read(&[("HF_TOKEN", " a\n"), ("HUGGING_FACE_HUB_TOKEN", "b")])), Some("a"));
        assert_eq!(token_of(&read(&[("HUGGING_FACE_HUB_TOKEN", "b")])), Some("b"));
        for quiet in [
            &[("HF_TOKEN", "a"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")] as &[_],
            &[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes")],
        ] {
            assert_eq!(read(quiet).token, None, "{quiet:?}");
        }
        for (variables, offline) in [
            (&[] as &[(&str, &str)], false),
            (&[("HF_HUB_OFFLINE", "1")], true),
            (&[("HF_HUB_OFFLINE", "on")], true),
            (&[("HF_HUB_OFFLINE", "Yes")], true),
            (&[("HF_HUB_OFFLINE", "TRUE")], true),
            (&[("HF_HUB_OFFLINE", "0")], false),
            (&[("HF_HUB_OFFLINE", "2")], false),
            (&[("TRANSFORMERS_OFFLINE", "1")], true),
            (&[("TRANSFORMERS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "0")], false),
        ] {
            assert_eq!(read(variables).offline, offline, "{variables:?}");
        }
        assert_eq!(read(&[]).endpoint, ENDPOINT);
        assert_eq!(read(&[("HF_ENDPOINT", "https://mirror.example/")]).endpoint, "https://mirror.example");
    }
}
