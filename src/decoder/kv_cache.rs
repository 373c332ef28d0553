//! Keys and values of one sequence, in pages that are allocated as the sequence grows and never moved.

use super::page::Page;
use super::page_pool::PagePool;
use super::prefixes::{LEAST_COPIED, Place};
use super::rope::Rotation;
use crate::cache_budget::Reservation;
use crate::error::Result;
use model_diagnostics::plan::KV_PAGE;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

/// The cache of one sequence, whatever its device.
#[allow(clippy::len_without_is_empty)] // nobody asks
pub trait Cache: Any + Send + fmt::Debug {
    /// Positions held.
    fn len(&self) -> usize;

    /// Bytes of its pages, those included that other sequences hold too.
    fn bytes(&self) -> u64;

    /// Allocates the pages for the positions up to `len`, or none of them. What other sequences hold too and this one goes on
    /// to write is copied; where pages are not copied, its positions are forgotten.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more; `OutOfMemory`, or the GPU's error.
    fn reserve(&mut self, len: usize) -> Result<()>;

    /// Reserves what [`reserve`](Self::reserve) up to the reservation's positions takes, to be taken of it from now on. Nothing
    /// is reserved after an error.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more.
    fn admit(&mut self, reservation: &Arc<Reservation>) -> Result<()>;

    /// Forgets all positions and keeps the pages for others.
    fn clear(&mut self);

    /// Forgets the positions from `len` on and frees the pages behind them.
    fn truncate(&mut self, len: usize);

    /// Counts `tokens` positions that every layer has stored.
    fn advance(&mut self, tokens: usize);

    /// Whether other sequences take its pages, and it takes theirs.
    fn shares(&self) -> bool;

    /// Takes the pages that hold what `ids` begin with, which are rotated so, from sequences that computed them; whole ones
    /// alone.
    fn adopt(&mut self, ids: &[u32], rotation: Rotation);

    /// As [`adopt`](Self::adopt), a part of one page, which is copied.
    fn adopt_part(&mut self, ids: &[u32], rotation: Rotation);

    /// Offers the pages that are complete, which hold what `ids` begin with, to others.
    fn publish(&mut self, ids: &[u32], rotation: Rotation);

    /// Offers all pages, the last one too, and frees those that are not kept.
    fn retire(self: Box<Self>, ids: &[u32], rotation: Rotation);

    /// A cache of the same positions. Where pages are not copied, it is without those of the last page.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    fn fork(&self) -> Result<Box<dyn Cache>>;
}

/// The pages of one sequence, each of [`KV_PAGE`] positions.
pub struct KvCache<P> {
    pool: Arc<PagePool<P>>,
    pages: Vec<Arc<Page<P>>>,
    /// Where the first pages stand among those that are offered.
    places: Vec<Place>,
    len: usize,
    /// Whether some of it was read from a file. No other sequence takes that: what a file says is not known to be what this
    /// model computes.
    from_file: bool,
    /// Of the generation that goes on with it.
    reservation: Weak<Reservation>,
}

impl<P> KvCache<P> {
    /// An empty cache; the first page comes with the first token.
    pub fn new(pool: Arc<PagePool<P>>) -> KvCache<P> {
        KvCache { pool, pages: Vec::new(), places: Vec::new(), len: 0, from_file: false, reservation: Weak::new() }
    }

    /// Counts `tokens` positions that were read from a file.
    pub fn restored(&mut self, tokens: usize) {
        (self.len, self.from_file) = (self.len + tokens, self.from_file || tokens > 0);
    }

    /// The pages.
    pub fn pages(&mut self) -> &mut [Arc<Page<P>>] {
        &mut self.pages
    }

    /// The pages, to read.
    pub fn held(&self) -> &[Arc<Page<P>>] {
        &self.pages
    }

    /// Behind which page the next one stands that is not offered.
    fn place(&self, rotation: Rotation) -> Place {
        self.places.last().copied().unwrap_or(Place::Start(rotation))
    }

    /// Whether the next position begins a page, and all before it are offered.
    fn may_adopt(&self) -> bool {
        self.pool.copy().is_some() && self.places.len() * KV_PAGE == self.len
    }

    /// Whether the page that is written next is another sequence's too. If only this one has it, nobody is offered it any
    /// more.
    fn shares_last(&mut self) -> bool {
        let (index, slot) = (self.len / KV_PAGE, self.len % KV_PAGE);
        if slot == 0 || Arc::get_mut(&mut self.pages[index]).is_some() {
            return false;
        }
        self.pool.prefixes().forget(&self.pages[index]);
        Arc::get_mut(&mut self.pages[index]).is_none()
    }

    /// Makes the page that is written next this sequence's alone.
    fn own_last(&mut self) -> Result<()> {
        if !self.shares_last() {
            return Ok(());
        }
        let (index, mut own) = (self.len / KV_PAGE, Vec::new());
        self.pool.allocate(1, &mut own, self.reservation.upgrade().as_deref())?;
        for mut page in own {
            match (self.pool.copy(), Arc::get_mut(&mut page)) {
                (Some(copy), Some(to)) => copy(&self.pages[index], to),
                _ => self.len = index * KV_PAGE,
            }
            self.pages[index] = page;
        }
        Ok(())
    }
}

