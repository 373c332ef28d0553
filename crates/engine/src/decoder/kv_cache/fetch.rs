//! Pages from a store: read into the tree of pages, from where a sequence takes them like those that another one computed.

use super::KvCache;
use crate::decoder::page::{Page, PageKind};
use crate::decoder::page_pool::PagePool;
use crate::decoder::prefix_store::{Entry, Key, Part, PrefixStore, first_key, key_of};
use crate::decoder::prefixes::Place;
use crate::decoder::rope::Rotation;
use crate::input::Rows;
use model_factory_spec::plan::KV_PAGE;
use std::sync::Arc;

/// A page that may come next in a sequence, and what memory has of it.
struct Next {
    key: Key,
    /// Its number in the sequence.
    index: usize,
    /// Its number in the tree.
    number: Option<u64>,
    window: bool,
    state: bool,
}

impl Next {
    fn entry(&self, part: Part) -> Entry {
        Entry { key: self.key, part, index: self.index }
    }
}

/// Why not all was read.
enum Stop {
    /// There is no room, or what was read was freed again.
    Room,
    /// The store does not have it after all; what it would be of use for are the pages from this count on.
    Damaged(usize),
}

impl KvCache {
    /// Reads pages that continue the sequence with `rows`, which are rotated so, from the store into the tree: as many more than those
    /// that are there as can follow, with what the next position needs.
    pub fn fetch(&self, rows: Rows<'_>, rotation: Rotation) {
        let whole = (rows.len() / KV_PAGE).saturating_sub(self.len / KV_PAGE);
        let Some(store) = self.pool.store.get().filter(|_| whole > 0 && self.may_adopt() && !self.from_file) else {
            return;
        };
        let Some((mut next, there)) = self.known(rows, rotation, store.seed()) else { return };
        let mut key = next.last().map(|next| next.key).or_else(|| self.key(rotation, store.seed()));
        // Pages that hold nothing need not be stored.
        let is_stored = |next: &Next| self.pool.sizes.kv.page == 0 || store.has(&next.entry(Part::Page));
        for index in next.len()..whole {
            let start = self.len + index * KV_PAGE;
            let Some(own) = key.map(|key| key_of(&key, rows.slice(start..start + KV_PAGE))) else { break };
            key = Some(own);
            let own = Next { key: own, index: start / KV_PAGE, number: None, window: false, state: false };
            if !is_stored(&own) {
                break;
            }
            next.push(own);
        }
        let mut most = next.len();
        while let Some(count) = (there + 1..=most).rev().find(|count| self.is_fetchable(&next[..*count], &**store)) {
            match self.read(rows, rotation, &mut next[..count], &**store) {
                Ok(()) | Err(Stop::Room) => return,
                Err(Stop::Damaged(from)) => most = from.min(count).saturating_sub(1),
            }
        }
    }

    /// What the store knows the pages that it has by.
    fn key(&self, rotation: Rotation, seed: &Key) -> Option<Key> {
        match self.place(rotation) {
            Place::After(number) => self.pool.prefixes().key(number, seed),
            start => first_key(seed, &start),
        }
    }

    /// The next pages that are in the tree, and how many of them can be taken.
    fn known(&self, rows: Rows<'_>, rotation: Rotation, seed: &Key) -> Option<(Vec<Next>, usize)> {
        let mut prefixes = self.pool.prefixes();
        let found = self.find(rows, rotation, &mut prefixes);
        let there = self.adoptable(&found, &prefixes);
        let mut next = Vec::with_capacity(found.len());
        for number in found {
            let key = prefixes.key(number, seed)?;
            let node = prefixes.get(number)?;
            let (window, state) = (node.window.is_some(), node.state.is_some());
            next.push(Next { key, index: node.index, number: Some(number), window, state });
        }
        Some((next, there))
    }

    /// The first of `next` whose window the position after them sees, as [`adoptable`](Self::adoptable) counts.
    fn first_window(&self, next: usize) -> usize {
        let whole = self.len / KV_PAGE;
        (self.first_seen((whole + next) * KV_PAGE) / KV_PAGE).saturating_sub(whole)
    }

