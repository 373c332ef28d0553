//! Where pages are kept besides the memory of a model: what a store is asked, what it is given, and what it knows a page by.
//!
//! The store is written by a thread of its own, which takes what is queued a piece at a time, while it lies in the tree. What
//! was freed before is not stored: no step waits for the store, and it holds no page.

use super::page_pool::PagePool;
use super::prefixes::{Node, Place};
use super::rope::Rotation;
use crate::input::Rows;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What pages are known by: a hash of the model, of how the sequence is computed, and of all rows up to their end.
pub type Key = [u8; 32];

/// The most that waits to be stored; what is more is not.
const LONGEST_QUEUE: usize = 1 << 16;

/// A part of what is kept of 256 positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Keys and values of layers that keep all positions.
    Page,
    /// Keys and values of layers with a window.
    Window,
    /// The state of layers without attention after these positions.
    State,
}

/// What a store has or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The pages that it is of.
    pub key: Key,
    /// Which part of it.
    pub part: Part,
    /// The number of the page in its sequence. What comes before is of more use.
    pub index: usize,
}

/// Keeps pages of a model beyond the memory for caches.
pub trait PrefixStore: Send + Sync + fmt::Debug {
    /// What stands for the model and all else that bits depend on besides the sequence.
    fn seed(&self) -> &Key;

    /// Whether it has `entry`, as far as it knows without reading it.
    fn has(&self, entry: &Entry) -> bool;

    /// Reads all of `entry` into `parts`, and says whether these are the bytes that were written. Where it says no, it has the entry no
    /// more.
    fn read(&self, entry: &Entry, parts: &mut [&mut [u8]]) -> bool;

    /// Something was queued for it.
    fn wake(&self);
}

/// What a store is to do, by the numbers of pages in the tree: to take a part of one, whose bytes lie in the tree, or to note that it
/// and all before it were used.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<(u64, Option<Part>)>);

impl Queue {
    pub(super) fn push(&mut self, number: u64, part: Option<Part>) {
        if self.0.len() < LONGEST_QUEUE {
            self.0.push_back((number, part));
        }
    }
}

/// What a store is to do.
#[derive(Clone, Debug)]
pub enum Work {
    /// To take this.
    Store(Unsaved),
    /// To note that these pages, one after the other from the beginning of a sequence, were used.
    Used(Vec<Key>),
}

/// Something that waits to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Unsaved {
    /// What the store knows it by.
    pub entry: Entry,
    /// Its bytes.
    pub bytes: usize,
    number: u64,
}

/// The key of the beginning of sequences at `start`; `None` for those that are not stored.
pub(super) fn first_key(seed: &Key, start: &Place) -> Option<Key> {
    let Place::Start(rotation, salt, adapters) = start else { return None };
    if salt.as_ref().is_some_and(|salt| salt.starts_with('\0')) {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(seed);
    hash.update([u8::from(*rotation == Rotation::Long), u8::from(salt.is_some())]);
    let salt = salt.as_deref().unwrap_or_default();
    hash.update((salt.len() as u64).to_le_bytes());
    hash.update(salt);
    for (digest, scale) in adapters.keys() {
        hash.update(digest);
        hash.update(scale.to_le_bytes());
    }
    Some(hash.finalize().into())
}

/// The key of a page after the one of key `before`; `identify` gives what its rows are told from others by.
pub(super) fn next_key(before: &Key, identify: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Key {
    let mut hash = Sha256::new();
    hash.update(before);
    identify(&mut |bytes| hash.update(bytes));
    hash.finalize().into()
}

/// The key of the page of `rows` after the one of key `before`.
pub(super) fn key_of(before: &Key, rows: Rows<'_>) -> Key {
    next_key(before, |take| rows.identify(take))
}

impl PagePool {
    /// Whether sequences share pages, so that a store can be of use.
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// From now on pages are kept in `store` too, once.
    pub fn set_store(&self, store: Arc<dyn PrefixStore>) {
        if self.shares && self.store.set(store).is_ok() {
            self.prefixes().unsaved = Some(Queue::default());
        }
    }

    /// The next thing that the store is to do; `None` once there is nothing.
    pub fn next_work(&self, seed: &Key) -> Option<Work> {
        let mut prefixes = self.prefixes();
        loop {
            let (number, part) = prefixes.unsaved.as_mut()?.0.pop_front()?;
            let (Some(key), Some(node)) = (prefixes.key(number, seed), prefixes.get(number)) else { continue };
            let Some(part) = part else { return Some(Work::Used(prefixes.keys(number))) };
            let (entry, bytes) = (Entry { key, part, index: node.index }, parts_of(node, part).map(<[u8]>::len).sum());
            if bytes > 0 {
                return Some(Work::Store(Unsaved { entry, bytes, number }));
            }
        }
    }

    /// Copies what follows the first `offset` bytes of `unsaved` into `into`, all of which it fills; not if it was freed meanwhile.
    pub fn copy_unsaved(&self, unsaved: &Unsaved, mut offset: usize, mut into: &mut [u8]) -> bool {
        let prefixes = self.prefixes();
        let Some(node) = prefixes.get(unsaved.number) else { return false };
        for part in parts_of(node, unsaved.entry.part) {
            let from = &part[offset.min(part.len())..];
            let count = from.len().min(into.len());
            into[..count].copy_from_slice(&from[..count]);
            (offset, into) = (offset.saturating_sub(part.len()), &mut into[count..]);
        }
        into.is_empty()
    }
}

/// The bytes of a part of `node`; none where it is not there.
fn parts_of(node: &Node, part: Part) -> impl Iterator<Item = &[u8]> {
    let page = match part {
        Part::Page => Some(&node.page),
        Part::Window => node.window.as_ref(),
        Part::State => None,
    };
    let state = node.state.as_ref().filter(|_| part == Part::State);
    page.into_iter()
        .map(|page| bytemuck::cast_slice(page.memory.words()))
        .chain(state.into_iter().flat_map(|state| state.bytes()))
}
