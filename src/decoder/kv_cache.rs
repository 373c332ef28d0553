//! Keys and values of one sequence, in pages that are allocated as the sequence grows and never moved.

use super::device::AllocatePage;
use crate::cache_budget::CacheShare;
use crate::error::Result;
use crate::memory;
use model_diagnostics::plan::KV_PAGE;
use std::any::Any;
use std::fmt;

/// The cache of one sequence, whatever its device.
#[allow(clippy::len_without_is_empty)] // nobody asks
pub trait Cache: Any + Send + fmt::Debug {
    /// Positions held.
    fn len(&self) -> usize;

    /// Bytes allocated.
    fn bytes(&self) -> u64;

    /// Allocates the pages for the positions up to `len`, or none of them.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more; `OutOfMemory`, or the GPU's error.
    fn reserve(&mut self, len: usize) -> Result<()>;

    /// Forgets all positions and keeps the pages for others.
    fn clear(&mut self);

    /// Forgets the positions from `len` on and frees the pages behind them.
    fn truncate(&mut self, len: usize);

    /// Counts `tokens` positions that every layer has stored.
    fn advance(&mut self, tokens: usize);
}

/// The pages of one sequence, each of [`KV_PAGE`] positions.
pub struct KvCache<P> {
    allocate: AllocatePage<P>,
    page_bytes: u64,
    pages: Vec<P>,
    /// What the pages take of the model's budget.
    share: CacheShare,
    len: usize,
}

impl<P> KvCache<P> {
    /// An empty cache; the first page comes with the first token.
    pub fn new(allocate: AllocatePage<P>, page_bytes: u64, share: CacheShare) -> KvCache<P> {
        KvCache { allocate, page_bytes, pages: Vec::new(), share, len: 0 }
    }

    /// The pages.
    pub fn pages(&mut self) -> &mut [P] {
        &mut self.pages
    }

    fn bytes_of(&self, pages: usize) -> u64 {
        self.page_bytes.saturating_mul(pages as u64)
    }

    /// Allocates pages until there are `pages`.
    fn allocate(&mut self, pages: usize) -> Result<()> {
        let missing = pages - self.pages.len();
        memory::grow(&mut self.pages, missing, "the list of a KV cache's pages")?;
        while self.pages.len() < pages {
            self.pages.push((self.allocate)()?);
        }
        Ok(())
    }

    /// Frees all but the first `pages`.
    fn keep(&mut self, pages: usize) {
        self.pages.truncate(pages);
        self.share.shrink_to(self.bytes_of(pages));
    }
}

impl<P: Send + 'static> Cache for KvCache<P> {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        self.bytes_of(self.pages.len())
    }

    fn reserve(&mut self, len: usize) -> Result<()> {
        let (held, pages) = (self.pages.len(), len.div_ceil(KV_PAGE));
        if pages <= held {
            return Ok(());
        }
        self.share.grow_to(self.bytes_of(pages))?;
        let reserved = self.allocate(pages);
        if reserved.is_err() {
            self.keep(held);
        }
        reserved
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.keep(len.div_ceil(KV_PAGE));
    }

    fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }
}

impl<P> fmt::Debug for KvCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache").field("len", &self.len).field("pages", &self.pages.len()).finish_non_exhaustive()
    }
}
