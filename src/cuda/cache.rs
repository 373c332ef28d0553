//! Keys and values of one sequence on the card, in pages that are allocated as the sequence grows and never moved.

use super::gpu::{Buffer, Gpu};
use crate::cache_budget::CacheShare;
use crate::error::Result;
use model_diagnostics::plan::KV_PAGE;
use std::sync::Arc;

/// The keys and values of one sequence: a page holds [`KV_PAGE`] positions of all layers.
#[derive(Debug)]
pub struct Cache {
    gpu: Arc<dyn Gpu>,
    page_bytes: usize,
    /// What the pages take of the model's budget.
    share: CacheShare,
    pages: Vec<Buffer>,
    len: usize,
}

impl Cache {
    pub(super) fn new(gpu: Arc<dyn Gpu>, page_bytes: usize, share: CacheShare) -> Cache {
        Cache { gpu, page_bytes, share, pages: Vec::new(), len: 0 }
    }

    /// Positions held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(Buffer::bytes).sum()
    }

    /// Forgets the positions from `len` on and frees the pages that hold none.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.keep(self.len.div_ceil(KV_PAGE));
    }

    /// Forgets all positions and keeps the pages for others.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Allocates the pages for the positions up to `len`, or none of them.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more; the card's error when its memory runs out.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        let (held, pages) = (self.pages.len(), len.div_ceil(KV_PAGE));
        if pages <= held {
            return Ok(());
        }
        self.share.grow_to((pages * self.page_bytes) as u64)?;
        while self.pages.len() < pages {
            match Buffer::new(&self.gpu, "a page of the KV cache", self.page_bytes) {
                Ok(page) => self.pages.push(page),
                Err(error) => {
                    self.keep(held);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Frees all but the first `pages`.
    fn keep(&mut self, pages: usize) {
        self.pages.truncate(pages);
        self.share.shrink_to((pages * self.page_bytes) as u64);
    }

    /// Counts `tokens` positions that every layer has stored.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    /// The addresses of the pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(Buffer::address)
    }
}
