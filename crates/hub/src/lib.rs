#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cache;
mod client;
mod digest;
mod download;
mod error;
mod mirror;
mod names;
mod options;
mod own;
mod repository;
mod selection;
mod transfer;

pub use error::HubError;
pub use model_factory_format::{HubId, HubModel};
pub use options::HubOptions;
pub use repository::{Diagnose, Fault, Mmproj, Repository};
