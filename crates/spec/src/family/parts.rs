//! The shapes of the parts of a table: windows, rotation, experts, layers with a state, and evidence of variants.

use super::Key;
use crate::block::RouterScore;
use crate::spec::StateMixer;

/// What a stored sliding window means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
#[non_exhaustive]
pub enum Window {
    /// Every layer looks back that far and no further.
    Honoured,
    /// The same in these model types, and nothing in others and in GGUF. Then what it is where no key says it, with its
    /// source.
    OfModelTypes(&'static [&'static str], (u64, &'static str)),
    /// Some layers do.
    Pattern(WindowPattern),
    /// Layers have one where `use_sliding_window` of `config.json` is on; in GGUF one is refused. Where neither `layer_types` nor
    /// `max_window_layers` say it, they are those `from` this one on, or all; `source` is where that is known from, and that a
    /// window is of 4096 positions where no key says it.
    Flagged { from: Option<u64>, source: &'static str },
    /// Nothing in `config.json`, where its own flag is off; in GGUF one is refused.
    Unused,
}

/// Windows in some layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPattern {
    /// Every how many layers one has none, where no key says which.
    pub full_every: usize,
    /// The key of `config.json` that says so in addition to `layer_types`; empty where transformers reads none.
    pub config_key: &'static str,
    /// The window where `config.json` does not say it.
    pub config_default: u64,
    /// The window where a GGUF file does not say it; 0 for none.
    pub gguf_default: u64,
    /// Where that is known from.
    pub source: &'static str,
    /// Model types that have windows; the others have none.
    pub model_types: &'static [&'static str],
    /// Whether the last layer has none, whatever `config.json` says.
    pub last_is_full: bool,
    /// Whether it is the first of so many that has none, in place of the last.
    pub first_is_full: bool,
}

/// A table to start from: every other layer has a window, if a file says which.
pub(super) const PATTERN: WindowPattern = WindowPattern {
    full_every: 2,
    config_key: "",
    config_default: 4096,
    gguf_default: 0,
    source: "",
    model_types: &[],
    last_is_full: false,
    first_is_full: false,
};

/// How layers with a window rotate: without scaling.
#[derive(Clone, Copy, Debug)]
pub struct WindowRope {
    /// Their rotary base.
    pub key: Key,
    /// The base where no key gives it, with its source; `None` for that of the other layers.
    pub default_theta: Option<(f64, &'static str)>,
}

/// Layers that do not rotate queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct Unrotated {
    /// The list in `config.json`: 1 for each layer that does, 0 for one that does not.
    pub list: &'static str,
    /// The key in `config.json` for every how many layers one does not, without the list.
    pub interval: &'static str,
    /// Every how many layers one does not where no key says it, and in GGUF, with its source.
    pub default_interval: (usize, &'static str),
}

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
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Normalized {
    /// In every model of the family, or in none.
    Fixed(bool),
    /// As the flag `config` of `config.json` says, whose absence means what it does in transformers; in GGUF as llama.cpp
    /// computes the architecture.
    Flag { config: &'static str, absent: bool, gguf: bool },
}

/// Keys that leave layers without experts.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum DenseLayers {
    /// Those that the list of `config.json` names, and layer `i`, from 0, unless the number of its key `step` divides `i + 1`.
    /// GGUF has no keys for them.
    Listed { step: &'static str, list: &'static str },
    /// The first so many: where a GGUF file does not say it none, and where `config.json` does not the default, with its
    /// source.
    First { count: Key, config_default: (usize, &'static str) },
}

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
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum StateLayers {
    /// All but every so many: as GGUF's list of flags says or else this key, or the default with its source.
    AllButEvery { every: Key, list: &'static str, default: (usize, &'static str) },
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

/// A variant and the evidence that tells it: any of the lists, all of a list.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name people use.
    pub name: &'static str,
    /// Alternatives, each a list of facts that must all hold.
    pub any: &'static [&'static [Evidence]],
}

/// One fact about a model.
#[allow(missing_docs)] // of names that say it
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    Vocab(usize),
    Hidden(usize),
    Layers(usize),
    KvHeads(usize),
    Context(usize),
    /// Fewer key and value heads than query heads.
    GroupedQueries,
    Theta(f64),
    BosText(&'static str),
    EosText(&'static str),
    /// A part of the chat template.
    Template(&'static str),
    /// The GGUF pre-tokenizer.
    Pre(&'static str),
    /// The factor of the rope scaling in `config.json`.
    RopeFactor(f64),
    /// The first of longrope's long factors in `config.json`.
    LongFactor(f64),
    Windowed,
    ModelType(&'static str),
    /// Any rope scaling, a stored tensor of frequency factors included.
    RopeScaled,
    Tied,
    /// A part of the model's own name (GGUF `general.name` or `general.basename`), lower case. Neither the file name nor
    /// the folder that `config.json` was saved from is evidence.
    Name(&'static str),
}
