//! The shapes of the parts of a table: windows, rotation, experts, layers with a state, evidence of variants, refusals, factors.

use super::{Key, Role};
use crate::block::{ExpertInput, RouterScore};
use crate::spec::StateMixer;

/// How a stored sliding window is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
#[non_exhaustive]
pub enum Window {
    /// Every layer has the window.
    Honoured,
    /// Every layer has the window in these model types; in others and in GGUF no layer has it. Then the default window,
    /// with its source.
    OfModelTypes(&'static [&'static str], (u64, &'static str)),
    /// Some layers have the window.
    Pattern(WindowPattern),
    /// Layers have a window where this `flag` of `config.json` is on, or without one always; in GGUF a window is
    /// refused. Where neither `layer_types` nor `max_window_layers` lists them, they are the layers `from` this one on,
    /// or all; `source` is the source of that, and of the default window of 4096 positions.
    Flagged { flag: &'static str, from: Option<u64>, source: &'static str },
    /// Windows are chunks of this `size`, with its source, unless the `key` of `config.json` gives another, in the layers that
    /// `layer_types` names so or else in those that rotate. In GGUF a window of 0 is none.
    Chunks { key: &'static str, size: u64, source: &'static str },
    /// Ignored in `config.json`, where its own flag is off; in GGUF a window is refused.
    Unused,
}

/// Windows in some layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPattern {
    /// Every how many layers one has no window, where no key says it; 0 where all have one.
    pub full_every: usize,
    /// Whether layers have one in `config.json` only where `layer_types` says so.
    pub config_listed_only: bool,
    /// The key of `config.json` for that number, in addition to `layer_types`; empty where transformers reads none.
    pub config_key: &'static str,
    /// The default window in `config.json`.
    pub config_default: u64,
    /// The default window in GGUF files; 0 for none.
    pub gguf_default: u64,
    /// The source of these defaults.
    pub source: &'static str,
    /// Model types that have windows; the others have none.
    pub model_types: &'static [&'static str],
    /// Whether the last layer has no window, whatever `config.json` says.
    pub last_is_full: bool,
    /// Whether the first layer of each group has no window, in place of the last.
    pub first_is_full: bool,
    /// Whether groups begin after the dense layers in front, which have no window.
    pub after_dense: bool,
}

/// A table to start from: every other layer has a window, if a file says which.
pub(super) const PATTERN: WindowPattern = WindowPattern {
    full_every: 2,
    config_listed_only: false,
    config_key: "",
    config_default: 4096,
    gguf_default: 0,
    source: "",
    model_types: &[],
    last_is_full: false,
    first_is_full: false,
    after_dense: false,
};

