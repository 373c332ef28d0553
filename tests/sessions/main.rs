//! Sessions: their caches, and the files they are saved to.

mod cache_budget;
#[path = "../common/mod.rs"]
mod common;
mod damaged_sessions;
mod prompt_cache;
mod saved_sessions;
mod sessions;
