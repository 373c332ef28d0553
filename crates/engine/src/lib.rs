#![doc = include_str!("../README.md")]

pub mod error;

pub use error::{Error, Result};
