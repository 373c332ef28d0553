//! Whole models against the truth: logits, ids, hidden states and vectors, the same bits however they are computed.

mod accuracy;
mod adapted_encoders;
mod adapters;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod embeddings;
mod encoders;
mod fused;
mod images;
mod int8;
mod latent;
mod mamba;
mod merged;
#[cfg(feature = "images")]
mod mmproj;
mod packed;
#[cfg(feature = "images")]
mod pictures;
mod scores;
#[cfg(feature = "images")]
mod seen;
mod vision;
mod windows;
