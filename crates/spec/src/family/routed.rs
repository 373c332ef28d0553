//! The shape of a table's part on routed experts.

use super::Key;
use crate::block::RouterScore;

/// How the feed-forward layers of a family are divided into experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertTable {
    /// The flag of `config.json` without which there are none; in GGUF there are where their number is stored.
    pub flag: Option<&'static str>,
    /// Experts of a layer; the first key that is there counts.
    pub count: &'static [Key],
    /// Whether there are none where that is 0, or in GGUF absent.
    pub optional: bool,
    /// Experts that a token is given to.
    pub chosen: Key,
    /// Width of an expert; the family's own feed-forward width where this is `None`.
    pub feed_forward: Option<Key>,
    /// Width of the expert that every token is given to, where there is one.
    pub shared_feed_forward: Option<Key>,
    /// What the router's outputs become.
    pub score: RouterScore,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalized: Normalized,
    /// What is added to that sum.
    pub added_to_sum: f32,
    /// Whether safetensors files have all of a layer in one parameter, gate and up in turns: floats `[experts, inputs,
    /// outputs]`, or MXFP4 as blocks and scales.
    pub interleaved: bool,
    /// Whether the router's outputs are divided by the root of the width.
    pub by_root_of_width: bool,
    /// Keys that leave layers without experts.
    pub dense_layers: Option<DenseLayers>,
}

/// Whether the weights of the chosen experts are divided by their sum.
#[derive(Clone, Copy, Debug)]
pub enum Normalized {
    /// In every model of the family, or in none.
    Fixed(bool),
    /// As a flag of `config.json` says; in GGUF as llama.cpp computes the architecture.
    Flag {
        /// The flag.
        config: &'static str,
        /// What its absence means, by the default of transformers.
        absent: bool,
        /// What holds in GGUF.
        gguf: bool,
    },
}

/// Keys that leave layers without experts.
#[derive(Clone, Copy, Debug)]
pub enum DenseLayers {
    /// Keys of `config.json`; GGUF has none for them.
    Listed {
        /// Layer `i`, from 0, has experts where this divides `i + 1`.
        step: &'static str,
        /// A list of layers without.
        list: &'static str,
    },
    /// The first so many have none.
    First {
        /// How many; none where a GGUF file does not say it.
        count: Key,
        /// How many where `config.json` does not say it, with its source.
        config_default: (usize, &'static str),
    },
}
