//! Layers with a window: they keep the positions that a later one may see, in pages that go from the first of these to
//! the next ones.

use super::KvCache;
use crate::decoder::page::{Page, PageKind};
use crate::error::{Error, Result};
use model_factory_spec::plan::KV_PAGE;
use std::sync::Arc;

impl KvCache {
    /// Whether layers with a window hold what the position at `len` sees.
    pub(super) fn sees_back_from(&self, len: usize) -> bool {
        let first = self.first_seen(len).min(len) / KV_PAGE;
        !self.has_windows() || self.pages[first..len.div_ceil(KV_PAGE)].iter().all(|pair| pair.window.is_some())
    }

    /// The first position that the one at `position` sees in layers with a window.
    pub(super) fn first_seen(&self, position: usize) -> usize {
        self.pool.sizes.kv.first_seen(position)
    }

    pub(super) fn has_windows(&self) -> bool {
        self.pool.sizes.kv.window_page > 0
    }

    /// Pages that layers with a window have or will have.
    pub(super) fn windows(&self) -> usize {
        self.pages.iter().filter(|pair| pair.window.is_some()).count() + self.spare.len()
    }

    /// How many of those are missing for `len` positions.
    pub(super) fn missing_windows(&self, len: usize) -> usize {
        self.pool.sizes.kv.window_pages(len).saturating_sub(self.windows())
    }

    /// Makes room for the positions from `from` to `end`, the next ones: takes the pages of those that are further back
    /// than what `from` sees and the [`KV_PAGE`] before that.
    pub(super) fn turn_windows(&mut self, from: usize, end: usize) -> Result<()> {
        if !self.has_windows() {
            return Ok(());
        }
        self.leave_windows(self.first_seen(from).saturating_sub(KV_PAGE) / KV_PAGE);
        match self.sees_back_from(from) {
            true => self.give_windows(from, end),
            false => Err(Error::Internal("a layer with a window has forgotten what is seen".into())),
        }
    }

    /// Gives the positions from `from` to `end` pages that are spare.
    pub(super) fn give_windows(&mut self, from: usize, end: usize) -> Result<()> {
        if !self.has_windows() {
            return Ok(());
        }
        for pair in self.pages.iter_mut().take(end.div_ceil(KV_PAGE)).skip(from / KV_PAGE) {
            if pair.window.is_none() {
                let none = || Error::Internal("no page for a layer with a window".into());
                pair.window = Some(self.spare.pop().ok_or_else(none)?);
            }
        }
        Ok(())
    }

    /// Takes the window pages of the first `pages` for others.
    pub(super) fn leave_windows(&mut self, pages: usize) {
        for index in 0..pages.min(self.pages.len()) {
            if let Some(window) = self.pages[index].window.take() {
                self.leave(window);
            }
        }
    }

    /// Takes a page of layers with a window for others; no row will see its positions any more. If it is kept for
    /// sequences that begin alike, it stays so where there is room for another one.
    fn leave(&mut self, window: Arc<Page>) {
        if Arc::strong_count(&window) > 1 {
            if let Some(other) = self.pool.kept_page(PageKind::Window) {
                return self.spare.push(Arc::new(other));
            }
            self.pool.prefixes().forget_window(&window);
        }
        self.spare.push(window);
    }

    /// A copy of `window` in one of the spare pages.
    pub(super) fn copied(&mut self, window: &Page) -> Option<Arc<Page>> {
        let mut page = if self.pool.copies { self.spare.pop()? } else { return None };
        Arc::get_mut(&mut page)?.memory.copy_from(&window.memory);
        Some(page)
    }

    /// Copies of those window pages of the numbers `found` that the next position sees once they follow the
    /// sequence's own pages. `None` where there is no memory for them; then nothing has
    /// changed.
    pub(super) fn adopted_windows(&mut self, found: &[u64]) -> Option<Vec<Option<Arc<Page>>>> {
        let mut windows: Vec<_> = found.iter().map(|_| None).collect();
        if !self.has_windows() {
            return Some(windows);
        }
        let whole = self.len / KV_PAGE;
        let first = self.first_seen((whole + found.len()) * KV_PAGE) / KV_PAGE;
        let unseen = first.saturating_sub(whole);
        // These were left by a step that failed.
        self.spare.extend(self.pages.iter_mut().skip(whole).filter_map(|pair| pair.window.take()));
        self.spare_windows(found.len() - unseen).ok()?;
        let pool = Arc::clone(&self.pool);
        let prefixes = pool.prefixes();
        for (index, number) in found.iter().enumerate().skip(unseen) {
            let from = prefixes.get(*number).and_then(|node| node.window.as_ref());
            let Some(own) = from.and_then(|from| self.copied(from)) else {
                self.spare.extend(windows.into_iter().flatten());
                return None;
            };
            windows[index] = Some(own);
        }
        drop(prefixes);
        self.leave_windows(first);
        Some(windows)
    }
}
