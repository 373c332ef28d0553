#![doc = include_str!("../README.md")]

pub mod cancel;
pub mod hub;

pub use cancel::{CancellationToken, Cancelled};
pub use hub::{HubId, HubModel};
