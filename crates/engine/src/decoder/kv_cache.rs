//! Keys and values of one sequence, in pages that are allocated as the sequence grows and never moved.

mod fetch;
mod windows;

use super::page::{Page, PageKind, PagePair};
use super::page_pool::PagePool;
use super::prefixes::{LEAST_COPIED, Node, Place, Prefixes};
use super::rope::Rotation;
use super::state::{Checkpoint, State};
use crate::adapter::Adapters;
use crate::cache_budget::Reservation;
use crate::error::Result;
use crate::input::Rows;
use crate::memory;
use model_factory_spec::plan::{KV_PAGE, KvSize, STATE_CHUNK};
use std::fmt;
use std::sync::{Arc, Weak};

/// The pages of one sequence, each of [`KV_PAGE`] positions.
pub struct KvCache {
    pool: Arc<PagePool>,
    pages: Vec<PagePair>,
    /// Pages for layers with a window, for positions to come.
    spare: Vec<Arc<Page>>,
    /// Places of the first pages among those that are offered.
    places: Vec<Place>,
    /// The salt of the sequences that it shares pages with.
    salt: Option<Arc<str>>,
    /// The adapters that its positions are computed with.
    adapters: Adapters,
    len: usize,
    /// The state of layers that are not attention, from the first [`reserve`](Self::reserve) on.
    state: Option<State>,
    /// Checkpoints of the state that the step keeps at the ends of pages.
    checkpoints: Vec<Checkpoint>,
    /// Whether some of it was read from a file. Other sequences do not take that: it is not known to be what this model
    /// computes.
    from_file: bool,
    /// The reservation of the generation that continues it.
    reservation: Weak<Reservation>,
}

/// The parts of a cache that a step writes.
pub struct Parts<'c> {
    /// The pages.
    pub pages: &'c mut [PagePair],
    /// The state, where the model has one.
    pub state: Option<&'c mut State>,
    /// The checkpoints that it keeps of the state.
    pub checkpoints: &'c mut [Checkpoint],
}

impl KvCache {
    /// An empty cache; the first page comes with the first token.
    pub fn new(pool: Arc<PagePool>) -> KvCache {
        KvCache {
            pool,
            pages: Vec::new(),
            spare: Vec::new(),
            places: Vec::new(),
            salt: None,
            adapters: Adapters::default(),
            len: 0,
            state: None,
            checkpoints: Vec::new(),
            from_file: false,
            reservation: Weak::new(),
        }
    }

    pub(super) fn is_of(&self, pool: &Arc<PagePool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// The parts to read the first `len` positions from a file into, for which there is room.
    ///
    /// # Errors
    /// `Internal` where there is none: a defect of this crate.
    pub fn restoring(&mut self, len: usize) -> Result<Parts<'_>> {
        self.give_windows(self.first_seen(len), len)?;
        Ok(self.parts())
    }

    /// Counts `tokens` positions that were read from a file.
    pub fn restored(&mut self, tokens: usize) {
        (self.len, self.from_file) = (self.len + tokens, self.from_file || tokens > 0);
    }

