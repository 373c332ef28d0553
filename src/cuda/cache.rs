//! Keys and values of one sequence on the card, in pages that are allocated as the sequence grows and never moved.

use super::error::CudaError;
use super::gpu::{Buffer, Gpu};
use model_diagnostics::plan::KV_PAGE;
use std::sync::Arc;

/// The keys and values of one sequence: a page holds [`KV_PAGE`] positions of all layers.
#[derive(Debug)]
pub struct Cache {
    gpu: Arc<dyn Gpu>,
    page_bytes: usize,
    pages: Vec<Buffer>,
    len: usize,
}

impl Cache {
    pub(super) fn new(gpu: Arc<dyn Gpu>, page_bytes: usize) -> Cache {
        Cache { gpu, page_bytes, pages: Vec::new(), len: 0 }
    }

    /// Positions held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(Buffer::bytes).sum()
    }

    /// Forgets the positions from `len` on and frees the pages that hold no others.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len <= self.len {
            self.len = len;
            self.pages.truncate(len.div_ceil(KV_PAGE));
        }
    }

    /// Allocates the pages for `tokens` more positions.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<(), CudaError> {
        while self.pages.len() < (self.len + tokens).div_ceil(KV_PAGE) {
            self.pages.push(Buffer::new(&self.gpu, "a page of the KV cache", self.page_bytes)?);
        }
        Ok(())
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