impl<P: Send + Sync + 'static> Cache for KvCache<P> {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        self.pool.page_bytes() * self.pages.len() as u64
    }

    fn reserve(&mut self, len: usize) -> Result<()> {
        let missing = len.div_ceil(KV_PAGE).saturating_sub(self.pages.len());
        if len > self.len {
            self.own_last()?;
        }
        match missing {
            0 => Ok(()),
            _ => self.pool.allocate(missing, &mut self.pages, self.reservation.upgrade().as_deref()),
        }
    }

    fn admit(&mut self, reservation: &Arc<Reservation>) -> Result<()> {
        let missing = reservation.positions.div_ceil(KV_PAGE).saturating_sub(self.pages.len());
        let copied = usize::from(self.shares_last());
        reservation.hold(self.pool.share(missing + copied, None)?);
        self.reservation = Arc::downgrade(reservation);
        Ok(())
    }

    fn clear(&mut self) {
        (self.len, self.from_file) = (0, false);
        self.places.clear();
        // Others may read them.
        self.pages.retain_mut(|page| Arc::get_mut(page).is_some());
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.from_file &= self.len > 0;
        self.places.truncate(self.len / KV_PAGE);
        self.pages.truncate(len.div_ceil(KV_PAGE));
    }

    fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    fn shares(&self) -> bool {
        self.pool.copy().is_some() && !self.from_file
    }

    fn adopt(&mut self, ids: &[u32], rotation: Rotation) {
        while self.may_adopt() {
            let Some(next) = ids.get(self.len..self.len + KV_PAGE) else { break };
            let Some((number, page)) = self.pool.prefixes().find(self.place(rotation), next) else { break };
            match self.pages.get_mut(self.len / KV_PAGE) {
                Some(own) => *own = page,
                None => self.pages.push(page),
            }
            self.places.push(Place::Behind(number));
            self.len += KV_PAGE;
        }
    }

    fn adopt_part(&mut self, ids: &[u32], rotation: Rotation) {
        let Some(copy) = self.pool.copy().filter(|_| self.may_adopt()) else { return };
        let next = &ids[self.len.min(ids.len())..];
        let Some((page, count)) = self.pool.prefixes().closest(self.place(rotation), next) else { return };
        let Some(own) = self.pages.get_mut(self.len / KV_PAGE).and_then(Arc::get_mut) else { return };
        copy(&page, own);
        self.len += count;
    }

    fn publish(&mut self, ids: &[u32], rotation: Rotation) {
        if !self.shares() {
            return;
        }
        for index in self.places.len()..self.len.min(ids.len()) / KV_PAGE {
            let place = self.place(rotation);
            let ids = &ids[index * KV_PAGE..][..KV_PAGE];
            let mut prefixes = self.pool.prefixes();
            let number = match prefixes.find(place, ids) {
                // Computed twice, held once.
                Some((number, page)) => {
                    self.pages[index] = page;
                    number
                }
                None => prefixes.insert(place, ids, Arc::clone(&self.pages[index])),
            };
            drop(prefixes);
            self.places.push(Place::Behind(number));
        }
    }

    fn retire(mut self: Box<Self>, ids: &[u32], rotation: Rotation) {
        let len = self.len.min(ids.len());
        self.truncate(len);
        self.publish(ids, rotation);
        if self.may_publish_last() {
            let rest = &ids[self.places.len() * KV_PAGE..len];
            let mut prefixes = self.pool.prefixes();
            let place = self.place(rotation);
            let is_new = prefixes.closest(place, rest).is_none_or(|(_, common)| common < rest.len());
            // One that is offered already stays what it is.
            if let Some(page) = self.pages.get_mut(self.places.len())
                && is_new
                && Arc::get_mut(page).is_some()
            {
                prefixes.insert(place, rest, Arc::clone(page));
            }
        }
        let pool = Arc::clone(&self.pool);
        drop(self);
        pool.trim();
    }

    fn fork(&self) -> Result<Box<dyn Cache>> {
        let whole = self.len / KV_PAGE;
        let mut fork = KvCache::new(Arc::clone(&self.pool));
        fork.pages = self.pages[..whole].to_vec();
        (fork.places, fork.len, fork.from_file) = (self.places.clone(), whole * KV_PAGE, self.from_file);
        if let Some(copy) = self.pool.copy().filter(|_| self.len > fork.len) {
            fork.reserve(self.len)?;
            if let Some(own) = fork.pages.last_mut().and_then(Arc::get_mut) {
                copy(&self.pages[whole], own);
                fork.len = self.len;
            }
        }
        Ok(Box::new(fork))
    }
}

impl<P> KvCache<P> {
    /// Whether there is a last page that is not complete, may be offered, and holds enough for others to copy.
    fn may_publish_last(&self) -> bool {
        self.pool.copy().is_some()
            && !self.from_file
            && self.len / KV_PAGE == self.places.len()
            && self.len % KV_PAGE >= LEAST_COPIED
    }
}

impl<P> fmt::Debug for KvCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache").field("len", &self.len).field("pages", &self.pages.len()).finish_non_exhaustive()
    }
}
