//! What the server tells of the prompts of others: whole pages, of those who may know it, and nothing of anybody else's.
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, fixture, serve};
use serde_json::{Value, json};

/// Tokens of a page of the cache.
const PAGE: usize = 256;

fn start(options: &[&str]) -> Server {
    serve(&fixture("models/llama-3.1/bf16"), options)
}

fn ids(seed: usize, count: usize) -> Vec<usize> {
    (0..count).map(|index| (index * 97 + seed * 13 + index * index % 7) % 256).collect()
}

/// How many tokens of a prompt of `ids` the server says that it held, where both of its counts agree.
fn held(server: &Server, ids: &[usize], salt: Option<&str>) -> usize {
    let (status, answer) = server.post(
        "/v1/completions",
        &json!({ "prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": true, "cache_salt": salt }),
    );
    assert_eq!(status, 200, "{answer}");
    let [told, timed] = [&answer["usage"]["prompt_tokens_details"]["cached_tokens"], &answer["timings"]["cache_n"]]
        .map(|count: &Value| count.as_u64().and_then(|count| usize::try_from(count).ok()).expect("a count"));
    assert_eq!(told, timed);
    told
}

/// Sixteen known tokens, and then each id as a guess at the next one.
#[test]
fn a_prompt_cannot_be_read_token_by_token() {
    let server = start(&[]);
    let secret = ids(5, 2 * PAGE + 40);
    assert_eq!(held(&server, &secret, None), 0);
    for known in [17, 18, 40, PAGE - 1, PAGE, PAGE + 30, 2 * PAGE + 20] {
        let guess = [&secret[..known], &[300, 301]].concat();
        assert_eq!(held(&server, &guess, None), known / PAGE * PAGE, "{known}");
    }
}

#[test]
fn prefixes_are_shared_within_a_salt() {
    let server = start(&[]);
    let prompt = ids(6, PAGE + 40);
    for salt in [Some("one"), Some("two"), None, Some("request 0"), Some("caller one")] {
        assert_eq!(held(&server, &prompt, salt), 0, "{salt:?}");
    }
    for (salt, expected) in [(Some("one"), prompt.len() - 1), (Some("two"), prompt.len() - 1), (None, PAGE)] {
        assert_eq!(held(&server, &prompt, salt), expected, "{salt:?}");
    }
}

#[test]
fn all_share_where_the_owner_says_so() {
    let prompt = ids(7, PAGE + 40);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "secret").expect("it is written");
    let key = file.path().to_str().expect("UTF-8");
    for (options, expected) in [
        (&["--host", "0.0.0.0"][..], 0),
        (&["--host", "0.0.0.0", "--share-prefixes"], PAGE),
        (&["--host", "0.0.0.0", "--api-key-file", key], PAGE),
    ] {
        let mut server = start(options);
        server.key = Some("secret".into());
        assert_eq!([(); 2].map(|()| held(&server, &prompt, None)), [0, expected], "{options:?}");
        assert_eq!([(); 2].map(|()| held(&server, &prompt, Some("own"))), [0, prompt.len() - 1], "{options:?}");
    }
}

#[test]
fn nothing_is_shared_where_that_is_off() {
    let server = start(&["--no-prefix-caching"]);
    let prompt = ids(8, PAGE + 40);
    for salt in [None, None, Some("one"), Some("one")] {
        assert_eq!(held(&server, &prompt, salt), 0, "{salt:?}");
    }
    assert_eq!(server.metric("serve_kv_cache_unused_bytes"), 0);
}
