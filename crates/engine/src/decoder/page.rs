//! A page of the KV cache as sequences hold it.

use crate::cache_budget::CacheShare;
use crate::error::{Error, Result};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Which layers' keys and values a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Those of layers that keep all positions.
    Full,
    /// Those of layers that keep the positions of their window.
    Window,
}

/// What makes the pages of a KV cache: each holds the keys and values of its layers for `KV_PAGE` positions.
pub type AllocatePage<P> = Arc<dyn Fn(PageKind) -> Result<P> + Send + Sync>;

/// Makes the second page equal the first.
pub type CopyPage<P> = fn(&P, &mut P);

/// A page, and what it takes of the budget. Sequences that begin alike hold the same one.
#[derive(Debug)]
pub struct Page<P> {
    page: P,
    _share: CacheShare,
}

impl<P> Page<P> {
    /// A page that took `share`.
    pub fn new(page: P, share: CacheShare) -> Page<P> {
        Page { page, _share: share }
    }
}

impl<P> Deref for Page<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.page
    }
}

impl<P> DerefMut for Page<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.page
    }
}

/// What a sequence holds of `KV_PAGE` positions.
#[derive(Debug)]
pub struct PagePair<P> {
    /// Of layers that keep all positions. Sequences that begin alike hold the same one.
    pub full: Arc<Page<P>>,
    /// Of layers with a window, where those have pages of their own and a later position may see it. Each sequence has its own.
    pub window: Option<Arc<Page<P>>>,
}

impl<P> PagePair<P> {
    /// The page of a kind.
    pub fn of(&self, kind: PageKind) -> Option<&P> {
        match kind {
            PageKind::Full => Some(&self.full),
            PageKind::Window => self.window.as_deref().map(Deref::deref),
        }
    }

    /// The page of a kind, to be written.
    ///
    /// # Errors
    /// `Internal` where it is not there, or is another's too: a defect of this crate.
    pub fn of_mut(&mut self, kind: PageKind) -> Result<&mut P> {
        let page = match kind {
            PageKind::Full => Some(&mut self.full),
            PageKind::Window => self.window.as_mut(),
        };
        page.and_then(Arc::get_mut).map(DerefMut::deref_mut).ok_or_else(is_shared)
    }
}

fn is_shared() -> Error {
    Error::Internal("a page of the KV cache that is not there, or that others read, is written".into())
}
