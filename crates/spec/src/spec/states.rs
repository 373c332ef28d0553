//! Layers with a state: their sizes by the family's keys, and their tensors.

mod which;

use super::reader::{Reader, missing};
use super::tensors::Tensors;
use super::{
    ConvWeights, DeltaInput, DeltaNetWeights, KeySharing, MambaWeights, Mixer, Norm, NormWeights, SecondProjections,
    SelectionWeights, ShortConvWeights,
};
use crate::error::Result;
use crate::family::{AdjustedWidth, Key, Role, StateTable};
use crate::header::TensorInfo;
use serde_json::Value;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateSizes {
    /// Heads of queries and keys of a delta net; groups of Mamba-2.
    pub(super) key_heads: usize,
    /// Heads of values.
    pub(super) value_heads: usize,
    /// Elements of a query or a key.
    pub(super) key_dim: usize,
    /// Elements of a value.
    pub(super) value_dim: usize,
    /// Elements of the norm of the output.
    pub(super) normed: usize,
    /// Channels of the convolution.
    pub(super) channels: usize,
    /// Positions that an output of the convolution depends on.
    pub(super) kernel: usize,
    /// Elements of what Mamba's steps are made of; 0 of other layers.
    pub(super) rank: usize,
    /// Whether each element of a state has a decay.
    pub(super) by_element: bool,
    /// Whether each element of a key has a decay.
    pub(super) by_channel: bool,
}

