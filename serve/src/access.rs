//! Access checks: the host name by which a request calls this server, and the key that it gives.

use axum::http::{HeaderMap, header};
use model_factory::Error;
use model_factory_openai::ApiError;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;

pub(crate) struct Access {
    /// The key that every request must give.
    pub(crate) key: Option<String>,
    /// Whether only this machine can connect.
    pub(crate) is_local: bool,
    /// Names by which requests may call this server, in lower case.
    pub(crate) hosts: Vec<String>,
}

impl Access {
    /// Checks a request for `path` with these headers.
    pub(crate) fn check(&self, headers: &HeaderMap, path: &str) -> Result<(), ApiError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name = host_name(text(header::HOST));
        // A foreign page whose host name was made to resolve to this machine sends that name (DNS rebinding).
        if !self.answers_to(&name) {
            let message = if self.is_local {
                "this server answers only by localhost and loopback addresses; --allowed-host NAME adds a name, --host opens it"
            } else {
                "without a key this server answers only by its addresses and localhost; --allowed-host NAME adds a name, and with \
                 --api-key-file every name will do"
            };
            return Err(ApiError::new(403, message, None, None));
        }
        let is_open = matches!(path, "/" | "/health" | "/v1/health");
        let bearer =
            text(header::AUTHORIZATION).split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // Anthropic's header, and Azure's.
        let own = ["x-api-key", "api-key"].into_iter().find_map(|name| headers.get(name)?.to_str().ok());
        let given = bearer.map(|(_, key)| key.trim()).or(own).unwrap_or_default().as_bytes();
        if is_open || self.key.as_ref().is_none_or(|key| key.as_bytes().ct_eq(given).into()) {
            return Ok(());
        }
        let message = "the API key is missing or wrong: Authorization: Bearer KEY";
        Err(ApiError::new(401, message, None, Some("invalid_api_key")))
    }

    fn answers_to(&self, name: &str) -> bool {
        let address = name.parse::<IpAddr>().ok();
        let is_this_machine = name == "localhost" || address.is_some_and(|address| address.is_loopback());
        // A page always sends a host name.
        let is_no_page = self.key.is_some() || address.is_some() || name.is_empty();
        is_this_machine || self.hosts.iter().any(|host| host == name) || !self.is_local && is_no_page
    }
}

/// The name or address in a `Host` header, in lower case.
fn host_name(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Parses a name of this server, for an option.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match host_name(text) {
        name if !name.is_empty() && text.bytes().all(is_name) => Ok(name),
        _ => Err("expected a name such as model.example.com, without scheme and port".into()),
    }
}

/// The key in a file.
///
/// # Errors
/// `Io` for a file that cannot be read, and for a key that no request could send.
pub(crate) fn key(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source: Arc::new(source) };
    let key = std::fs::read_to_string(path).map_err(failed)?.trim().to_owned();
    let unusable = |found| failed(io::Error::new(io::ErrorKind::InvalidData, found));
    if key.is_empty() {
        return Err(unusable("expected a key, found an empty file".into()));
    }
    match key.chars().find(|character| !matches!(character, ' '..='~')) {
        None => Ok(key),
        Some(found) => Err(unusable(format!(
            "expected a key of one line of visible ASCII, which a header can carry, found {found:?} (U+{:04X})",
            u32::from(found)
        ))),
    }
}

/// Whether a content type is JSON, whatever its parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split_once(';').map_or(content_type, |(essence, _)| essence);
    essence.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_name_of_elsewhere_is_refused_where_no_key_keeps_its_pages_out() {
        let open = |key: Option<&str>, is_local, host: &str| {
            let access = Access { key: key.map(str::to_owned), is_local, hosts: vec!["model.example.com".into()] };
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_str(host).expect("a header"))]);
            access.check(&headers, "/health").map_err(|error| error.status)
        };
        for host in ["localhost", "LOCALHOST:8080", "Localhost.", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"] {
            for (key, is_local) in [(None, true), (Some("k"), true), (None, false), (Some("k"), false)] {
                assert_eq!(open(key, is_local, host), Ok(()), "{host}");
            }
        }
        for host in ["model.example.com", "Model.Example.COM:443", "model.example.com."] {
            assert_eq!([true, false].map(|is_local| open(None, is_local, host)), [Ok(()); 2], "{host}");
        }
        for host in
            ["example.com", "evil.model.example.com", "localhost.example.com", "127.0.0.1.example.com", "[::1", "::1"]
        {
            let found = [(None, true), (Some("k"), true), (None, false), (Some("k"), false)];
            let found = found.map(|(key, is_local)| open(key, is_local, host));
            // A value that is not a host name cannot come from a page.
            let of_nobody = if host_name(host).is_empty() { Ok(()) } else { Err(403) };
            assert_eq!(found, [Err(403), Err(403), of_nobody, Ok(())], "{host}");
        }
        for host in ["192.168.0.9", "10.0.0.1:8080", "[fe80::1]:80"] {
            assert_eq!([true, false].map(|is_local| open(None, is_local, host)), [Err(403), Ok(())], "{host}");
        }
    }

    #[test]
    fn a_content_type_is_compared_without_its_parameters() {
        for yes in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x"] {
            assert!(is_json(yes), "{yes}");
        }
        for no in [
            "application/jsonp",
            "application/json5",
            "text/json",
            "application",
            "",
            "application/json x",
            "; application/json",
        ] {
            assert!(!is_json(no), "{no}");
        }
    }

    #[test]
    fn an_allowed_host_is_a_name_alone() {
        assert_eq!(host("Model.example.com."), Ok("model.example.com".into()));
        for no in ["", "http://example.com", "example.com:80", "a b", "[::1]", "*"] {
            assert!(host(no).is_err(), "{no}");
        }
    }
}
