//! Content -> the name that the Hub gives it: SHA-256 of a large file (LFS), git's blob id of a small one.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use std::fmt::Write;

/// Computes what the ETag of a content says.
pub(super) struct Digest(Option<Context>);

impl Digest {
    /// The one that `etag` is of a content of `bytes` bytes. Other servers may have tags that are no digest.
    pub(super) fn named(etag: &str, bytes: u64) -> Digest {
        let hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        Digest(match etag.len() {
            64 if hex => Some(Context::new(&SHA256)),
            40 if hex => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {bytes}\0").as_bytes());
                Some(context)
            }
            _ => None,
        })
    }

    /// The next bytes of the content.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(context) = &mut self.0 {
            context.update(bytes);
        }
    }

    /// In hexadecimal; `None` where the tag is no digest.
    pub(super) fn finish(self) -> Option<String> {
        self.0.map(|context| {
            context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}"); // a String takes everything
                text
            })
        })
    }
}
