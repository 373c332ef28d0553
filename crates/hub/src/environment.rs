//! Environment variables -> where the Hub and its cache are, as huggingface_hub's `constants.py` and `_auth.py` read them.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub(super) const ENDPOINT: &str = "https://huggingface.co";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Environment {
    /// `None` where there is no home folder either.
    pub(super) cache: Option<PathBuf>,
    pub(super) endpoint: String,
    pub(super) token: Option<Token>,
    pub(super) offline: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// In a variable; this is it.
    Given(Secret),
    /// In this file, if it is there.
    File(PathBuf),
}

/// What is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Environment {
    /// Reads variables by `variable`. Those that are empty or blank are not set.
    pub(super) fn read(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Environment {
        let variable = |name: &str| variable(name).filter(|value| !value.to_string_lossy().trim().is_empty());
        let text = |name: &str| Some(variable(name)?.to_string_lossy().trim().to_owned());
        let path = |name: &str| Some(expanded(variable(name)?, variable, home.as_ref()));
        let yes = |name: &str| text(name).is_some_and(|value| YES.contains(&value.to_ascii_uppercase().as_str()));

        let caches = path("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
        let own = path("HF_HOME").or_else(|| Some(caches?.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let file = path("HF_TOKEN_PATH").or_else(|| Some(own.as_ref()?.join("token")));
        let given = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN"));
        let token = given.map(|token| Token::Given(Secret(token))).or(file.map(Token::File));
        Environment {
            cache: cache.or_else(|| Some(own.as_ref()?.join("hub"))),
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into()),
            token: token.filter(|_| !yes("HF_HUB_DISABLE_IMPLICIT_TOKEN")),
            offline: yes(if text("HF_HUB_OFFLINE").is_some() { "HF_HUB_OFFLINE" } else { "TRANSFORMERS_OFFLINE" }),
        }
    }
}

/// What counts as yes, in capitals.
const YES: [&str; 4] = ["1", "ON", "YES", "TRUE"];

/// A path with `~`, `$NAME` and `${NAME}` replaced, where there are such a home and variable.
fn expanded(path: OsString, variable: impl Fn(&str) -> Option<OsString>, home: Option<&PathBuf>) -> PathBuf {
    let text = match path.into_string() {
        Ok(text) => text,
        Err(path) => return path.into(),
    };
    let (mut whole, mut rest) = (OsString::new(), text.as_str());
    if let (Some(home), Some(behind)) =
        (home, rest.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')))
    {
        whole.push(home);
        rest = behind;
    }
    while let Some((before, behind)) = rest.split_once('$') {
        whole.push(before);
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after) = match behind.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
            Some(braced) => braced,
            None => behind.split_at(behind.find(|c| !named(c)).unwrap_or(behind.len())),
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

    fn read(variables: &[(&str, &str)]) -> Environment {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        Environment::read(variable, Some("/home/u".into()))
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
            assert_eq!(found.cache, Some(cache.into()), "{variables:?}");
            assert_eq!(found.token, Some(Token::File(token.into())), "{variables:?}");
        }
        let none = Environment::read(|_| None, None);
        assert_eq!((none.cache, none.token), (None, None));
        let named = Environment::read(|name| (name == "HF_HUB_CACHE").then(|| "/c".into()), None);
        assert_eq!(named.cache, Some("/c".into()));
    }

    #[test]
    fn a_token_is_not_shown() {
        let shown = format!("{:?}", read(&[("HF_TOKEN", "hf_secret")]));
        assert!(shown.contains("hidden") && !shown.contains("secret"), "{shown}");
        let shown = format!("{:?}", read(&[("HF_TOKEN_PATH", "/t/file")]));
        assert!(shown.contains("/t/file"), "{shown}");
    }

    #[test]
    fn tokens_and_switches_are_those_of_other_tools() {
        let given = |token: &str| Some(Token::Given(Secret(token.into())));
        assert_eq!(read(&[("HF_TOKEN", " a\n"), ("HUGGING_FACE_HUB_TOKEN", "b")]).token, given("a"));
        assert_eq!(read(&[("HUGGING_FACE_HUB_TOKEN", "b")]).token, given("b"));
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
        assert_eq!(read(&[("HF_ENDPOINT", "https://mirror.example/")]).endpoint, "https://mirror.example/");
    }
}
