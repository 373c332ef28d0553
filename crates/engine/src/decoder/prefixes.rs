//! Pages of the KV cache by the ids and images that they hold, so that a sequence takes pages that another has computed.

use super::page::Page;
use super::prefix_store::{self, Key, Part, Queue};
use super::rope::Rotation;
use super::state::Checkpoint;
use crate::adapter::Adapters;
use crate::input::{Piece, Rows, common, identify};
use model_factory_spec::plan::KV_PAGE;
use std::collections::HashMap;
use std::sync::Arc;

/// If fewer positions than this match at the beginning of a page, they are computed, not copied.
pub(super) const LEAST_COPIED: usize = 16;

/// Of the states at the ends of pages, each as long as several pages, a store has one of so many, and the last of a sequence.
const STORED_STATES: usize = 4;

/// A place in the tree: the page that a page comes after.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The beginning of a sequence with keys rotated in this way, with this salt, or without one, and with these adapters.
    Start(Rotation, Option<Arc<str>>, Adapters),
    After(u64),
}

/// A tree of pages, each after the one before it: the same place, the same ids and the same images are the same bits.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    nodes: HashMap<u64, Node>,
    children: HashMap<Place, Vec<u64>>,
    next: u64,
    /// Counts uses, to know which was used last.
    clock: u64,
    /// What a store does not have yet, where there is one.
    pub(super) unsaved: Option<Queue>,
}

/// A page that is offered.
#[derive(Debug)]
pub(super) struct Node {
    place: Place,
    /// The ids of the page's positions; fewer than it has room for in the last page of a sequence.
    ids: Box<[u32]>,
    /// The parts of images among them, by their digests.
    pieces: Box<[Piece]>,
    /// The page of the layers that keep all positions.
    pub page: Arc<Page>,
    /// The page of the layers with a window, where it is kept.
    pub window: Option<Arc<Page>>,
    /// The state of layers after this page, where it is kept.
    pub state: Option<Arc<Checkpoint>>,
    used: u64,
    /// Its number in the sequence.
    pub index: usize,
    /// What a store knows it by, once that was asked for.
    key: Option<Key>,
}

impl Prefixes {
    /// The number of the page at `place` that holds exactly `rows`.
    pub(super) fn find(&mut self, place: &Place, rows: Rows<'_>) -> Option<u64> {
        let is_equal = |node: &Node| *node.ids == *rows.ids() && node.pieces.iter().cloned().eq(rows.pieces());
        let found = self.at(place).find(|(_, node)| is_equal(node)).map(|(number, _)| number)?;
        self.touch(found).map(|_| found)
    }

    /// The page at `place` that has most of `rows` in common, and how many, where copying it is worth it.
    pub(super) fn closest(&mut self, place: &Place, rows: Rows<'_>) -> Option<(u64, usize)> {
        let with = |node: &Node| common((&node.ids, node.pieces.iter().cloned()), (rows.ids(), rows.pieces()));
        let best = self.at(place).map(|(number, node)| (with(node), number)).max()?;
        let (count, number) = Some(best).filter(|(count, _)| *count >= LEAST_COPIED)?;
        self.touch(number)?;
        Some((number, count))
    }

