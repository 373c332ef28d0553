//! Addresses -> who can read what is sent there.

use ureq::http::Uri;
use ureq::http::uri::Scheme;

/// Whether nobody on the way reads what is sent to `url`: by TLS, or to this very machine without a proxy.
pub(super) fn is_private(url: &str) -> bool {
    is_local(url) || url.parse().is_ok_and(|uri: Uri| uri.scheme() == Some(&Scheme::HTTPS))
}

/// Whether `url` is plain HTTP to this very machine.
pub(super) fn is_local(url: &str) -> bool {
    let here = |host: &str| ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| host.eq_ignore_ascii_case(name));
    url.parse().is_ok_and(|uri: Uri| uri.scheme() == Some(&Scheme::HTTP) && uri.host().is_some_and(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_private_by_tls_or_within_this_machine() {
        for url in
            ["http://localhost:8080/a", "HTTP://LOCALHOST", "http://127.0.0.1:1", "http://[::1]", "http://[::1]:1"]
        {
            assert!(is_local(url) && is_private(url), "{url}");
        }
        for url in ["https://huggingface.co", "HTTPS://a:1/b", "https://localhost:1"] {
            assert!(!is_local(url) && is_private(url), "{url}");
        }
        for url in [
            "http://a",
            "HTTP://a",
            "http://localhost:1@a",
            "http://localhost.a",
            "http://127.1:1",
            "localhost:8080",
            "ftp://localhost",
            "",
        ] {
            assert!(!is_local(url) && !is_private(url), "{url}");
        }
    }
}
