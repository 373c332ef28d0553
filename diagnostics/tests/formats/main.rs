//! Files on disk and in memory, sound and damaged, through probing and header reading.

// A sample that cannot be written is a broken test; `pub` is for the sibling modules.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod build;
mod config;
mod gguf;
mod hostile;
mod probe;
mod safetensors;