    /// Page `number`. The tree is borrowed while it is read, so that nothing else takes it then.
    pub(super) fn get(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number)
    }

    /// Adds a page with `rows` at `place`, and returns its number.
    pub(super) fn insert(&mut self, place: Place, rows: Rows<'_>, page: Arc<Page>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.clock += 1;
        self.children.entry(place.clone()).or_default().push(number);
        let before = if let Place::After(before) = place { self.nodes.get(&before) } else { None };
        let index = before.map_or(0, |before| before.index + 1);
        let (ids, pieces): (Box<[u32]>, _) = (rows.ids().into(), rows.pieces().collect());
        if ids.len() == KV_PAGE && page.bytes() > 0 {
            self.save(number, Some(Part::Page));
        }
        let node = Node { place, ids, pieces, page, window: None, state: None, used: self.clock, index, key: None };
        self.nodes.insert(number, node);
        number
    }

    /// Queues a part of page `number` for the store, where there is one, or that it was used.
    fn save(&mut self, number: u64, part: Option<Part>) {
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.push(number, part);
        }
    }

    /// What a store knows page `number` by, and all before it; `seed` stands for the model. `None` for the last page of a sequence
    /// that is not whole, and for what is not to be stored.
    pub(super) fn key(&mut self, number: u64, seed: &Key) -> Option<Key> {
        let (mut missing, mut at) = (Vec::new(), number);
        let mut key = loop {
            let node = self.nodes.get(&at)?;
            if let Some(key) = node.key {
                break key;
            }
            missing.push(at);
            match &node.place {
                Place::After(before) => at = *before,
                start => break prefix_store::first_key(seed, start)?,
            }
        };
        for number in missing.into_iter().rev() {
            let node = self.nodes.get_mut(&number).filter(|node| node.ids.len() == KV_PAGE)?;
            key = prefix_store::next_key(&key, |take| identify(&node.ids, &node.pieces, take));
            node.key = Some(key);
        }
        Some(key)
    }

    /// Keeps the page of layers with a window and a state that come after page `number`, unless some are kept already.
    pub(super) fn keep(&mut self, number: u64, window: Option<&Arc<Page>>, state: Option<Checkpoint>) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let has_new = [
            (Part::Window, node.window.is_none() && window.is_some()),
            (Part::State, node.state.is_none() && state.is_some() && (node.index + 1).is_multiple_of(STORED_STATES)),
        ];
        node.window = node.window.take().or_else(|| window.map(Arc::clone));
        node.state = node.state.take().or_else(|| state.map(Arc::new));
        let is_whole = node.ids.len() == KV_PAGE;
        has_new
            .into_iter()
            .filter(|(_, is_new)| *is_new && is_whole)
            .for_each(|(part, _)| self.save(number, Some(part)));
    }

    /// The keys of page `number` and all before it, as far as they were asked for, in their order.
    pub(super) fn keys(&self, number: u64) -> Vec<Key> {
        let before = |node: &&Node| if let Place::After(before) = node.place { self.nodes.get(&before) } else { None };
        let mut keys: Vec<Key> =
            std::iter::successors(self.nodes.get(&number), before).filter_map(|node| node.key).collect();
        keys.reverse();
        keys
    }

    /// Queues the last state that is kept of the pages at `places` for the store, and that they were used.
    pub(super) fn save_last(&mut self, places: &[Place]) {
        if let Some(Place::After(last)) = places.last() {
            self.save(*last, None);
        }
        let has_state = |number: &u64| self.nodes.get(number).is_some_and(|node| node.state.is_some());
        let numbers =
            places.iter().rev().filter_map(|place| if let Place::After(number) = place { Some(*number) } else { None });
        if let Some(last) = { numbers }.find(has_state) {
            self.save(last, Some(Part::State));
        }
    }

    /// Forgets `window`, if it is here: then whoever holds it is the only one.
    pub(super) fn forget_window(&mut self, window: &Arc<Page>) {
        let is_held = |held: &Arc<Page>| Arc::ptr_eq(held, window);
        let found = self.nodes.values_mut().find(|node| node.window.as_ref().is_some_and(is_held));
        if let Some(node) = found {
            node.window = None;
        }
    }

    /// The state of layers after page `number`.
    pub(super) fn state(&mut self, number: u64) -> Option<Arc<Checkpoint>> {
        self.touch(number)?.state.clone()
    }

    /// Forgets `page`, and all after it, if it is here and only one sequence holds it.
    pub(super) fn forget(&mut self, page: &Arc<Page>) {
        let found = self.nodes.iter().find(|(_, node)| Arc::ptr_eq(&node.page, page));
        let found = found.filter(|_| Arc::strong_count(page) == 2).map(|(number, _)| *number);
        let mut numbers: Vec<u64> = found.into_iter().collect();
        while let Some(number) = numbers.pop() {
            self.remove(number);
            numbers.extend(self.children.remove(&Place::After(number)).unwrap_or_default());
        }
    }

    /// Forgets what was not used for the longest time, of what no sequence holds: states first, which can be computed
    /// again; then pages after which none comes, and those of layers with a window. Whether there was any.
    pub(super) fn evict(&mut self) -> bool {
        let states = self.nodes.iter_mut().filter(|(_, node)| node.state.is_some());
        if let Some((number, node)) = states.min_by_key(|(_, node)| node.used) {
            node.state = None;
            let number = *number;
            self.prune(number);
            return true;
        }
        let is_last = |number: &u64| self.children.get(&Place::After(*number)).is_none_or(Vec::is_empty);
        let pages = self.nodes.iter().filter(|(number, node)| Arc::strong_count(&node.page) == 1 && is_last(number));
        let page = pages.map(|(number, node)| (node.used, *number)).min();
        let windows = self.nodes.iter().filter(|(_, node)| is_unused(node.window.as_ref()));
        let window = windows.map(|(number, node)| (node.used, *number)).min();
        match (page, window) {
            (Some((used, number)), window) if window.is_none_or(|(of_window, _)| used <= of_window) => {
                self.remove(number)
            }
            (_, Some((_, number))) => self.nodes.get_mut(&number).and_then(|node| node.window.take()).is_some(),
            (_, None) => false,
        }
    }

    /// How many pages of layers that keep all positions, pages of layers with a window, and states no sequence holds.
    pub(super) fn unused(&self) -> [usize; 3] {
        let count = |of: fn(&Node) -> bool| self.nodes.values().filter(|node| of(node)).count();
        [
            count(|node| Arc::strong_count(&node.page) == 1),
            count(|node| is_unused(node.window.as_ref())),
            count(|node| node.state.is_some()),
        ]
    }

    fn at(&self, place: &Place) -> impl Iterator<Item = (u64, &Node)> {
        let numbers = self.children.get(place).map_or(&[][..], Vec::as_slice);
        numbers.iter().filter_map(|number| Some((*number, self.nodes.get(number)?)))
    }

    fn touch(&mut self, number: u64) -> Option<&Node> {
        self.clock += 1;
        let node = self.nodes.get_mut(&number)?;
        node.used = self.clock;
        Some(node)
    }

    /// Forgets page `number` and those before it as long as they hold nothing and none comes after: where all memory of a model is
    /// in its states, no lack of memory would.
    fn prune(&mut self, mut number: u64) {
        while let Some(node) = self.nodes.get(&number) {
            let is_last = self.children.get(&Place::After(number)).is_none_or(Vec::is_empty);
            let holds = node.page.bytes() > 0 || node.window.is_some() || node.state.is_some();
            let place = node.place.clone();
            if holds || !is_last || !self.remove(number) {
                return;
            }
            let Place::After(before) = place else { return };
            number = before;
        }
    }

    fn remove(&mut self, number: u64) -> bool {
        let Some(node) = self.nodes.remove(&number) else { return false };
        if let Some(numbers) = self.children.get_mut(&node.place) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.children.remove(&node.place);
            }
        }
        true
    }
}

