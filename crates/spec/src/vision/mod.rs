//! How a model takes images.

pub mod processor;
