//! Names and addresses from a server -> those that may be used here.

use ureq::http::Uri;
use ureq::http::uri::Scheme;

/// Levels of folders in a repository.
const DEPTH: usize = 8;

/// Bytes of one component of a name: the limit of file systems.
const COMPONENT: usize = 255;

/// Whether `name` is a file inside of a folder on every system, without a way out of it.
pub(super) fn is_inside(name: &str) -> bool {
    let plain = |c: char| !matches!(c, '\\' | ':') && !c.is_control();
    let component = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= COMPONENT && part.chars().all(plain);
    name.split('/').count() <= DEPTH && name.split('/').all(component)
}

/// Whether `text` can be a commit; a folder of the cache is named after it.
pub(super) fn is_commit(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The file of the cache that holds the content with this ETag; `None` when it could be another file.
pub(super) fn blob_name(etag: &str) -> Option<String> {
    let name = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    // A dot would end the name where the names of partial files and locks add theirs.
    let sound = (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    sound.then(|| name.into())
}

/// `text` encoded as a part of a URL's path, with its slashes or as one component.
pub(super) fn encoded(text: &str, slashes: bool) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (slashes && byte == b'/');
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// Protocol, host and port of a URL.
pub(super) fn host(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find(['/', '?', '#']).map_or(url, |end| &url[..start + end])
}

/// Whether nobody on the way can read what is sent to `url`: it uses TLS, or goes to this machine without a proxy.
pub(super) fn is_private(url: &str) -> bool {
    is_local(url) || url.parse().is_ok_and(|uri: Uri| uri.scheme() == Some(&Scheme::HTTPS))
}

/// Whether `url` is plain HTTP to this machine.
pub(super) fn is_local(url: &str) -> bool {
    let here = |host: &str| ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| host.eq_ignore_ascii_case(name));
    url.parse().is_ok_and(|uri: Uri| uri.scheme() == Some(&Scheme::HTTP) && uri.host().is_some_and(here))
}

/// Where the `Location` header `to` leads from `url`; `None` when it is neither a URL nor a path of the same host.
pub(super) fn joined(url: &str, to: &str) -> Option<String> {
    if to.starts_with("https://") || to.starts_with("http://") {
        return Some(to.into());
    }
    (to.starts_with('/') && !to.starts_with("//")).then(|| format!("{}{to}", host(url)))
}

/// The first byte and the total of `bytes 0-99/1000`.
pub(super) fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end, total): (u64, u64, u64) = (start.parse().ok()?, end.parse().ok()?, total.parse().ok()?);
    (start <= end && end < total).then_some((start, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_contradicts_itself_is_none() {
        assert_eq!(content_range("bytes 0-0/1"), Some((0, 1)));
        assert_eq!(content_range("bytes 5-9/18446744073709551615"), Some((5, u64::MAX)));
        for text in ["bytes 5-4/10", "bytes 0-10/10", "bytes */10", "0-9/10", "bytes 0-9/*", "bytes -1-9/10", ""] {
            assert_eq!(content_range(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        for name in ["config.json", "Q8_0/a-00001-of-00002.gguf", "mödel é.gguf", ".gitattributes"] {
            assert!(is_inside(name), "{name}");
        }
        let long = "a".repeat(256);
        let deep = "a/".repeat(8) + "a";
        for name in [
            "",
            "/etc/passwd",
            "..",
            "a/../../b",
            "a//b",
            "a/",
            "./a",
            "C:\\a",
            "a\\b",
            "a:b",
            "a\nb",
            "a\0b",
            &long,
            &deep,
        ] {
            assert!(!is_inside(name), "{name:?}");
        }
    }

    #[test]
    fn an_etag_names_one_file_of_the_cache() {
        assert_eq!(blob_name("\"ab-12\"").as_deref(), Some("ab-12"));
        assert_eq!(blob_name("W/\"ab12\"").as_deref(), Some("ab12"));
        for etag in ["", "\"\"", "../a", "/etc/passwd", "a.part", "a.lock", "a b", "a\"b"] {
            assert_eq!(blob_name(etag), None, "{etag:?}");
        }
        assert!(is_commit("0123abc") && !is_commit("") && !is_commit("../a") && !is_commit(&"a".repeat(65)));
    }

    #[test]
    fn addresses_are_escaped_and_joined() {
        assert_eq!(encoded("a b/ü#?%.gguf", true), "a%20b/%C3%BC%23%3F%25.gguf");
        assert_eq!(encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(host("http://a:1/b?c"), "http://a:1");
        assert_eq!(host("https://a"), "https://a");
        assert_eq!(joined("http://a:1/b/c?d", "/e?f").as_deref(), Some("http://a:1/e?f"));
        assert_eq!(joined("http://a/b", "https://c/d").as_deref(), Some("https://c/d"));
        for to in ["//c/d", "d", "", "ftp://c", "file:///etc/passwd"] {
            assert_eq!(joined("http://a/b", to), None, "{to}");
        }
    }
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