    /// Whether memory and `store` have all that is seen after the pages `next`.
    fn is_fetchable(&self, next: &[Next], store: &dyn PrefixStore) -> bool {
        let has = |next: &Next, part| store.has(&next.entry(part));
        let whole = self.len / KV_PAGE;
        let first = self.first_seen((whole + next.len()) * KV_PAGE) / KV_PAGE;
        let own = || self.pages[first.min(whole)..whole].iter().all(|pair| pair.window.is_some());
        let seen = || next[self.first_window(next.len())..].iter().all(|next| next.window || has(next, Part::Window));
        let state = || next.last().is_some_and(|last| last.state || has(last, Part::State));
        (!self.has_windows() || own() && seen()) && (self.pool.sizes.states.is_empty() || state())
    }

    /// Reads what is missing of `next` into the tree.
    fn read(&self, rows: Rows<'_>, rotation: Rotation, next: &mut [Next], store: &dyn PrefixStore) -> Result<(), Stop> {
        let (mut place, count) = (self.place(rotation), next.len());
        let windows = if self.has_windows() { self.first_window(count) } else { count };
        for (index, next) in next.iter_mut().enumerate() {
            let number = match next.number {
                Some(number) => number,
                None => {
                    let page = self.pool.read_page(PageKind::Full, &next.entry(Part::Page), store);
                    let page = page.map_err(|damaged| if damaged { Stop::Damaged(index + 1) } else { Stop::Room })?;
                    let start = self.len + index * KV_PAGE;
                    let rows = rows.slice(start..start + KV_PAGE);
                    *next.number.insert(self.offer(&place, rows, page).ok_or(Stop::Room)?)
                }
            };
            place = Place::After(number);
            if index >= windows && !next.window {
                let window = self.pool.read_page(PageKind::Window, &next.entry(Part::Window), store);
                let window = window.map_err(|damaged| if damaged { Stop::Damaged(count) } else { Stop::Room })?;
                self.pool.prefixes().keep(number, Some(&Arc::new(window)), None);
                next.window = true;
            }
            if index + 1 == count && !self.pool.sizes.states.is_empty() && !next.state {
                let position = self.len + count * KV_PAGE;
                let mut state = self.pool.checkpoint(position).ok_or(Stop::Room)?;
                if !store.read(&next.entry(Part::State), &mut state.bytes_mut().collect::<Vec<_>>()) {
                    return Err(Stop::Damaged(count));
                }
                self.pool.prefixes().keep(number, None, Some(state));
            }
        }
        Ok(())
    }

    /// Adds a page that was read to the tree, unless the one before it was freed to make room.
    fn offer(&self, place: &Place, rows: Rows<'_>, page: Page) -> Option<u64> {
        let mut prefixes = self.pool.prefixes();
        if let Place::After(before) = place {
            prefixes.get(*before)?;
        }
        let found = prefixes.find(place, rows);
        Some(found.unwrap_or_else(|| prefixes.insert(place.clone(), rows, Arc::new(page))))
    }

    /// Tells the store, where there is one, that the pages of the sequence were used, and queues the last state that is kept of it.
    pub fn save_last(&self) {
        let Some(store) = self.pool.store.get().filter(|_| !self.places.is_empty()) else { return };
        self.pool.prefixes().save_last(&self.places);
        store.wake();
    }
}

impl PagePool {
    /// The page of a kind that `store` has as `entry`. The error says whether it was damaged; else there was no room.
    fn read_page(&self, kind: PageKind, entry: &Entry, store: &dyn PrefixStore) -> Result<Page, bool> {
        let mut page = self.kept_page(kind).ok_or(false)?;
        let bytes = bytemuck::cast_slice_mut(page.memory.words_mut());
        let is_read = bytes.is_empty() || store.read(entry, &mut [bytes]);
        if is_read { Ok(page) } else { Err(true) }
    }
}
