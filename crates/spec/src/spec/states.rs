//! Layers with a state: which layers they are, their sizes by the family's keys, and their tensors.

use super::kinds::Which;
use super::layers::LAYER_TYPES;
use super::mixer::StateSizes;
use super::reader::{Reader, missing};
use super::tensors::Tensors;
use super::{
    ConvWeights, DeltaInput, DeltaNetWeights, KeySharing, Mamba2Weights, Mixer, Norm, NormWeights, ShortConvWeights,
    Sizes,
};
use crate::error::Result;
use crate::family::{AdjustedWidth, Key, Role, StateLayers, StateTable};
use crate::header::TensorInfo;
use serde_json::Value;

/// What layers with a state compute.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StateMixer {
    /// A gated delta net.
    DeltaNet(DeltaNetKeys),
    /// A gated convolution of the last few positions.
    ShortConv,
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
    /// The key of the elements of a value in `config.json`, and of all values together in GGUF.
    pub values: Key,
    /// Which value heads share a key head in GGUF; in safetensors adjacent ones do.
    pub gguf_sharing: KeySharing,
}

/// Kernel sizes: a convolution over one position has no state, and none is as long as the end of this range.
const KERNELS: std::ops::RangeInclusive<usize> = 2..=1024;

impl Reader<'_> {
    /// The sizes of the family's layers with a state. Each is below 2^31, so that no sum of products exceeds a u64.
    pub(super) fn state_sizes(&self, hidden: usize) -> Result<Option<StateSizes>> {
        let Some(StateTable { mixer, kernel: key, .. }) = self.family.block.states else { return Ok(None) };
        let require = |key: Key| self.size_or_table(key);
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
                let value_dim = match self.is_gguf() {
                    true => self.part(keys.value_heads, value_heads, keys.values, values)?,
                    false => values,
                };
                self.part(keys.key_heads, key_heads, keys.value_heads, value_heads)?;
                StateSizes { key_heads, value_heads, key_dim, value_dim, normed: value_dim, channels: 0, kernel }
            }
            StateMixer::Mamba2 { heads, groups, state_dim, head_dim, inner, .. } => {
                let (value_heads, key_heads) = (require(heads)?, require(groups)?);
                let key_dim = require(state_dim)?;
                let normed = match (self.is_gguf(), inner.config) {
                    (true, _) => require(inner)?,
                    (false, "") => {
                        let value_dim = require(Key::config(head_dim))?;
                        self.bounded(head_dim, (value_heads as u64).saturating_mul(value_dim as u64))?
                    }
                    (false, key) => self.bounded(key, (require(inner)? as u64).saturating_mul(hidden as u64))?,
                };
                let value_dim = self.part(heads, value_heads, inner, normed)?;
                self.part(groups, key_heads, heads, value_heads)?;
                self.check_head_dim(head_dim, value_dim)?;
                StateSizes { key_heads, value_heads, key_dim, value_dim, normed, channels: 0, kernel }
            }
        };
        // The convolution is over keys, queries and values.
        let channels = 2 * sizes.key_heads * sizes.key_dim + sizes.values();
        Ok(Some(StateSizes { channels, ..sizes }))
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

    /// The shortest and the longest step of Mamba-2, which only `config.json` may give.
    fn step_limit(&self, key: &str) -> Result<[f64; 2]> {
        const NONE: [f64; 2] = [0.0, f64::INFINITY];
        let Some(stored) = self.config.and_then(|config| config.object().get(key)) else { return Ok(NONE) };
        // transformers 5 writes `{"__float__": "Infinity"}`.
        let number = |entry: &Value| match entry.get("__float__").and_then(Value::as_str) {
            Some("Infinity") => Some(f64::INFINITY),
            _ => entry.as_f64(),
        };
        let limit = stored.as_array().map(|list| list.iter().map(number).collect::<Vec<_>>());
        match limit.as_deref() {
            None if stored.is_null() => Ok(NONE),
            Some([Some(least), Some(most)]) if *least >= 0.0 && least.is_finite() && least <= most => {
                Ok([*least, *most])
            }
            _ => Err(self.value(key, stored, "two numbers from 0 on, the lesser first and finite".into())),
        }
    }

    pub(super) fn state_layers(&self, sizes: &Sizes) -> Result<Which> {
        let Some(StateTable { layers: rule, layer_types, attention, .. }) = self.family.block.states else {
            return Ok(Which::None);
        };
        let known = [layer_types, attention].concat().join(" or ");
        let list = self.config_key(LAYER_TYPES);
        let listed = self.listed(&list, &known, |kind| {
            let kind = kind.as_str()?;
            if attention.contains(&kind) { Some(false) } else { layer_types.contains(&kind).then_some(true) }
        })?;
        if let Some(listed) = listed {
            return self.of_each_layer(&list, listed, sizes.layers);
        }
        match (rule, self.gguf()) {
            (StateLayers::AllButEvery { every: key, list, default: (default, source) }, metadata) => {
                let list = self.gguf_key(list);
                if let Some(flags) = metadata.map_or(Ok(None), |metadata| metadata.booleans(&list))? {
                    return self.of_each_layer(&list, flags, sizes.blocks);
                }
                let every = self.size(key)?.unwrap_or_else(|| {
                    let (absent, key) = (if self.is_gguf() { &list } else { LAYER_TYPES }, self.key(key));
                    self.assume(format!(
                        "a state in all but one of {default} layers: {absent} and {key} are absent ({source})"
                    ));
                    default
                });
                Ok(Which::AllBut(every, None))
            }
            (StateLayers::All(source), None) => {
                Ok(self.or_absent(None, Which::All, "a state in every layer", LAYER_TYPES, source))
            }
            (StateLayers::Beside, _) => Ok(Which::All),
            // Read by `single_layers`.
            (StateLayers::Single { .. }, _) => Ok(Which::None),
            (StateLayers::AllButListed(_) | StateLayers::All(_), Some(metadata)) => {
                let key = self.key(self.family.files.keys.kv_heads);
                // One number for all layers means that all of them have keys.
                if metadata.array_len(&key).is_none() {
                    return Ok(Which::None);
                }
                let heads = metadata.integers(&key)?.unwrap_or_default();
                self.of_each_layer(&key, heads.iter().map(|heads| *heads == 0).collect(), sizes.blocks)
            }
            (StateLayers::AllButListed(key), None) => match self.listed_layers(key, sizes.layers)? {
                Some(listed) => Ok(Which::AllButThese(listed)),
                None => {
                    let (absent, why) = (format!("{LAYER_TYPES} and {key} are absent"), self.class_default());
                    self.assume(format!("no layer with a state: {absent} ({why})"));
                    Ok(Which::None)
                }
            },
        }
    }

    /// The numbers of layers that `config.json` lists, in order.
    pub(super) fn listed_layers(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>> {
        let Some(mut listed) = self.config.map_or(Ok(None), |config| config.integers(key))? else { return Ok(None) };
        listed.sort_unstable();
        match listed.iter().find(|layer| **layer >= layers as u64) {
            Some(layer) => Err(self.value(key, layer, format!("numbers of layers, below {layers}"))),
            None => Ok(Some(listed)),
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
            StateMixer::DeltaNet(DeltaNetKeys { gguf_sharing, .. }) => {
                let StateSizes { key_heads, value_heads, key_dim, value_dim, .. } = self.states()?;
                let gguf = self.reader.is_gguf();
                Ok(Mixer::DeltaNet(Box::new(DeltaNetWeights {
                    key_heads,
                    value_heads,
                    key_dim,
                    value_dim,
                    sharing: if gguf { gguf_sharing } else { KeySharing::Neighbours },
                    qkvz: self.delta_input(Role::DeltaQkvz, [Role::DeltaQkv, Role::StateGate], layer)?,
                    ba: self.delta_input(Role::DeltaBetaAlpha, [Role::DeltaBeta, Role::DeltaAlpha], layer)?,
                    conv: self.conv(layer)?,
                    dt_bias: self.whole_name(Role::StateStepBias, layer)?,
                    decay: self.whole_name(Role::StateDecay, layer)?,
                    // The GGUF converter stores -exp(A_log).
                    decay_is_log: !gguf,
                    norm: self.norm(Role::StateNorm, layer)?,
                    out: self.matrix(Role::StateOut, layer)?,
                })))
            }
            StateMixer::Mamba2 { step_limit, norm, .. } => {
                let StateSizes { key_heads: groups, value_heads: heads, key_dim, value_dim, .. } = self.states()?;
                Ok(Mixer::Mamba2(Box::new(Mamba2Weights {
                    heads,
                    groups,
                    head_dim: value_dim,
                    state_dim: key_dim,
                    step_limit: self.reader.step_limit(step_limit)?,
                    input: self.matrix(Role::MambaInput, layer)?,
                    gate: self.matrix(Role::StateGate, layer)?,
                    step: self.matrix(Role::MambaStep, layer)?,
                    conv: self.conv(layer)?,
                    step_bias: self.whole_name(Role::StateStepBias, layer)?,
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
    fn delta_input(&mut self, both: Role, each: [Role; 2], layer: Option<usize>) -> Result<DeltaInput> {
        let stored = self.stores(&self.weight_name(both, layer));
        let apart = self.names(each[0]) && !self.stem(each[0], layer).is_empty();
        Ok(if self.names(both) && (stored || !apart) {
            DeltaInput::ByKeyHead(Box::new(self.matrix(both, layer)?))
        } else {
            let [first, second] = each.map(|role| self.matrix(role, layer));
            DeltaInput::Apart(Box::new([first?, second?]))
        })
    }

    /// The convolution, which transformers stores with an extra dimension, as each channel has one input.
    fn conv(&mut self, layer: Option<usize>) -> Result<ConvWeights> {
        let (channels, kernel, _) = self.shape(Role::Conv, layer);
        let shape: &[u64] = if self.reader.is_gguf() { &[channels, kernel] } else { &[channels, 1, kernel] };
        let stored = self.floats(Role::Conv, layer, &self.weight_name(Role::Conv, layer), shape)?;
        let weight = TensorInfo { shape: vec![channels, kernel], ..stored };
        let bias = self.bias(Role::Conv, layer)?;
        Ok(ConvWeights { weight, bias, channels: channels as usize, kernel: kernel as usize })
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
        let weight = TensorInfo { shape: vec![width], ..stored };
        Ok(NormWeights { weight, kind: Norm::Rms { eps: self.options.norm_eps, offset: false } })
    }

    /// A vector whose stored name has no suffix, or a special one.
    pub(super) fn whole_name(&mut self, role: Role, layer: Option<usize>) -> Result<TensorInfo> {
        let name = self.stem(role, layer);
        let (width, ..) = self.shape(role, layer);
        // ERNIE 4.5 stores a vector as a matrix of one row.
        let is_row = self.table.get(&name).is_some_and(|tensor| tensor.shape.len() == 2);
        let shape = if is_row { vec![1, width] } else { vec![width] };
        let stored = self.floats(role, layer, &name, &shape)?;
        Ok(TensorInfo { shape: vec![width], ..stored })
    }

    /// Like [`whole_name`](Self::whole_name); `None` in families whose tables do not name the vector.
    pub(super) fn whole_name_if_named(&mut self, role: Role, layer: Option<usize>) -> Result<Option<TensorInfo>> {
        if self.names(role) { self.whole_name(role, layer).map(Some) } else { Ok(None) }
    }
}