    /// The parts that a step writes.
    pub fn parts(&mut self) -> Parts<'_> {
        Parts { pages: &mut self.pages, state: self.state.as_mut(), checkpoints: &mut self.checkpoints }
    }

    /// The pages and the state, to be read.
    pub fn held(&self) -> (&[PagePair], Option<&State>) {
        (&self.pages, self.state.as_ref())
    }

    /// The place of the next page that is not offered.
    fn place(&self, rotation: Rotation) -> Place {
        let start = || Place::Start(rotation, self.salt.clone(), self.adapters.clone());
        self.places.last().cloned().unwrap_or_else(start)
    }

    /// Whether the next position begins a page, and all before it are offered.
    fn may_adopt(&self) -> bool {
        self.pool.shares && self.places.len() * KV_PAGE == self.len
    }

    /// Forgets all positions and keeps the pages for others.
    pub fn clear(&mut self) {
        (self.len, self.from_file) = (0, false);
        self.places.clear();
        if let Some(state) = &mut self.state {
            state.reset();
        }
        let windows = self.pages.iter_mut().filter_map(|pair| pair.window.take());
        self.spare.extend(windows.filter(|window| Arc::strong_count(window) == 1));
        // Others may read them.
        self.pages.retain_mut(|pair| Arc::get_mut(&mut pair.full).is_some());
    }

    /// Goes back to `len` positions, or those of the last state that is kept, or none, as states and windows are known.
    fn go_back(&mut self, len: usize) {
        if !self.sees_back_from(len) {
            return self.clear();
        }
        let is_known = |state: &State| state.reaches_back_to(len);
        let Some(state) = self.state.as_mut().filter(|state| !is_known(state)) else {
            self.len = self.len.min(len);
            return;
        };
        let mut prefixes = self.pool.prefixes();
        let kept = self.places[..self.places.len().min(len / KV_PAGE)].iter().enumerate().rev();
        let kept = kept.filter_map(|(index, place)| match place {
            Place::After(number) => Some((index + 1, prefixes.state(*number)?)),
            Place::Start(..) => None,
        });
        let kept = { kept }.next();
        drop(prefixes);
        match kept {
            Some((pages, checkpoint)) => {
                state.restore(&checkpoint);
                self.len = pages * KV_PAGE;
                self.pages.truncate(pages);
                self.places.truncate(pages);
            }
            None => self.clear(),
        }
    }

    /// Whether the next page to write belongs to another sequence too. If only this one has it, it is not offered any more.
    fn shares_last(&mut self) -> bool {
        let (index, slot) = (self.len / KV_PAGE, self.len % KV_PAGE);
        if slot == 0 {
            return false;
        }
        let PagePair { full, window } = &mut self.pages[index];
        if let Some(window) = window.as_ref().filter(|window| Arc::strong_count(window) > 1) {
            self.pool.prefixes().forget_window(window);
        }
        if Arc::get_mut(full).is_some() {
            return false;
        }
        self.pool.prefixes().forget(full);
        Arc::get_mut(full).is_none()
    }

    /// Makes sure that only this sequence holds the page that is written next.
    fn own_last(&mut self) -> Result<()> {
        if !self.shares_last() {
            return Ok(());
        }
        let (index, mut own) = (self.len / KV_PAGE, Vec::new());
        self.allocate(PageKind::Full, 1, &mut own)?;
        for mut page in own {
            match Arc::get_mut(&mut page) {
                Some(to) if self.pool.copies => to.memory.copy_from(&self.pages[index].full.memory),
                _ => self.go_back(index * KV_PAGE),
            }
            if let Some(pair) = self.pages.get_mut(index) {
                pair.full = page;
            }
        }
        Ok(())
    }

    /// Makes `count` pages of layers with a window spare, or allocates none.
    fn spare_windows(&mut self, count: usize) -> Result<()> {
        let mut spare = std::mem::take(&mut self.spare);
        let allocated = self.allocate(PageKind::Window, count.saturating_sub(spare.len()), &mut spare);
        self.spare = spare;
        allocated
    }

    /// Appends `count` pages to `pages`, or none; reserved bytes are used first.
    fn allocate(&self, kind: PageKind, count: usize, pages: &mut Vec<Arc<Page>>) -> Result<()> {
        match count {
            0 => Ok(()),
            _ => self.pool.allocate(kind, count, pages, self.reservation.upgrade().as_deref()),
        }
    }

    /// The largest number of `found` pages that can follow its own so that it has all that the next position sees, and
    /// the state after them.
    fn adoptable(&self, found: &[u64], prefixes: &Prefixes) -> usize {
        let (whole, has_states) = (self.len / KV_PAGE, !self.pool.sizes.states.is_empty());
        let has_window = |index: usize| match index.checked_sub(whole) {
            Some(index) => prefixes.get(found[index]).is_some_and(|node| node.window.is_some()),
            None => self.pages[index].window.is_some(),
        };
        let is_known = |count: usize| {
            let end = whole + count;
            let mut seen = self.first_seen(end * KV_PAGE) / KV_PAGE..end;
            (!self.has_windows() || seen.all(has_window))
                && (!has_states || prefixes.get(found[count - 1]).is_some_and(|node| node.state.is_some()))
        };
        (1..=found.len()).rev().find(|count| is_known(*count)).unwrap_or(0)
    }

    /// The pages that continue the sequence with `rows`, in their order.
    fn find(&self, rows: Rows<'_>, rotation: Rotation, prefixes: &mut Prefixes) -> Vec<u64> {
        let mut place = self.place(rotation);
        let whole = rows.len().saturating_sub(self.len) / KV_PAGE;
        let find = |index: usize| {
            let start = self.len + index * KV_PAGE;
            let number = prefixes.find(&place, rows.slice(start..start + KV_PAGE))?;
            place = Place::After(number);
            Some(number)
        };
        (0..whole).map_while(find).collect()
    }

    /// Positions held.
    #[allow(clippy::len_without_is_empty)] // nobody asks
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of its pages, including those that other sequences hold too.
    pub fn bytes(&self) -> u64 {
        let state = self.state.as_ref().map_or(0, |_| self.pool.sizes.state_bytes());
        let KvSize { page, window_page, .. } = self.pool.sizes.kv;
        page * self.pages.len() as u64 + window_page * self.windows() as u64 + state
    }

    /// Allocates the pages for the positions up to `len`, or none of them, and the state of the layers that have one.
    /// A page that other sequences hold too and this one will write is copied; if pages are not copied, its positions
    /// are forgotten.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more; `OutOfMemory`, or the GPU's error.
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if self.state.is_none() {
            self.state = self.pool.state(self.reservation.upgrade().as_deref())?;
        }
        if len > self.len {
            self.own_last()?;
        }
        let missing = len.div_ceil(KV_PAGE).saturating_sub(self.pages.len());
        let mut pages = Vec::new();
        self.allocate(PageKind::Full, missing, &mut pages)?;
        memory::grow(&mut self.pages, missing, "the list of a KV cache's pages")?;
        self.spare_windows(self.spare.len() + self.missing_windows(len))?;
        self.pages.extend(pages.into_iter().map(|full| PagePair { full, window: None }));
        Ok(())
    }

    /// Reserves what [`reserve`](Self::reserve) up to the reservation's positions takes; later pages are taken from it.
    /// Nothing is reserved after an error.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more.
    pub fn admit(&mut self, reservation: &Arc<Reservation>) -> Result<()> {
        let missing = reservation.positions.div_ceil(KV_PAGE).saturating_sub(self.pages.len());
        let copied = usize::from(self.shares_last());
        let KvSize { page, window_page, .. } = self.pool.sizes.kv;
        let state = if self.state.is_none() { self.pool.sizes.state_bytes() } else { 0 };
        let windows = window_page.saturating_mul(self.missing_windows(reservation.positions) as u64);
        let bytes = page.saturating_mul((missing + copied) as u64).saturating_add(windows).saturating_add(state);
        reservation.hold(self.pool.share(bytes, None)?);
        self.reservation = Arc::downgrade(reservation);
        Ok(())
    }

    /// How many positions after `len` can be stored and forgotten again without others.
    pub fn undoable(&self, len: usize) -> usize {
        if self.pool.sizes.states.is_empty() { usize::MAX } else { STATE_CHUNK - 1 - len % STATE_CHUNK }
    }

    /// Forgets the positions from `len` on and frees the pages after them. Where layers have states that are not known
    /// for that length, it forgets those after the last state that is kept too; where layers with a window have
    /// forgotten what is seen from there, all.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.go_back(len);
        }
        self.from_file &= self.len > 0;
        self.places.truncate(self.len / KV_PAGE);
        self.pages.truncate(len.div_ceil(KV_PAGE));
        let kept = self.pool.sizes.kv.window_pages(len);
        self.spare.truncate((kept + self.spare.len()).saturating_sub(self.windows()));
        if self.len == 0 {
            self.state = None; // what is empty takes nothing
        }
    }

    /// A step begins that stores `tokens` positions, for which there is room.
    pub(super) fn begin(&mut self, tokens: usize) -> Result<()> {
        let end = self.len + tokens;
        self.turn_windows(self.len, end)?;
        let Some(state) = &mut self.state else { return Ok(()) };
        state.begin(end);
        if self.pool.shares && !self.from_file {
            let ends = (self.len / KV_PAGE + 1..=end / KV_PAGE).map(|page| page * KV_PAGE);
            self.checkpoints = ends.filter_map(|end| self.pool.checkpoint(end)).collect();
        }
        Ok(())
    }

    /// The step has ended: every layer has stored its positions.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.len += tokens;
        if let Some(state) = &mut self.state {
            state.end(self.len);
        }
    }

    /// The step has failed. Where states of layers have advanced, positions after the last kept state are forgotten.
    pub(super) fn abandon(&mut self) {
        self.checkpoints.clear();
        self.go_back(self.len);
    }

    /// Whether other sequences take its pages, and it takes theirs.
    pub fn shares(&self) -> bool {
        self.pool.shares && !self.from_file
    }

    /// From now on shares only with sequences of this salt, and copies parts of their pages too. With `None` it shares
    /// whole pages, with sequences without a salt. If it had another salt it forgets all positions: their pages belong to
    /// that salt.
    pub fn set_salt(&mut self, salt: Option<&Arc<str>>) {
        if self.salt.as_ref() == salt {
            return;
        }
        if !self.places.is_empty() {
            self.clear();
        }
        self.salt = salt.cloned();
    }

    /// From now on computes with `adapters`. If its positions were computed with others it forgets them.
    pub fn set_adapters(&mut self, adapters: &Adapters) {
        if self.adapters != *adapters {
            self.clear();
            self.adapters = adapters.clone();
        }
    }

    /// The adapters that its positions are computed with.
    pub fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// The salt of the sequences that it shares pages with.
    pub fn salt(&self) -> Option<&Arc<str>> {
        self.salt.as_ref()
    }

    /// Takes the pages that hold what `rows` begin with, which are rotated so, from sequences that computed them; whole
    /// ones only.
    pub fn adopt(&mut self, rows: Rows<'_>, rotation: Rotation) {
        if !self.may_adopt() {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let mut prefixes = pool.prefixes();
        let mut found = self.find(rows, rotation, &mut prefixes);
        found.truncate(self.adoptable(&found, &prefixes));
        let Some(last) = found.last() else { return };
        let checkpoint = prefixes.state(*last);
        let pages: Vec<_> = found.iter().filter_map(|number| Some(Arc::clone(&prefixes.get(*number)?.page))).collect();
        drop(prefixes);
        let Some(windows) = self.adopted_windows(&found) else { return };
        if let Some(checkpoint) = checkpoint {
            if self.state.is_none() {
                self.state = pool.state(self.reservation.upgrade().as_deref()).ok().flatten();
            }
            let Some(state) = &mut self.state else { return };
            state.restore(&checkpoint);
        }
        for ((number, full), window) in found.into_iter().zip(pages).zip(windows) {
            match self.pages.get_mut(self.len / KV_PAGE) {
                Some(own) => {
                    own.full = full;
                    self.spare.extend(std::mem::replace(&mut own.window, window));
                }
                None => self.pages.push(PagePair { full, window }),
            }
            self.places.push(Place::After(number));
            self.len += KV_PAGE;
        }
    }

    /// Like [`adopt`](Self::adopt), but copies a part of one page, of a sequence with the same salt. Without a salt
    /// nothing is copied, as the time it takes would reveal tokens of other requests one by one.
    pub fn adopt_part(&mut self, rows: Rows<'_>, rotation: Rotation) {
        let may = self.salt.is_some() && self.state.is_none() && self.may_adopt() && self.sees_back_from(self.len);
        if !may || !self.pool.copies {
            return;
        }
        let next = rows.slice(self.len.min(rows.len())..rows.len());
        let (index, pool) = (self.len / KV_PAGE, Arc::clone(&self.pool));
        let mut prefixes = pool.prefixes();
        let Some((number, count)) = prefixes.closest(&self.place(rotation), next) else { return };
        let Some(Node { page, window, .. }) = prefixes.get(number) else { return };
        if self.has_windows() {
            let Some(pair) = self.pages.get_mut(index) else { return };
            self.spare.extend(pair.window.take());
            let Some(own) = window.as_ref().and_then(|window| self.copied(window)) else { return };
            self.pages[index].window = Some(own);
        }
        let Some(own) = self.pages.get_mut(index).and_then(|pair| Arc::get_mut(&mut pair.full)) else { return };
        own.memory.copy_from(&page.memory);
        self.len += count;
    }

    /// Offers the pages that are complete, which hold what `rows` begin with, to others.
    pub fn publish(&mut self, rows: Rows<'_>, rotation: Rotation) {
        if !self.shares() {
            return;
        }
        let complete = self.len.min(rows.len()) / KV_PAGE;
        // Pages that hold nothing are of use up to a state that is kept.
        let last_state = || self.checkpoints.iter().map(|checkpoint| checkpoint.position / KV_PAGE).max();
        let holds = self.pool.sizes.kv.page > 0 || self.has_windows();
        let offered = if holds { complete } else { last_state().unwrap_or(0).min(complete) };
        let before = self.places.len();
        for index in before..offered {
            let place = self.place(rotation);
            let rows = rows.slice(index * KV_PAGE..(index + 1) * KV_PAGE);
            let mut prefixes = self.pool.prefixes();
            let own = &mut self.pages[index].full;
            let found = prefixes.find(&place, rows);
            // It was computed twice and is held once.
            if let Some(node) = found.and_then(|number| prefixes.get(number)) {
                *own = Arc::clone(&node.page);
            }
            let number = found.unwrap_or_else(|| prefixes.insert(place, rows, Arc::clone(own)));
            let end = (index + 1) * KV_PAGE;
            let state = self.checkpoints.iter().position(|checkpoint| checkpoint.position == end);
            let state = state.map(|at| self.checkpoints.swap_remove(at));
            prefixes.keep(number, self.pages[index].window.as_ref(), state);
            drop(prefixes);
            self.places.push(Place::After(number));
        }
        if let Some(store) = self.pool.store.get().filter(|_| self.places.len() > before) {
            store.wake();
        }
    }

    /// Offers all pages, the last one too, and frees those that are not kept.
    pub fn retire(mut self, rows: Rows<'_>, rotation: Rotation) {
        let len = self.len.min(rows.len());
        self.truncate(len);
        self.publish(rows, rotation);
        self.save_last();
        if self.may_publish_last() {
            let rest = rows.slice(self.places.len() * KV_PAGE..len);
            let mut prefixes = self.pool.prefixes();
            let place = self.place(rotation);
            let is_new = prefixes.closest(&place, rest).is_none_or(|(_, common)| common < rest.len());
            // A page that is offered already stays as it is.
            if let Some(PagePair { full, window }) = self.pages.get_mut(self.places.len())
                && is_new
                && Arc::get_mut(full).is_some()
            {
                let number = prefixes.insert(place, rest, Arc::clone(full));
                prefixes.keep(number, window.as_ref(), None);
            }
        }
        let pool = Arc::clone(&self.pool);
        drop(self);
        pool.trim();
    }

    /// A cache of the same positions. Where pages are not copied, it is without those of the last page.
    ///
    /// # Errors
    /// Like [`reserve`](Self::reserve).
    pub fn fork(&self) -> Result<KvCache> {
        let whole = self.len / KV_PAGE;
        let mut fork = KvCache::new(Arc::clone(&self.pool));
        let shared = self.pages[..whole].iter().map(|pair| PagePair { full: Arc::clone(&pair.full), window: None });
        fork.pages = shared.collect();
        (fork.places, fork.len, fork.from_file) = (self.places.clone(), whole * KV_PAGE, self.from_file);
        (fork.salt, fork.adapters) = (self.salt.clone(), self.adapters.clone());
        let is_copied = self.len > fork.len || self.state.is_some() || self.has_windows();
        if is_copied && self.pool.copies {
            fork.reserve(self.len)?;
            for (index, PagePair { window, .. }) in self.pages.iter().take(fork.pages.len()).enumerate() {
                fork.pages[index].window = window.as_ref().and_then(|window| fork.copied(window));
            }
            if self.len > fork.len
                && let Some(own) = fork.pages.last_mut().and_then(|pair| Arc::get_mut(&mut pair.full))
            {
                own.memory.copy_from(&self.pages[whole].full.memory);
                fork.len = self.len;
            }
        }
        if !fork.sees_back_from(fork.len) {
            fork.clear();
        }
        match (&mut fork.state, &self.state) {
            (Some(state), Some(own)) if fork.len == self.len => state.copy_from(own),
            (_, Some(_)) => fork.clear(),
            _ => {}
        }
        Ok(fork)
    }

    /// Whether there is a last page that is not complete, may be offered, and holds enough for others to copy.
    fn may_publish_last(&self) -> bool {
        self.pool.shares
            && self.salt.is_some()
            && self.state.is_none()
            && !self.from_file
            && self.len / KV_PAGE == self.places.len()
            && self.len % KV_PAGE >= LEAST_COPIED
    }
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache").field("len", &self.len).field("pages", &self.pages.len()).finish_non_exhaustive()
    }
}
