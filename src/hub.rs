//! The id of a model on the Hugging Face Hub -> its files in the shared cache, once its headers say that it runs.
//!
//! The parts that ask the Hub need the feature `hub`.
//!
#![doc = include_str!("../docs/hub.md")]

pub use model_factory_format::HubId;
#[cfg(feature = "hub")]
pub use model_factory_hub::{HubError, HubOptions};

use std::path::Path;

/// The id that `path` stands for; `None` when something lies at `path`, or it can only be a path.
pub(crate) fn id(path: &Path) -> Option<HubId> {
    if path.symlink_metadata().is_ok() {
        return None;
    }
    HubId::parse(path.to_str()?)
}