impl StateSizes {
    pub(super) fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

/// What layers with a state compute.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StateMixer {
    /// A gated delta net.
    DeltaNet(DeltaNetKeys),
    /// A gated convolution of the last few positions.
    ShortConv,
    /// Mamba, whose steps, keys and queries are made of its convolved values.
    Mamba(MambaKeys),
    /// Mamba-2, by the keys of its sizes.
    Mamba2 {
        /// The key of the number of heads.
        heads: Key,
        /// The key of the number of groups of heads that share keys and queries.
        groups: Key,
        /// The key of the elements of a key or a query.
        state_dim: Key,
        /// The key of the elements of a value in `config.json`, if they are not a text.
        head_dim: &'static str,
        /// The key of the elements of all values together: in GGUF their number, in `config.json` a multiple of the width; empty
        /// where only `head_dim` gives their number.
        inner: Key,
        /// The key of the shortest and the longest step in `config.json`; absent or null, and in GGUF, there are no limits.
        step_limit: &'static str,
        /// Where the output has a norm in some models alone: the flag of `config.json` for it, false if absent, and the one
        /// that puts it before the gate, true if absent. In GGUF whether the tensor is stored says it.
        norm: Option<[&'static str; 2]>,
    },
}

/// The keys of a gated delta net's sizes.
#[derive(Clone, Copy, Debug)]
pub struct DeltaNetKeys {
    /// The key of the number of heads of queries and keys.
    pub key_heads: Key,
    /// The key of the number of heads of values.
    pub value_heads: Key,
    /// The key of the elements of a query or a key.
    pub key_dim: Key,
    /// The key of the elements of a value in `config.json`, and of all values together in GGUF; or `key_dim`, where a value has as
    /// many elements as a key.
    pub values: Key,
    /// Which value heads share a key head in GGUF; in safetensors adjacent ones do.
    pub gguf_sharing: KeySharing,
    /// The flag of `config.json` under which strengths of corrections are up to 2, not 1, and its default, with its source.
    pub doubled: Option<(&'static str, bool, &'static str)>,
    /// The epsilon of the output's norm, where it is not that of the model's norms.
    pub norm_eps: Option<f64>,
    /// Whether each element of a key has a decay, as in Kimi delta attention. Gates and decays have two projections each there, with
    /// as many elements between as a key has, and heads of keys are those of values.
    pub by_channel: bool,
}

/// The keys of Mamba's sizes.
#[derive(Clone, Copy, Debug)]
pub struct MambaKeys {
    /// The key of the number of heads that have a decay each; `None` where each element of a state has one.
    pub heads: Option<Key>,
    /// The key of the elements of what steps are made of: in `config.json` `auto` is a sixteenth of the width, rounded up. `None` is
    /// a sixteenth of the width, but 64 at least (`modeling_plamo.py` of PLaMo 2).
    pub rank: Option<Key>,
    /// The key of the elements of a key or a query.
    pub state_dim: Key,
    /// The key of the elements of all values together: in GGUF their number, in `config.json` a multiple of the width.
    pub inner: Key,
    /// Norms without weights, in models that have them.
    pub plain_norms: Option<PlainNorms>,
}

/// Norms without weights of what steps are made of, of keys and of queries.
#[derive(Clone, Copy, Debug)]
pub struct PlainNorms {
    /// The flag of GGUF files for them.
    pub flag: &'static str,
    /// The `model_type` that has them.
    pub model_type: &'static str,
    /// The key of `config.json` for their epsilon, and its default, with its source.
    pub eps: (&'static str, f64, &'static str),
}

/// Steps of any length.
const NO_LIMIT: [f64; 2] = [0.0, f64::INFINITY];

/// What a delta net reads of its input, where each has a matrix.
const QKVZ: &[Role] = &[Role::DeltaQkv, Role::DeltaQ, Role::DeltaK, Role::DeltaV, Role::StateGate, Role::StateGateDown];

/// How much it corrects and decays.
const BETA_ALPHA: &[Role] = &[Role::DeltaBeta, Role::DeltaAlpha, Role::DeltaAlphaDown];

/// Kernel sizes: a convolution over one position has no state, and none is as long as the end of this range.
const KERNELS: std::ops::RangeInclusive<usize> = 2..=1024;

impl Reader<'_> {
    /// The sizes of the family's layers with a state. Each is below 2^31, so that no sum of products exceeds a u64.
    pub(super) fn state_sizes(&self, hidden: usize) -> Result<Option<StateSizes>> {
        let Some(StateTable { mixer, kernel: key, .. }) = self.family.block.states else { return Ok(None) };
        let require = |key: Key| self.size_or_table(key);
        let inner = |key: Key| match self.is_gguf() {
            true => require(key),
            false => self.bounded(key.config, (require(key)? as u64).saturating_mul(hidden as u64)),
        };
        let kernel = require(key)?;
        if !KERNELS.contains(&kernel) {
            let expected = format!("a number between {} and {}", KERNELS.start(), KERNELS.end());
            return Err(self.value(&self.key(key), kernel, expected));
        }
        let sizes = match mixer {
            StateMixer::ShortConv => {
                return Ok(Some(StateSizes { channels: hidden, kernel, ..StateSizes::default() }));
            }
            StateMixer::DeltaNet(keys) => {
                let (key_heads, value_heads) = (require(keys.key_heads)?, require(keys.value_heads)?);
                let (key_dim, values) = (require(keys.key_dim)?, require(keys.values)?);
                let value_dim = match self.is_gguf() && keys.values != keys.key_dim {
                    true => self.part(keys.value_heads, value_heads, keys.values, values)?,
                    false => values,
                };
                self.part(keys.key_heads, key_heads, keys.value_heads, value_heads)?;
                let (normed, by_channel) = (value_dim, keys.by_channel);
                let rest = StateSizes { by_channel, ..StateSizes::default() };
                StateSizes { key_heads, value_heads, key_dim, value_dim, normed, kernel, ..rest }
            }
            StateMixer::Mamba(MambaKeys { heads, rank, state_dim, inner: key, .. }) => {
                let values = inner(key)?;
                let value_heads = heads.map_or(Ok(values), require)?;
                return Ok(Some(StateSizes {
                    key_heads: 1,
                    value_heads,
                    key_dim: require(state_dim)?,
                    value_dim: self.part(heads.unwrap_or(key), value_heads, key, values)?,
                    normed: values,
                    channels: values,
                    kernel,
                    rank: self.step_rank(rank, hidden)?,
                    by_element: heads.is_none(),
                    by_channel: false,
                }));
            }
            StateMixer::Mamba2 { heads, groups, state_dim, head_dim, inner: key, .. } => {
                let (value_heads, key_heads) = (require(heads)?, require(groups)?);
                let key_dim = require(state_dim)?;
                let normed = match (self.is_gguf(), key.config) {
                    (false, "") => {
                        let value_dim = require(Key::config(head_dim))?;
                        self.bounded(head_dim, (value_heads as u64).saturating_mul(value_dim as u64))?
                    }
                    _ => inner(key)?,
                };
                let value_dim = self.part(heads, value_heads, key, normed)?;
                self.part(groups, key_heads, heads, value_heads)?;
                self.check_head_dim(head_dim, value_dim)?;
                StateSizes { key_heads, value_heads, key_dim, value_dim, normed, kernel, ..StateSizes::default() }
            }
        };
        // The convolution is over keys, queries and values.
        let channels = 2 * sizes.key_heads * sizes.key_dim + sizes.values();
        Ok(Some(StateSizes { channels, ..sizes }))
    }

