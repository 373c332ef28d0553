//! The id of a model on the Hugging Face Hub -> its files in the shared cache, once its headers say that it runs.
//!
//! The parts that ask the Hub need the feature `hub`.
//!
#![doc = include_str!("../docs/hub.md")]

mod id;

#[cfg(feature = "hub")]
mod cache;
#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
mod digest;
#[cfg(feature = "hub")]
mod download;
#[cfg(feature = "hub")]
mod environment;
#[cfg(feature = "hub")]
mod mirror;
#[cfg(feature = "hub")]
mod names;
#[cfg(feature = "hub")]
mod options;
#[cfg(feature = "hub")]
mod own;
#[cfg(feature = "hub")]
mod repository;
#[cfg(feature = "hub")]
mod retry;
#[cfg(feature = "hub")]
mod selection;
#[cfg(feature = "hub")]
mod transfer;

#[cfg(feature = "hub")]
pub use crate::error::HubError;
pub use id::HubId;
#[cfg(feature = "hub")]
pub use options::HubOptions;

#[cfg(feature = "hub")]
pub(crate) use repository::{Fault, Repository};

use std::path::Path;

/// The id that `path` means; `None` when something lies there, or it can only be a path.
pub(crate) fn id(path: &Path) -> Option<HubId> {
    if path.symlink_metadata().is_ok() {
        return None;
    }
    HubId::parse(path.to_str()?)
}
