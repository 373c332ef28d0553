//! A page of the KV cache as sequences hold it.

use crate::cache_budget::CacheShare;
use crate::error::{Error, Result};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What makes the pages of a KV cache: each holds the keys and values of all layers for `KV_PAGE` positions.
pub type AllocatePage<P> = Arc<dyn Fn() -> Result<P> + Send + Sync>;

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

/// A page that sequences share and one of them writes is a defect of this crate.
pub(crate) fn is_shared() -> Error {
    Error::Internal("a page of the KV cache that others read is written".into())
}