    /// Elements of what the steps of Mamba are made of.
    fn step_rank(&self, key: Option<Key>, hidden: usize) -> Result<usize> {
        const PART: usize = 16;
        let Some(key) = key else { return Ok((hidden / PART).max(64)) };
        let name = self.key(key);
        let text = self.config.and_then(|config| config.object().get(&name)).and_then(Value::as_str);
        let stored = if text == Some("auto") { Some(hidden.div_ceil(PART)) } else { self.size(key)? };
        match stored {
            None if !self.is_gguf() => Ok(self.or_default(None, &name, (hidden.div_ceil(PART), &self.class_default()))),
            stored => self.present(key, stored),
        }
    }

    /// The part of `found` for each of `several`, which must divide it.
    pub(super) fn part(&self, several: Key, count: usize, whole: Key, found: usize) -> Result<usize> {
        if found.is_multiple_of(count) {
            return Ok(found / count);
        }
        let (one, other) = (self.key(whole), self.key(several));
        Err(self.contradiction(format!("{one} is {found}"), format!("{other} is {count}, no divisor of it")))
    }

    /// Refuses a head size that differs from the one that follows from the others; a text counts as none.
    fn check_head_dim(&self, key: &str, head_dim: usize) -> Result<()> {
        let stored = self.config.and_then(|config| config.object().get(key));
        if self.is_gguf() || stored.is_none_or(|stored| stored.is_null() || stored.as_str() == Some("auto")) {
            return Ok(());
        }
        match self.fields().unsigned(key)? {
            Some(found) if found != head_dim as u64 => {
                Err(self.contradiction(format!("{key} is {found}"), format!("the other keys make it {head_dim}")))
            }
            _ => Ok(()),
        }
    }

    /// The epsilon of norms without weights, in models that have them.
    fn plain_norms(&self, norms: &PlainNorms) -> Result<Option<f64>> {
        let &PlainNorms { flag, model_type, eps: (key, default, source) } = norms;
        if self.is_gguf() {
            let flag = self.fields().boolean(&self.gguf_key(flag))?;
            return Ok(flag.unwrap_or(false).then(|| self.or_default(None, key, (default, source))));
        }
        if self.model_type.as_deref() != Some(model_type) {
            return Ok(None);
        }
        let eps = self.or_default(self.fields().number(key)?, key, (default, source));
        if eps > 0.0 && eps < 1.0 {
            Ok(Some(eps))
        } else {
            Err(self.value(key, eps, "a number between 0 and 1".into()))
        }
    }

