//! Generations by one caller: how tokens are chosen, guessed and ended.

#[path = "../common/mod.rs"]
mod common;
mod draft;
mod generation;
mod mtp;
mod speculation;
mod stops;
mod thinking;
