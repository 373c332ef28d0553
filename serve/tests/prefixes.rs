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

/// A server that is killed, and one that is told to stop: the next one reads what they have computed, for the same callers.
#[test]
fn prompts_outlive_their_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompts");
    let option = format!("{}:64M", path.to_str().expect("UTF-8"));
    let start = || start(&["--prompt-cache", &option]);
    let prompts = [ids(9, 2 * PAGE + 40), ids(10, 2 * PAGE + 40)];
    let killed = start();
    assert_eq!([held(&killed, &prompts[0], None), held(&killed, &prompts[0], Some("one"))], [0, 0]);
    killed.wait_for("serve_prompt_cache_written", |entries| entries == 4);
    drop(killed);
    let stopped = start();
    assert_eq!(stopped.metric("serve_prompt_cache_read"), 0);
    for (salt, expected) in [(None, 2 * PAGE), (Some("one"), 2 * PAGE), (Some("two"), 0)] {
        assert_eq!(held(&stopped, &prompts[0], salt), expected, "{salt:?}");
    }
    assert_eq!(stopped.metric("serve_prompt_cache_read"), 4);
    assert!(stopped.metric("serve_prompt_cache_read_bytes") > 0 && stopped.metric("serve_prompt_cache_bytes") > 0);
    assert_eq!(held(&stopped, &prompts[1], None), 0);
    stopped.stop();
    let mut stopped = stopped;
    stopped.process.wait().expect("it ends");
    let last = start();
    assert_eq!(held(&last, &prompts[1], None), 2 * PAGE);
    assert_eq!(last.metric("serve_prompt_cache_damaged"), 0);
}

/// Servers on one folder at the same time: each finds what the other has written since it began, also after what it has itself.
#[test]
fn servers_find_what_others_write_while_they_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompts");
    let option = path.to_str().expect("UTF-8");
    let [one, two] = [(); 2].map(|()| start(&["--prompt-cache", option]));
    let long = ids(12, 3 * PAGE + 40);
    // Each is asked first for what nobody has yet.
    assert_eq!([(&one, 13), (&two, 14)].map(|(server, seed)| held(server, &ids(seed, PAGE + 40), None)), [0, 0]);
    assert_eq!(held(&one, &long[..PAGE + 40], None), 0);
    one.wait_for("serve_prompt_cache_written", |entries| entries == 2);
    assert_eq!(held(&two, &long, None), PAGE);
    two.wait_for("serve_prompt_cache_written", |entries| entries == 3);
    assert_eq!(held(&one, &long, None), 3 * PAGE);
    for server in [&one, &two] {
        let all = bytes_of(&path);
        server.wait_for("serve_prompt_cache_bytes", |bytes| bytes == all);
    }
}

/// The bytes of all entries in a folder.
fn bytes_of(path: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(path).expect("a folder").map(|file| file.expect("a file"));
    files.map(|file| file.metadata().expect("it is there").len()).sum()
}

/// Where callers may not learn of each other, what is of one request is not on disk, though the numbers of requests begin anew.
#[test]
fn what_is_of_one_request_is_not_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompts");
    let option = path.to_str().expect("UTF-8");
    let prompt = ids(11, 2 * PAGE + 40);
    for expected in [0, 2 * PAGE] {
        let server = start(&["--host", "0.0.0.0", "--prompt-cache", option]);
        assert_eq!(held(&server, &prompt, None), 0);
        assert_eq!(held(&server, &prompt, Some("own")), expected);
        if expected == 0 {
            server.wait_for("serve_prompt_cache_written", |entries| entries == 2);
        }
    }
}