    /// The shortest and the longest step of Mamba-2, which only `config.json` may give.
    fn step_limit(&self, key: &str) -> Result<[f64; 2]> {
        let Some(stored) = self.config.and_then(|config| config.object().get(key)) else { return Ok(NO_LIMIT) };
        // transformers 5 writes `{"__float__": "Infinity"}`.
        let number = |entry: &Value| match entry.get("__float__").and_then(Value::as_str) {
            Some("Infinity") => Some(f64::INFINITY),
            _ => entry.as_f64(),
        };
        let limit = stored.as_array().map(|list| list.iter().map(number).collect::<Vec<_>>());
        match limit.as_deref() {
            None if stored.is_null() => Ok(NO_LIMIT),
            Some([Some(least), Some(most)]) if *least >= 0.0 && least.is_finite() && least <= most => {
                Ok([*least, *most])
            }
            _ => Err(self.value(key, stored, "two numbers from 0 on, the lesser first and finite".into())),
        }
    }

    /// The stored feed-forward width, computed from the one in `config.json`.
    pub(super) fn adjusted_width(&self, rule: &AdjustedWidth, width: Option<usize>) -> Result<Option<usize>> {
        let Some(width) = self.size(Key::config(rule.width))?.or(width).filter(|_| !self.is_gguf()) else {
            return Ok(width);
        };
        if !self.fields().boolean(rule.flag)?.unwrap_or(true) {
            return Ok(Some(width));
        }
        let part = 2 * width / 3;
        let multiplier = match self.fields().number(rule.multiplier)? {
            // null also means no rounding.
            None if self.is_null(rule.multiplier) => return Ok(Some(part)),
            None => 1.0,
            Some(multiplier) if multiplier > 0.0 && multiplier <= 1e3 => multiplier,
            Some(multiplier) => {
                return Err(self.value(rule.multiplier, multiplier, "a number above 0 and up to 1000".into()));
            }
        };
        let multiple = self.size(Key::config(rule.multiple))?;
        let multiple = self.or_default(multiple, rule.multiple, rule.default_multiple);
        // Rounded down, like `int()` in transformers, and then up to the multiple.
        let width = (part as f64 * multiplier) as usize;
        self.bounded(rule.width, width.next_multiple_of(multiple) as u64).map(Some)
    }

    /// How many of all blocks belong to the decoder and do not predict further tokens.
    pub(super) fn without_predictors(&self, blocks: usize) -> Result<usize> {
        let Some(key) = self.family.head.predictors.map(|key| self.key(key)) else { return Ok(blocks) };
        let predictors = self.fields().unsigned(&key)?.unwrap_or(0);
        if predictors == 0 || !self.is_gguf() {
            return Ok(blocks);
        }
        match usize::try_from(predictors).ok().and_then(|predictors| blocks.checked_sub(predictors)) {
            None | Some(0) => Err(self.contradiction(
                format!("{} is {blocks}", self.key(self.family.files.keys.layers)),
                format!("{key} is {predictors}, which leaves no layer of the decoder"),
            )),
            Some(layers) => Ok(layers),
        }
    }

    /// The number of layers after the others in safetensors files that predict further tokens.
    pub(super) fn predictors_after(&self) -> Result<usize> {
        let after = self.family.head.predictors.filter(|_| self.family.head.predictors_after && !self.is_gguf());
        let count = after.map_or(Ok(None), |key| self.fields().unsigned(&self.key(key)))?;
        // Only numbers of layers are compared with it.
        Ok(count.map_or(0, |count| count.min(i32::MAX as u64) as usize))
    }
}