/// The rotation of layers with a window, which is without scaling.
#[derive(Clone, Copy, Debug)]
pub struct WindowRope {
    /// The key of the rotary base.
    pub key: Key,
    /// The base where no key gives it, with its source; `None` for the base of the other layers.
    pub default_theta: Option<(f64, &'static str)>,
}

/// Layers that do not rotate queries and keys.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Unrotated {
    /// The layers that the `list` of `config.json` has as 0, in place of 1; without the list one of every so many, by the key
    /// `interval` of `config.json`, or by the default, with its source.
    Listed { list: &'static str, interval: &'static str, default_interval: (usize, &'static str) },
    /// The layers whose base in this `list` of `config.json` is 0 or false in this list of `gguf`, which may be empty. Without the
    /// list all layers rotate, or if `windowed` those with a window.
    Bases { list: &'static str, gguf: &'static str, windowed: bool },
    /// Layers without a window, `but_dense` not those without experts; where no layer has a window, all layers, or
    /// `unless_all` none.
    WithoutWindow { unless_all: bool, but_dense: bool },
}

/// A scale of queries that grows with their position.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum QueryScaling {
    /// In layers that rotate: by this key, within the rope parameters of `config.json`, in each original context.
    Rotated(Key),
    /// In layers that do not rotate, unless this `flag` of `config.json` is false: by the key `beta` in each `period`, with
    /// their defaults and the source of all; in GGUF by these defaults.
    Unrotated { flag: &'static str, beta: (&'static str, f64), period: (&'static str, u64), source: &'static str },
}

/// Which models of a family are encoders: a token attends to all of its text. Other decoders refuse files that say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Encoder {
    /// None.
    No,
    /// All. GGUF files have to say so, or llama.cpp takes them for decoders, unless `by_name` the architecture does.
    Yes { by_name: bool },
    /// Those whose key `is_causal`, in GGUF `attention.causal`, is false. A window is then as many positions to either side.
    UnlessCausal,
    /// Those in which this flag of `config.json` is true, and all in GGUF.
    Flag(&'static str),
}

/// Sizes of attention in layers without a window, where they differ from those in layers with one. In GGUF the plain keys are for
/// layers without a window and keys ending in `_swa` for layers with one; in `config.json` the plain keys are for layers with one.
#[derive(Clone, Copy, Debug)]
pub struct FullAttention {
    /// The key of `config.json` for the elements of a head, and its default, with its source.
    pub head_dim: (&'static str, usize, &'static str),
    /// The key of `config.json` for key and value heads, used where keys are values; absent it changes nothing.
    pub kv_heads: &'static str,
    /// The flag of `config.json` under which their keys, before norm and rotation, are also their values. In GGUF this
    /// holds where no tensor of values is stored.
    pub keys_are_values: &'static str,
}

/// Several residual streams (AltUp, arXiv 2301.13310), each predicted before a block and corrected by what it puts out.
#[derive(Clone, Copy, Debug)]
pub struct AltUpTable {
    /// The key of their number.
    pub streams: Key,
    /// The default of that number, with its source.
    pub default: (usize, &'static str),
    /// The flag of `config.json` under which the corrected stream is scaled before it gates a layer's embedding, true if
    /// absent. In GGUF it always is.
    pub scaled: &'static str,
}

/// Gates that are cut to the largest ones, as if they were distributed normally.
#[derive(Clone, Copy, Debug)]
pub struct SparseGates {
    /// The key of the list of the part that is cut in each layer; in GGUF of deviations above the mean.
    pub list: Key,
    /// The number of the first layers that are cut where `config.json` has no list and more layers, and the part, with the source.
    pub default: (usize, f64, &'static str),
}

/// What norms of queries and keys are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// A head, with one weight for all heads.
    OfHead,
    /// A head, with a weight for each: `[heads, head_dim]`.
    OfEachHead,
    /// All heads together.
    OfAllHeads,
}

/// What a gate of attention's output by a matrix of its own is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateWidth {
    /// All elements of a head.
    Head,
    /// One element.
    Element,
    /// What this key of `config.json` says: `per-head` or true, or `per-element`; in GGUF what the tensor is wide enough for.
    Keyed(&'static str),
}

/// Whether attention and feed-forward layer read the same normalized input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// In no model.
    No,
    /// In every model.
    Yes,
    /// Where this flag is true; in GGUF where no norm of the feed-forward layer is stored, as in llama.cpp.
    Flag(&'static str),
    /// Unless this flag is false.
    UnlessFlag(Key),
}

/// The experts of a family's feed-forward layers.
#[derive(Clone, Copy, Debug)]
pub struct ExpertTable {
    /// The flag of `config.json` that turns experts on; GGUF files have experts where their number is stored.
    pub flag: Option<&'static str>,
    /// Number of experts of a layer; the first key that is present counts.
    pub count: &'static [Key],
    /// Whether a number of 0, or in GGUF an absent one, means a model without experts.
    pub optional: bool,
    /// Number of experts chosen for a token.
    pub chosen: Key,
    /// Width of an expert; `None` means the family's own feed-forward width.
    pub feed_forward: Option<Key>,
    /// Width of the shared expert, which every token uses, where there is one.
    pub shared_feed_forward: Option<Key>,
    /// The number of experts that every token uses, which are stored as one: its width is that of so many where no key
    /// gives it.
    pub shared_count: Option<Key>,
    /// The factor of all experts' sum where one of them is shared.
    pub with_shared: f32,
    /// How the router's outputs become weights where files do not say it.
    pub score: RouterScore,
    /// The scores that files may say, and the key of their names in `config.json`, where the first is the default. GGUF
    /// has numbers for them.
    pub scores: Option<(&'static str, &'static [(&'static str, RouterScore)])>,
    /// Groups of experts, of which the best are chosen first, where there are any.
    pub groups: Option<GroupTable>,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalized: Normalized,
    /// The number that is added to the sum before the division.
    pub added_to_sum: f32,
    /// The least number by which they are divided.
    pub least_sum: f32,
    /// Whether safetensors files have all experts of a layer in one parameter, gate and up interleaved: floats
    /// `[experts, inputs, outputs]`, or MXFP4 as blocks and scales.
    pub interleaved: bool,
    /// Whether safetensors files have one parameter of all experts of a layer by inputs, `[experts, inputs, outputs]`.
    pub by_inputs: ByInputs,
    /// Whether the router's outputs are divided by the square root of the width.
    pub by_root_of_width: bool,
    /// What experts and their router read.
    pub input: ExpertInput,
    /// Keys that say which layers are dense.
    pub dense_layers: Option<DenseLayers>,
}

/// Whether the parameter of all experts of a layer is by inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByInputs {
    /// It is not.
    No,
    /// Its shape says it.
    Some,
    /// It is.
    All,
}

/// Whether the weights of the chosen experts are divided by their sum.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Normalized {
    /// The same in every model of the family.
    Fixed(bool),
    /// The value of the flag `config` of `config.json`, with transformers' default if absent; in GGUF what llama.cpp
    /// does for the architecture.
    Flag { config: &'static str, absent: bool, gguf: bool },
}

/// Groups of experts: a token's experts are of the groups with the best scores.
#[derive(Clone, Copy, Debug)]
pub struct GroupTable {
    /// The number of groups.
    pub count: Key,
    /// The number of groups whose experts may be chosen.
    pub chosen: Key,
    /// Scores of experts whose sum is the score of a group: the best so many.
    pub best: usize,
    /// The key of `config.json` for the method, and its texts for experts without and with groups; absent is without.
    pub method: Option<(&'static str, [&'static str; 2])>,
}

/// Keys that say which layers are dense.
#[derive(Clone, Copy, Debug)]
pub struct DenseLayers {
    /// How many layers in front are dense: none where a GGUF file does not say it.
    pub first: Key,
    /// That number where `config.json` does not say it, with the source.
    pub config_first: (usize, &'static str),
    /// Layer `i`, from 0, is dense unless this number divides `i + 1`.
    pub step: Key,
    /// The key of `config.json` for the last layer with experts; -1 is the last of all.
    pub last: &'static str,
    /// The key of `config.json` for a list of dense layers.
    pub list: &'static str,
    /// The key of `config.json` for a list of all other layers, which counts before the others.
    pub others: &'static str,
    /// The key of `config.json` for a list that says `dense` or `sparse` of each layer, and counts before `first`.
    pub kinds: &'static str,
    /// Whether dense are in GGUF files the layers without a router.
    pub gguf_without_router: bool,
    /// Dense are all layers but one in each of these groups, where `config.json` says the place.
    pub place: Option<PlaceOfLayers>,
}

/// A table to start from: no layer is dense.
pub(crate) const DENSE: DenseLayers = DenseLayers {
    first: Key::gguf(""),
    config_first: (0, ""),
    step: Key::gguf(""),
    last: "",
    list: "",
    others: "",
    kinds: "",
    gguf_without_router: false,
    place: None,
};

/// Layers that keep a recurrent state in place of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct StateTable {
    /// What these layers compute.
    pub mixer: StateMixer,
    /// The names of these layers in the `layer_types` of `config.json`.
    pub layer_types: &'static [&'static str],
    /// The names of all other layers there.
    pub attention: &'static [&'static str],
    /// Which layers they are where that list is absent, and in GGUF.
    pub layers: StateLayers,
    /// Positions that the convolution depends on, the current one included.
    pub kernel: Key,
    /// Norms that only these layers have.
    pub own_norms: &'static [Role],
    /// Norms that only the other layers have.
    pub other_norms: &'static [Role],
}

/// One layer of every so many, by two keys of `config.json`, each with its default, and the source of these.
#[derive(Clone, Copy, Debug)]
pub struct PlaceOfLayers {
    /// Every how many layers there is one.
    pub every: (&'static str, usize),
    /// Its number among these, from 0.
    pub at: (&'static str, usize),
    /// The source of the defaults.
    pub source: &'static str,
}

/// Which layers have a state.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum StateLayers {
    /// All layers but every n-th: by GGUF's list of flags, else by this key, else by the default with its source.
    AllButEvery { every: Key, list: &'static str, default: (usize, &'static str) },
    /// All layers but those that this list of `config.json` names; in GGUF the layers without heads of keys and values.
    AllButListed(&'static str),
    /// The layers whose numbers, from 1 on, this list `of_states` of `config.json` has, where the list `of_others` has all others; in
    /// GGUF the layers without heads of keys and values.
    Numbered { of_states: &'static str, of_others: &'static str },
    /// All layers, with the source of that; in GGUF the layers without heads of keys and values.
    All(&'static str),
    /// All layers but one in each group; in GGUF the layers without heads of keys and values.
    AllButAt(PlaceOfLayers),
    /// All layers, with attention next to it that reads the same input.
    Beside,
    /// All layers, which are nothing else.
    Only,
    /// Each layer is one sub-layer. `dense` and `experts` are the names in `layer_types` of those that are a feed-forward
    /// layer, `letters` the key of a text in its place, with a letter for each layer: for one with a state, attention,
    /// a dense layer, experts. In GGUF layers without heads of keys and values and without a feed-forward width have a state.
    Single { dense: &'static str, experts: &'static str, letters: (&'static str, [char; 4]) },
}

/// A feed-forward width that differs in `config.json` from the stored one (transformers `modeling_lfm2.py`, `Lfm2MLP`).
#[derive(Clone, Copy, Debug)]
pub struct AdjustedWidth {
    /// Another key of the width, which is read first.
    pub width: &'static str,
    /// The flag of the adjustment: absent is true, and then the width is two thirds of the key's.
    pub flag: &'static str,
    /// The factor of that; absent is 1.
    pub multiplier: &'static str,
    /// The number to a multiple of which the product is rounded up.
    pub multiple: &'static str,
    /// The default of that number, with its source.
    pub default_multiple: (usize, &'static str),
}

/// A variant and its evidence: one of the lists has to hold in full.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name in common use.
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
    /// Experts by sigmoids.
    SigmoidScores,
    /// Mamba whose steps, keys and queries are normalized without weights.
    PlainlyNormed,
    ModelType(&'static str),
    /// Any rope scaling, including a stored tensor of frequency factors.
    RopeScaled,
    Tied,
    /// A part of the model's own name (GGUF `general.name` or `general.basename`), lower case. Neither the file name
    /// nor the name of the folder that `config.json` was saved from is evidence.
    Name(&'static str),
}

/// A value of a key that is refused, and the feature that it asks for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Refused where this flag of `config.json` is set, this number is not 0, or this list is not empty.
    Set(&'static str, &'static str),
    /// Refused where this flag is false.
    Unset(Key, &'static str),
    /// Refused where this key has another number or text than one of these.
    Unless(Key, &'static [&'static str], &'static str),
    /// Refused where this key of `config.json` has this text.
    Text(&'static str, &'static str, &'static str),
    /// Refused where this key of `config.json` has another number than this key.
    Unlike(&'static str, Key, &'static str),
    /// A key that GGUF files must have in addition to the keys of sizes: its value cannot be known otherwise, and
    /// llama.cpp refuses such a file.
    AbsentGguf(&'static str),
}

/// A number that files of a family may have, and its default in each format; `None` where absence means no factor.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// What the number does.
    pub of: FactorOf,
    /// The key of the number, which may be one of a list of `config.json`: `key[0]`.
    pub key: Key,
    /// The default in GGUF files, with its source.
    pub gguf_default: Option<(f64, &'static str)>,
    /// The default in `config.json`, with its source. In every family `null` counts as no number.
    pub config_default: Option<(f64, &'static str)>,
}

/// What a factor or cap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FactorOf {
    /// The factor of the products of these matrices.
    Products(&'static [Role]),
    /// The factor of Mamba-2's values, keys or queries, which are 0, 1 and 2, before their convolution.
    StateInput(usize),
    /// The factor of the embedding's rows.
    Embedding,
    /// The factor of what a sub-layer adds to the residual stream.
    Residual,
    /// The same, divided by the square root of the number of layers.
    ResidualByRootOfLayers,
    /// The factor of products of queries and keys.
    Scores,
    /// A further factor of products of queries and keys.
    ScoresTimes,
    /// Products of queries and keys are divided by its square root.
    ScoresByRoot,
    /// The cap of scores: `cap * tanh(score / cap)`.
    ScoreCap,
    /// The factor of logits.
    Logits,
    /// The exponent of ALiBi's smallest slope. A table that has it has no rotation.
    Alibi,
    /// The limit of the elements of queries, keys and values.
    QkvLimit,
    /// The divisor of logits.
    LogitDivisor,
    /// The width of a model whose logits have no factor: those of a wider one are divided by as much as it is wider.
    LogitWidth,
    /// The cap of logits: `cap * tanh(logit / cap)`.
    LogitCap,
    /// The limit of a clamped gate and up, in place of the table's.
    GateLimit,
    /// The factor of a clamped gate within its sigmoid, in place of the table's.
    GateAlpha,
    /// The factor of the weights of chosen experts.
    Experts,
}
