//! The pages of all sequences of a model: allocated within its budget, shared by those that begin alike, and kept for
//! the next one as long as there is room.

use super::page::{AllocatePage, Page, PageKind};
use super::prefix_store::PrefixStore;
use super::prefixes::Prefixes;
use super::state::{Checkpoint, State};
use crate::cache_budget::{CacheBudget, CacheShare, Reservation};
use crate::error::{Error, Result};
use crate::memory;
use model_factory_spec::plan::{KvSize, StateSize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The pool from which all caches of a model take their pages.
pub struct PagePool {
    allocate: AllocatePage,
    pub(super) sizes: CacheSizes,
    budget: Arc<CacheBudget>,
    /// Whether a page may be copied: it is main memory, and the copy has the bits that would be computed.
    pub(super) copies: bool,
    /// Whether sequences that begin alike share pages.
    pub(super) shares: bool,
    prefixes: Mutex<Prefixes>,
    /// Where pages are kept besides, once there is one.
    pub(super) store: OnceLock<Arc<dyn PrefixStore>>,
}

#[derive(Clone, Debug)]
pub(super) struct CacheSizes {
    /// The sizes of a sequence's pages.
    pub kv: KvSize,
    /// The size of each layer's state of a sequence, next to its pages; empty where no layer has a state.
    pub states: Arc<[StateSize]>,
    /// Bytes that all sequences may take together.
    pub budget: u64,
    /// Pages and states that no sequence holds are kept while all together take at most these bytes.
    pub keep: u64,
}

impl CacheSizes {
    pub(super) fn state_bytes(&self) -> u64 {
        self.states.iter().map(|size| (size.elements() * size_of::<f32>()) as u64).sum()
    }

    pub(super) fn page_bytes(&self, kind: PageKind) -> u64 {
        match kind {
            PageKind::Full => self.kv.page,
            PageKind::Window => self.kv.window_page,
        }
    }

    /// Bytes of a state that is kept of a prefix.
    fn checkpoint_bytes(&self) -> u64 {
        self.states.iter().map(|size| (size.border_elements() * size_of::<f32>()) as u64).sum()
    }
}

impl PagePool {
    /// A pool of pages of these sizes, in main memory if pages are copied. Sequences also share them if it `shares`.
    pub(super) fn new(allocate: AllocatePage, sizes: CacheSizes, copies: bool, shares: bool) -> Arc<PagePool> {
        let (budget, shares) = (CacheBudget::new(sizes.budget), shares && copies);
        Arc::new(PagePool {
            allocate,
            sizes,
            budget,
            copies,
            shares,
            prefixes: Mutex::default(),
            store: OnceLock::new(),
        })
    }

    /// The state of an empty sequence, where the model has states; reserved bytes are used first.
    pub(super) fn state(&self, reservation: Option<&Reservation>) -> Result<Option<State>> {
        let bytes = self.sizes.state_bytes();
        if bytes == 0 {
            return Ok(None);
        }
        let share = self.share(bytes, reservation.and_then(|reservation| reservation.take(bytes)))?;
        self.trim();
        Ok(Some(State::new(&self.sizes.states, share)?))
    }

    /// A checkpoint for the state after `position`, within the bytes that are kept.
    pub(super) fn checkpoint(&self, position: usize) -> Option<Checkpoint> {
        Checkpoint::new(&self.sizes.states, position, self.kept(self.sizes.checkpoint_bytes())?).ok()
    }

    /// A page within the bytes that are kept: of layers with a window, in place of one that is left to others, or to be read from a
    /// store.
    pub(super) fn kept_page(&self, kind: PageKind) -> Option<Page> {
        let share = self.kept(self.sizes.page_bytes(kind))?;
        Some(Page::new((self.allocate)(kind).ok()?, share))
    }

    /// A share of `bytes` within the bytes that are kept, in place of what was not used for longer. Nothing is freed if
    /// it cannot be had.
    pub(super) fn kept(&self, bytes: u64) -> Option<CacheShare> {
        let mut share = self.budget.share();
        let held = self.taken().saturating_sub(self.bytes().1);
        let room = self.budget.bytes().saturating_sub(self.budget.reserved()).min(self.sizes.keep);
        if held.saturating_add(bytes) > room {
            return None;
        }
        while self.taken().saturating_add(bytes) > self.sizes.keep || share.grow_to(bytes).is_err() {
            if !self.prefixes().evict() {
                return None;
            }
        }
        Some(share)
    }

    /// A share of `bytes`, which include those of `share`. Pages that no sequence holds are freed to make room.
    pub(super) fn share(&self, bytes: u64, share: Option<CacheShare>) -> Result<CacheShare> {
        let mut share = share.unwrap_or_else(|| self.budget.share());
        while let Err(error) = share.grow_to(bytes) {
            // A request that cannot be met frees no page.
            let asked = bytes.saturating_sub(share.bytes());
            let missing = self.budget.taken().saturating_add(asked).saturating_sub(self.budget.bytes());
            if missing > self.bytes().1 || !self.prefixes().evict() {
                return Err(error);
            }
        }
        Ok(share)
    }

    /// A share of `bytes` of the memory of caches, for what is not a cache and lies beside them. Pages that no sequence holds are
    /// freed to make room.
    ///
    /// # Errors
    /// `CacheBudget` when that is more than the sessions of the model leave.
    pub fn hold(&self, bytes: u64) -> Result<CacheShare> {
        self.share(bytes, None)
    }

    /// Appends `count` pages of a kind to `pages`, or none; reserved bytes are used first.
    pub(super) fn allocate(
        &self,
        kind: PageKind,
        count: usize,
        pages: &mut Vec<Arc<Page>>,
        reservation: Option<&Reservation>,
    ) -> Result<()> {
        memory::grow(pages, count, "the list of a KV cache's pages")?;
        let page_bytes = self.sizes.page_bytes(kind);
        let bytes = page_bytes.saturating_mul(count as u64);
        let mut share = self.share(bytes, reservation.and_then(|reservation| reservation.take(bytes)))?;
        self.trim();
        let held = pages.len();
        while pages.len() < held + count {
            match (self.allocate)(kind) {
                Ok(page) => pages.push(Arc::new(Page::new(page, share.split(page_bytes)))),
                Err(Error::OutOfMemory { .. }) if self.prefixes().evict() => {}
                Err(error) => {
                    pages.truncate(held);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The pages by their ids. Nothing panics while it is held.
    pub(super) fn prefixes(&self) -> MutexGuard<'_, Prefixes> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees pages that no sequence holds while all together take more than is kept.
    pub(super) fn trim(&self) {
        let mut prefixes = self.prefixes();
        while self.taken() > self.sizes.keep && prefixes.evict() {}
    }

    /// Bytes of all pages and states, each counted once, and of those that no sequence holds.
    pub fn bytes(&self) -> (u64, u64) {
        let KvSize { page, window_page, .. } = self.sizes.kv;
        let sizes = [page, window_page, self.sizes.checkpoint_bytes()];
        (self.taken(), self.prefixes().unused().into_iter().zip(sizes).map(|(count, bytes)| bytes * count as u64).sum())
    }

    /// Bytes that are taken and not only reserved.
    fn taken(&self) -> u64 {
        self.budget.taken().saturating_sub(self.budget.reserved())
    }

    /// The budget that the pages are counted in.
    pub fn budget(&self) -> &CacheBudget {
        &self.budget
    }
}
