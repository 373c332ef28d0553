//! The shape of a table's part on layers that keep a state in place of keys and values.

use super::Key;
use crate::spec::StateMixer;

/// Layers that keep a state in place of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct StateTable {
    /// What they compute.
    pub mixer: StateMixer,
    /// What they are called in the `layer_types` of `config.json`.
    pub layer_types: &'static [&'static str],
    /// What all others are called there.
    pub attention: &'static [&'static str],
    /// Which they are where that list is absent, and in GGUF.
    pub layers: StateLayers,
    /// Positions that their convolution depends on, its own included.
    pub kernel: Key,
}

/// Which layers have a state.
#[derive(Clone, Copy, Debug)]
pub enum StateLayers {
    /// All but every so many.
    AllButEvery {
        /// The key of every how many.
        every: Key,
        /// The list of flags in GGUF, which comes before that.
        list: &'static str,
        /// Every how many where no key says it, with its source.
        default: (usize, &'static str),
    },
    /// All but those that this list of `config.json` names; in GGUF those without heads of keys and values.
    AllButListed(&'static str),
    /// All of them, with its source; in GGUF those without heads of keys and values.
    All(&'static str),
}

/// A feed-forward width that `config.json` does not give as it is stored (transformers `modeling_lfm2.py`, `Lfm2MLP`).
#[derive(Clone, Copy, Debug)]
pub struct AdjustedWidth {
    /// Another key of the width, which comes first.
    pub width: &'static str,
    /// The flag: absent is true, and then the width is two thirds of the key's.
    pub flag: &'static str,
    /// What that is multiplied by; absent is 1.
    pub multiplier: &'static str,
    /// What the product is rounded up to a multiple of.
    pub multiple: &'static str,
    /// That where no key says it, with its source.
    pub default_multiple: (usize, &'static str),
}
