//! Content -> its name on the Hub: SHA-256 of a large file (LFS), git's blob id of a small one.

use super::client::FileRange;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// Computes the digest that the ETag of a content is.
pub(super) struct Digest {
    etag: String,
    /// The digests that the ETag may be; empty where it is no digest.
    contexts: Vec<Context>,
}

impl Digest {
    /// The digest that `etag` may be, for a content of `bytes` bytes. Other servers may have ETags that are no digest,
    /// or the plain SHA-1 of the content, which is as long as git's blob id.
    pub(super) fn named(etag: &str, bytes: u64) -> Digest {
        let hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let contexts = match etag.len() {
            64 if hex => vec![Context::new(&SHA256)],
            40 if hex => {
                let plain = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                let mut blob = plain.clone();
                blob.update(format!("blob {bytes}\0").as_bytes());
                vec![blob, plain]
            }
            _ => Vec::new(),
        };
        Digest { etag: etag.to_ascii_lowercase(), contexts }
    }

    /// The digest of `part`, where it is a whole file and does not match its ETag.
    pub(super) fn mismatch_of(part: &FileRange) -> Option<String> {
        let etag = part.etag.as_ref().filter(|_| part.bytes.len() as u64 == part.total)?;
        let mut digest = Digest::named(etag, part.total);
        digest.update(&part.bytes);
        digest.mismatch()
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        for context in &mut self.contexts {
            context.update(bytes);
        }
    }

    /// The digest of the content in hexadecimal, where it does not match the ETag; `None` where it does, or the ETag is no digest.
    pub(super) fn mismatch(self) -> Option<String> {
        let hex = |context: Context| context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut found: Vec<String> = self.contexts.into_iter().map(hex).collect();
        if found.is_empty() || found.contains(&self.etag) { None } else { Some(found.swap_remove(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of `hello` and a line break, by `sha256sum`, `git hash-object` and `sha1sum`.
    const SHA256_HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    const BLOB: &str = "ce013625030ba8dba906f756967f9e9ca394464a";
    const SHA1: &str = "f572d396fae9206628714fb2ce00f72e94f2258f";

    fn mismatch(etag: &str, content: &[u8]) -> Option<String> {
        let mut digest = Digest::named(etag, content.len() as u64);
        content.chunks(4).for_each(|bytes| digest.update(bytes));
        digest.mismatch()
    }

    #[test]
    fn a_tag_is_a_digest_of_its_content_or_none() {
        for etag in [SHA256_HELLO, BLOB, SHA1, &BLOB.to_ascii_uppercase(), "", "a-mirror-s-own"] {
            assert_eq!(mismatch(etag, b"hello\n"), None, "{etag}");
        }
        assert_eq!(mismatch(&"0".repeat(64), b"hello\n").as_deref(), Some(SHA256_HELLO));
        assert_eq!(mismatch(&"0".repeat(40), b"hello\n").as_deref(), Some(BLOB));
        for etag in [SHA256_HELLO, BLOB, SHA1] {
            assert!(mismatch(etag, b"hellO\n").is_some_and(|found| found.len() == etag.len()), "{etag}");
        }
    }
}
