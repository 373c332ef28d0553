//! The pages of all sequences of a model: allocated within its budget, shared by those that begin alike, and kept for the
//! next one as long as there is room.

use super::page::{AllocatePage, CopyPage, Page};
use super::prefixes::Prefixes;
use crate::cache_budget::{CacheBudget, CacheShare, Reservation};
use crate::error::{Error, Result};
use crate::memory;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all caches of a model take their pages from.
pub struct PagePool<P> {
    allocate: AllocatePage<P>,
    page_bytes: u64,
    budget: Arc<CacheBudget>,
    /// Bytes of all pages up to which those are kept that no sequence holds.
    keep: u64,
    /// How a page is copied, where sequences share pages.
    copy: Option<CopyPage<P>>,
    prefixes: Mutex<Prefixes<P>>,
}

impl<P> PagePool<P> {
    /// Pages of `page_bytes` within `budget` bytes. Up to `keep` bytes they stay when nobody holds them. Without `copy` none is
    /// shared.
    pub fn new(
        allocate: AllocatePage<P>,
        page_bytes: u64,
        budget: u64,
        keep: u64,
        copy: Option<CopyPage<P>>,
    ) -> Arc<PagePool<P>> {
        let budget = CacheBudget::new(budget);
        Arc::new(PagePool { allocate, page_bytes, budget, keep, copy, prefixes: Mutex::default() })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// A share that `count` pages take, of which `share` has some. Pages that no sequence holds make room.
    ///
    /// # Errors
    /// `CacheBudget` when the sequences of the model have no more.
    pub fn share(&self, count: usize, share: Option<CacheShare>) -> Result<CacheShare> {
        let mut share = share.unwrap_or_else(|| self.budget.share());
        let bytes = self.page_bytes.saturating_mul(count as u64);
        while let Err(error) = share.grow_to(bytes) {
            // What cannot be had costs nobody a page.
            let asked = bytes.saturating_sub(share.bytes());
            let missing = self.budget.taken().saturating_add(asked).saturating_sub(self.budget.bytes());
            if missing > self.bytes().1 || !self.prefixes().evict() {
                return Err(error);
            }
        }
        Ok(share)
    }

    /// Appends `count` pages to `pages`, or none: first of what is reserved.
    ///
    /// # Errors
    /// `CacheBudget` when the sequences of the model have no more; `OutOfMemory`, or the GPU's error.
    pub fn allocate(
        &self,
        count: usize,
        pages: &mut Vec<Arc<Page<P>>>,
        reservation: Option<&Reservation>,
    ) -> Result<()> {
        memory::grow(pages, count, "the list of a KV cache's pages")?;
        let reserved = reservation.and_then(|reservation| reservation.take(self.page_bytes * count as u64));
        let mut share = self.share(count, reserved)?;
        self.trim();
        let held = pages.len();
        while pages.len() < held + count {
            match (self.allocate)() {
                Ok(page) => pages.push(Arc::new(Page::new(page, share.split(self.page_bytes)))),
                Err(Error::OutOfMemory { .. }) if self.prefixes().evict() => {}
                Err(error) => {
                    pages.truncate(held);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// How pages are copied, where sequences share them.
    pub fn copy(&self) -> Option<CopyPage<P>> {
        self.copy
    }

    /// The pages by their ids. Nothing panics while it is held.
    pub fn prefixes(&self) -> MutexGuard<'_, Prefixes<P>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees pages that no sequence holds, as long as all take more than is kept.
    pub fn trim(&self) {
        let mut prefixes = self.prefixes();
        while self.budget.taken().saturating_sub(self.budget.reserved()) > self.keep && prefixes.evict() {}
    }

    /// Bytes that all pages take, each once, and those of them that no sequence holds.
    pub fn bytes(&self) -> (u64, u64) {
        let taken = self.budget.taken().saturating_sub(self.budget.reserved());
        (taken, self.page_bytes * self.prefixes().counts().1 as u64)
    }

    /// What the pages are counted in.
    pub fn budget(&self) -> &CacheBudget {
        &self.budget
    }
}