impl Tensors<'_> {
    fn states(&self) -> Result<StateSizes> {
        let key = self.family.block.states.map(|states| self.reader.key(states.kernel)).unwrap_or_default();
        self.sizes.states.ok_or_else(|| missing(self.reader.fields(), &key, "a layer has a state"))
    }

    pub(super) fn state_mixer(&mut self, mixer: StateMixer, layer: Option<usize>) -> Result<Mixer> {
        match mixer {
            StateMixer::DeltaNet(DeltaNetKeys { gguf_sharing, doubled, norm_eps, by_channel, .. }) => {
                let StateSizes { key_heads, value_heads, key_dim, value_dim, .. } = self.states()?;
                let gguf = self.reader.is_gguf();
                Ok(Mixer::DeltaNet(Box::new(DeltaNetWeights {
                    key_heads,
                    value_heads,
                    key_dim,
                    value_dim,
                    sharing: if gguf { gguf_sharing } else { KeySharing::Neighbours },
                    qkvz: self.delta_input(Role::DeltaQkvz, QKVZ, layer)?,
                    ba: self.delta_input(Role::DeltaBetaAlpha, BETA_ALPHA, layer)?,
                    second: if by_channel { Some(Box::new(self.second_projections(key_dim, layer)?)) } else { None },
                    conv: self.conv(layer)?,
                    strength: self.strength(doubled)?,
                    dt_bias: self.whole_name(Role::StateStepBias, layer)?,
                    decay: self.whole_name(Role::StateDecay, layer)?,
                    // The GGUF converter stores -exp(A_log).
                    decay_is_log: !gguf,
                    norm: self.norm_with(Role::StateNorm, layer, norm_eps.unwrap_or(self.options.norm_eps))?,
                    out: self.matrix(Role::StateOut, layer)?,
                })))
            }
            StateMixer::Mamba(keys) => {
                let StateSizes { value_heads: heads, key_dim, value_dim, rank, by_element, .. } = self.states()?;
                let gate = if self.names(Role::StateGate) { Some(self.matrix(Role::StateGate, layer)?) } else { None };
                let decay = if by_element { self.decays(layer)? } else { self.whole_name(Role::StateDecay, layer)? };
                Ok(Mixer::Mamba(Box::new(MambaWeights {
                    heads,
                    groups: 1,
                    head_dim: value_dim,
                    state_dim: key_dim,
                    step_limit: NO_LIMIT,
                    input: self.matrix(Role::MambaInput, layer)?,
                    gate,
                    step: self.matrix(Role::MambaStep, layer)?,
                    selection: Some(Box::new(self.selection(rank, keys.plain_norms, layer)?)),
                    conv: self.conv(layer)?,
                    step_bias: self.whole_name(Role::StateStepBias, layer)?,
                    decay,
                    by_element,
                    decay_is_log: !self.reader.is_gguf(),
                    skip: self.whole_name(Role::MambaSkip, layer)?,
                    norm: None,
                    out: self.matrix(Role::StateOut, layer)?,
                })))
            }
            StateMixer::Mamba2 { step_limit, norm, .. } => {
                let StateSizes { key_heads: groups, value_heads: heads, key_dim, value_dim, .. } = self.states()?;
                Ok(Mixer::Mamba(Box::new(MambaWeights {
                    heads,
                    groups,
                    head_dim: value_dim,
                    state_dim: key_dim,
                    step_limit: self.reader.step_limit(step_limit)?,
                    input: self.matrix(Role::MambaInput, layer)?,
                    gate: Some(self.matrix(Role::StateGate, layer)?),
                    step: self.matrix(Role::MambaStep, layer)?,
                    selection: None,
                    conv: self.conv(layer)?,
                    step_bias: self.whole_name(Role::StateStepBias, layer)?,
                    by_element: false,
                    decay: self.column(Role::StateDecay, layer)?,
                    decay_is_log: !self.reader.is_gguf(),
                    skip: self.column(Role::MambaSkip, layer)?,
                    norm: if self.norms_output(norm, layer)? { Some(self.grouped_norm(groups, layer)?) } else { None },
                    out: self.matrix(Role::StateOut, layer)?,
                })))
            }
            StateMixer::ShortConv => Ok(Mixer::ShortConv(Box::new(ShortConvWeights {
                bcx: self.matrix(Role::ConvIn, layer)?,
                conv: self.conv(layer)?,
                out: self.matrix(Role::ConvOut, layer)?,
            }))),
        }
    }

    /// The matrix of role `both` if the file has it, or if the format has no other; else the matrices of each role.
    fn delta_input(&mut self, both: Role, each: &[Role], layer: Option<usize>) -> Result<DeltaInput> {
        let stored = self.stores(&self.weight_name(both, layer));
        let each: Vec<Role> = each.iter().copied().filter(|role| self.names(*role)).collect();
        let apart = each.first().is_some_and(|first| !self.stem(*first, layer).is_empty());
        Ok(if self.names(both) && (stored || !apart) {
            DeltaInput::ByKeyHead(Box::new(self.matrix(both, layer)?))
        } else {
            DeltaInput::Apart(each.into_iter().map(|role| self.matrix(role, layer)).collect::<Result<_>>()?)
        })
    }

    fn second_projections(&mut self, rank: usize, layer: Option<usize>) -> Result<SecondProjections> {
        let gate = self.matrix(Role::StateGateUp, layer)?;
        Ok(SecondProjections { rank, gate, alpha: self.matrix(Role::DeltaAlphaUp, layer)? })
    }

    /// The greatest strength of a correction.
    fn strength(&self, doubled: Option<(&'static str, bool, &'static str)>) -> Result<f32> {
        let Some((flag, default, source)) = doubled.filter(|_| !self.reader.is_gguf()) else { return Ok(1.0) };
        let doubled = self.reader.or_default(self.reader.flag(flag)?, flag, (default, source));
        Ok(if doubled { 2.0 } else { 1.0 })
    }

    /// The convolution, which transformers stores with an extra dimension, as each channel has one input.
    fn conv(&mut self, layer: Option<usize>) -> Result<ConvWeights> {
        let apart = [Role::ConvQ, Role::ConvK, Role::ConvV];
        let roles = if self.names(Role::ConvQ) { &apart[..] } else { &[Role::Conv] };
        let StateSizes { channels: all, kernel, .. } = self.states()?;
        let (mut weights, mut ends) = (Vec::new(), Vec::new());
        for &role in roles {
            let (channels, kernel) = (self.shape(role, layer).0, kernel as u64);
            // transformers 5.23 writes three equal parts, whatever the widths of keys and values.
            let name = self.weight_name(role, layer);
            let rows = self.table.get(&name).and_then(|tensor| tensor.shape.first().copied());
            let even = roles.len() > 1 && rows.is_some_and(|rows| rows.checked_mul(3) == Some(all as u64));
            let channels = if even { all as u64 / 3 } else { channels };
            let shape = match self.reader.is_gguf() {
                true => self.with_ones(&name, &[channels, kernel]),
                false => vec![channels, 1, kernel],
            };
            let stored = self.floats(role, layer, &name, &shape)?;
            weights.push(TensorInfo { shape: vec![channels, kernel], ..stored });
            ends.push(ends.last().map_or(0, |end| *end) + channels as usize);
        }
        if ends.last() != Some(&all) {
            let expected = format!("{all} channels of queries, keys and values");
            return Err(self.reader.contradiction(format!("convolutions of {ends:?} channels in all"), expected));
        }
        Ok(ConvWeights { weights, ends, bias: self.bias(Role::Conv, layer)?, channels: all, kernel })
    }

    /// What makes Mamba's steps, keys and queries.
    fn selection(&mut self, rank: usize, plain: Option<PlainNorms>, layer: Option<usize>) -> Result<SelectionWeights> {
        let matrices = [Role::MambaRank, Role::MambaKey, Role::MambaQuery].map(|role| self.matrix(role, layer));
        let norms = [Role::MambaRankNorm, Role::MambaKeyNorm, Role::MambaQueryNorm];
        let norms = norms.map(|role| self.norm_if_named(role, layer).transpose());
        Ok(SelectionWeights {
            rank,
            matrices: matrices.into_iter().collect::<Result<_>>()?,
            norms: norms.into_iter().flatten().collect::<Result<_>>()?,
            norm_eps: plain.map_or(Ok(None), |plain| self.reader.plain_norms(&plain))?,
        })
    }

    /// The decays of all elements of a state.
    fn decays(&mut self, layer: Option<usize>) -> Result<TensorInfo> {
        let (values, keys, _) = self.shape(Role::StateDecay, layer);
        self.floats(Role::StateDecay, layer, &self.stem(Role::StateDecay, layer), &[values, keys])
    }

    /// Like [`whole_name`](Self::whole_name), for a vector that GGUF stores as a matrix of one column.
    fn column(&mut self, role: Role, layer: Option<usize>) -> Result<TensorInfo> {
        let (width, ..) = self.shape(role, layer);
        let shape: &[u64] = if self.reader.is_gguf() { &[width, 1] } else { &[width] };
        let stored = self.floats(role, layer, &self.stem(role, layer), shape)?;
        Ok(TensorInfo { shape: vec![width], ..stored })
    }

    /// Whether the output of Mamba-2 has a norm.
    fn norms_output(&self, flags: Option<[&str; 2]>, layer: Option<usize>) -> Result<bool> {
        let (Some([normed, before]), reader) = (flags, self.reader) else { return Ok(true) };
        if reader.is_gguf() {
            return Ok(self.stores(&self.weight_name(Role::StateNorm, layer)));
        }
        let normed = reader.fields().boolean(normed)?.unwrap_or(false);
        if normed && reader.fields().boolean(before)? != Some(false) {
            return Err(reader.feature("a norm of Mamba-2's output before its gate", before, "false"));
        }
        Ok(normed)
    }

    /// The norm of the output of Mamba-2, which GGUF stores with a row for each group.
    fn grouped_norm(&mut self, groups: usize, layer: Option<usize>) -> Result<NormWeights> {
        if !self.reader.is_gguf() {
            return self.norm(Role::StateNorm, layer);
        }
        let ((width, ..), groups) = (self.shape(Role::StateNorm, layer), groups as u64);
        let name = self.weight_name(Role::StateNorm, layer);
        // llama.cpp's quantizer leaves the last dimension out where it is 1.
        let vector = groups == 1 && self.table.get(&name).is_some_and(|tensor| tensor.shape.len() == 1);
        let shape: &[u64] = if vector { &[width] } else { &[groups, width / groups] };
        let stored = self.floats(Role::StateNorm, layer, &name, shape)?;
        let weight = Some(TensorInfo { shape: vec![width], ..stored });
        let kind = Norm::Rms { eps: self.options.norm_eps, offset: false };
        Ok(NormWeights { weight, width: width as usize, kind })
    }

    /// A vector whose stored name has no suffix, or a special one.
    pub(super) fn whole_name(&mut self, role: Role, layer: Option<usize>) -> Result<TensorInfo> {
        let name = self.stem(role, layer);
        let (width, ..) = self.shape(role, layer);
        let stored = self.floats(role, layer, &name, &self.with_ones(&name, &[width]))?;
        Ok(TensorInfo { shape: vec![width], ..stored })
    }

    /// The shape of a stored tensor that has more or fewer dimensions of one element than `expected`, and is else the same, as ERNIE
    /// 4.5's vectors in matrices of one row; or `expected`.
    fn with_ones(&self, name: &str, expected: &[u64]) -> Vec<u64> {
        let without = |shape: &[u64]| shape.iter().copied().filter(|size| *size != 1).collect::<Vec<_>>();
        let stored = self.table.get(name).map(|tensor| &tensor.shape);
        stored.filter(|stored| without(stored) == without(expected)).map_or(expected.to_vec(), Vec::clone)
    }

    /// Like [`whole_name`](Self::whole_name); `None` in families whose tables do not name the vector.
    pub(super) fn whole_name_if_named(&mut self, role: Role, layer: Option<usize>) -> Result<Option<TensorInfo>> {
        if self.names(role) { self.whole_name(role, layer).map(Some) } else { Ok(None) }
    }
}
