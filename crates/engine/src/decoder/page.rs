//! A page of the KV cache as sequences hold it.

use crate::cache_budget::CacheShare;
use crate::error::{Error, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// The layers whose keys and values a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Keys and values of layers that keep all positions.
    Full,
    /// Keys and values of layers that keep only the positions of their window.
    Window,
}

/// Allocates the pages of a KV cache: each holds the keys and values of its layers for `KV_PAGE` positions.
pub type AllocatePage = Arc<dyn Fn(PageKind) -> Result<PageMemory> + Send + Sync>;

/// The memory of a page. All pages of a model are on the same device.
#[derive(Debug)]
pub enum PageMemory {
    /// Main memory, by words of four bytes that hold elements of any size.
    Host(Vec<f32>),
    /// Memory of another device, which the processor does not read.
    Device {
        /// The address of its first byte on the device.
        address: u64,
        /// Frees the memory when it is dropped.
        memory: Box<dyn Debug + Send + Sync>,
    },
}

impl PageMemory {
    /// The words of a page in main memory; empty for other pages.
    pub fn words(&self) -> &[f32] {
        if let PageMemory::Host(words) = self { words } else { &[] }
    }

    /// The words of a page in main memory, to be written; empty for other pages.
    pub fn words_mut(&mut self) -> &mut [f32] {
        if let PageMemory::Host(words) = self { words } else { &mut [] }
    }

    /// Makes it equal `other`, where both are main memory of the same model.
    pub fn copy_from(&mut self, other: &PageMemory) {
        self.words_mut().copy_from_slice(other.words());
    }

    /// The address of its first byte on its device.
    pub fn address(&self) -> u64 {
        match self {
            PageMemory::Host(words) => words.as_ptr().addr() as u64,
            PageMemory::Device { address, .. } => *address,
        }
    }
}

/// A page, and the bytes of the budget that it takes. Sequences that begin alike hold the same page.
#[derive(Debug)]
pub struct Page {
    /// The memory of the page.
    pub memory: PageMemory,
    share: CacheShare,
}

impl Page {
    /// A page that took `share`.
    pub fn new(memory: PageMemory, share: CacheShare) -> Page {
        Page { memory, share }
    }

    /// The bytes of the budget that it takes; none where no layer keeps positions.
    pub fn bytes(&self) -> u64 {
        self.share.bytes()
    }
}

/// The pages that a sequence holds for `KV_PAGE` positions.
#[derive(Debug)]
pub struct PagePair {
    /// The page of layers that keep all positions. Sequences that begin alike hold the same one.
    pub full: Arc<Page>,
    /// The page of layers with a window, if they have pages of their own and a later position may see it. Each sequence
    /// has its own.
    pub window: Option<Arc<Page>>,
}

impl PagePair {
    /// The page of a kind.
    pub fn of(&self, kind: PageKind) -> Option<&PageMemory> {
        let page = match kind {
            PageKind::Full => Some(&self.full),
            PageKind::Window => self.window.as_ref(),
        };
        page.map(|page| &page.memory)
    }

    /// The page of a kind, to be written.
    ///
    /// # Errors
    /// `Internal` where it is not there, or another sequence holds it too: a defect of this crate.
    pub fn of_mut(&mut self, kind: PageKind) -> Result<&mut PageMemory> {
        let page = match kind {
            PageKind::Full => Some(&mut self.full),
            PageKind::Window => self.window.as_mut(),
        };
        let is_shared =
            || Error::Internal("a page of the KV cache that is not there, or that others read, is written".into());
        page.and_then(Arc::get_mut).map(|page| &mut page.memory).ok_or_else(is_shared)
    }
}