fn is_unused(window: Option<&Arc<Page>>) -> bool {
    window.is_some_and(|window| Arc::strong_count(window) == 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on says why
mod tests {
    use super::super::page::PageMemory;
    use super::*;
    use crate::cache_budget::CacheBudget;
    use model_factory_spec::plan::StateSize;

    fn start() -> Place {
        Place::Start(Rotation::Short, None, Adapters::default())
    }

    /// Two pages of `bytes` each with the same first one, and a state after each of the last.
    fn tree(budget: &Arc<CacheBudget>, bytes: u64) -> Prefixes {
        let page = || {
            let mut share = budget.share();
            share.grow_to(bytes).unwrap();
            Arc::new(Page::new(PageMemory::Host(Vec::new()), share))
        };
        let sizes: Arc<[StateSize]> = [StateSize::default()].into();
        let mut prefixes = Prefixes::default();
        let first = prefixes.insert(start(), (&[1][..]).into(), page());
        for id in [2, 3] {
            let number = prefixes.insert(Place::After(first), (&[id][..]).into(), page());
            prefixes.keep(number, None, Some(Checkpoint::new(&sizes, 512, budget.share()).unwrap()));
        }
        prefixes
    }

    /// A model whose layers all have states keeps no pages: what its states were for goes with them.
    #[test]
    fn pages_that_hold_nothing_go_with_the_last_state_after_them() {
        let budget = CacheBudget::new(1000);
        let mut prefixes = tree(&budget, 0);
        let counts = [2, 0].map(|left| (prefixes.evict(), prefixes.nodes.len() == left));
        assert_eq!(counts, [(true, true); 2]);
        assert!(prefixes.children.is_empty() && !prefixes.evict());
    }

    #[test]
    fn pages_that_hold_keys_stay_without_a_state() {
        let budget = CacheBudget::new(1000);
        let mut prefixes = tree(&budget, 10);
        assert!(prefixes.evict() && prefixes.evict());
        assert_eq!(prefixes.nodes.len(), 3);
    }
}
