//! Layers with a state: which they are and their sizes by the family's keys, and their tensors.

use super::kinds::Which;
use super::layers::WITHOUT;
use super::mixer::StateSizes;
use super::reader::{Reader, missing};
use super::tensors::Tensors;
use super::{ConvWeights, DeltaInput, DeltaNetWeights, KeySharing, Mixer, ShortConvWeights, Sizes};
use crate::error::Result;
use crate::family::{AdjustedWidth, DeltaNetKeys, Family, Key, Role, StateLayers, StateMixer, StateTable};
use crate::header::{Header, Metadata, TensorInfo};

/// A convolution over one position has no state, and none is as long as this.
const KERNELS: std::ops::RangeInclusive<usize> = 2..=1024;

impl Reader<'_> {
    /// The sizes of the family's layers with a state. Each is below 2^31, so that no sum of products exceeds a u64.
    pub(super) fn state_sizes(
        &self,
        family: &Family,
        hidden: usize,
        assumptions: &mut Vec<String>,
    ) -> Result<Option<StateSizes>> {
        let Some(StateTable { mixer, kernel: key, .. }) = family.states else { return Ok(None) };
        let mut require = |key: Key| self.size_or_default(family, key, assumptions);
        let kernel = require(key)?;
        if !KERNELS.contains(&kernel) {
            let expected = format!("a number between {} and {}", KERNELS.start(), KERNELS.end());
            return Err(self.value(&self.key(key), kernel, expected));
        }
        let StateMixer::DeltaNet(DeltaNetKeys { key_heads, value_heads, key_dim, value_dim, values, .. }) = mixer
        else {
            return Ok(Some(StateSizes { channels: hidden, kernel, ..StateSizes::default() }));
        };
        let mut sizes = StateSizes {
            key_heads: require(key_heads)?,
            value_heads: require(value_heads)?,
            key_dim: require(key_dim)?,
            kernel,
            ..StateSizes::default()
        };
        let whole = Key { gguf: values, config: value_dim };
        let (found, several) = (require(whole)?, sizes.value_heads);
        sizes.value_dim = match self.is_gguf() {
            false => found,
            true if found.is_multiple_of(several) => found / several,
            true => {
                let (one, other) = (self.key(whole), self.key(value_heads));
                return Err(
                    self.contradiction(format!("{one} is {found}"), format!("{other} is {several}, no divisor of it"))
                );
            }
        };
        if !sizes.value_heads.is_multiple_of(sizes.key_heads) {
            let (one, other) = (self.key(value_heads), self.key(key_heads));
            return Err(self.contradiction(
                format!("{one} is {several}"),
                format!("{other} is {}, no divisor of it", sizes.key_heads),
            ));
        }
        sizes.channels = 2 * sizes.key_heads * sizes.key_dim + sizes.values();
        Ok(Some(sizes))
    }

    fn size_or_default(&self, family: &Family, key: Key, assumptions: &mut Vec<String>) -> Result<usize> {
        let size = match self.size(key)? {
            Some(size) => Some(size),
            None => self.default(family, key, assumptions).map(|size| size as usize),
        };
        size.ok_or_else(|| missing(self.fields(), &self.key(key), "a size is never guessed from tensor shapes"))
    }

    /// Which layers have a state.
    pub(super) fn state_layers(
        &self,
        family: &Family,
        header: &Header,
        sizes: &Sizes,
        assumptions: &mut Vec<String>,
    ) -> Result<Which> {
        const LAYER_TYPES: &str = "layer_types";
        let Some(StateTable { layers, layer_type, .. }) = family.states else { return Ok(Which::None) };
        let known = format!("{layer_type} or {WITHOUT}");
        let listed = self.listed(LAYER_TYPES, &known, |kind| match kind.as_str()? {
            WITHOUT => Some(false),
            kind => (kind == layer_type).then_some(true),
        })?;
        if let Some(listed) = listed {
            return self.of_each_layer(LAYER_TYPES, listed, sizes.layers);
        }
        match (layers, &header.metadata) {
            (StateLayers::AllButEvery { every, list, default: (default, source) }, metadata) => {
                let list = self.key(Key { gguf: list, config: "" });
                if let Metadata::Gguf(metadata) = metadata
                    && let Some(flags) = metadata.booleans(&list)?
                {
                    return self.of_each_layer(&list, flags, sizes.blocks);
                }
                let every = match self.size(every)? {
                    Some(every) => every,
                    None => {
                        let absent = if self.is_gguf() { &list } else { LAYER_TYPES };
                        let key = self.key(every);
                        assumptions.push(format!(
                            "a state in all but one of {default} layers: {absent} and {key} are absent ({source})"
                        ));
                        default
                    }
                };
                Ok(Which::AllBut(every, None))
            }
            (StateLayers::AllButListed(_), Metadata::Gguf(metadata)) => {
                let key = self.key(family.keys.kv_heads);
                // One number for all layers means that all have keys.
                match metadata.array_len(&key) {
                    None => Ok(Which::None),
                    Some(_) => {
                        let heads = metadata.integers(&key)?.unwrap_or_default();
                        self.of_each_layer(&key, heads.iter().map(|heads| *heads == 0).collect(), sizes.blocks)
                    }
                }
            }
            (StateLayers::AllButListed(key), Metadata::Config(_)) => {
                let Some(mut listed) = self.config().map_or(Ok(None), |config| config.integers(key))? else {
                    assumptions.push(format!(
                        "no layer with a state: {LAYER_TYPES} and {key} are absent (the default of transformers' {})",
                        self.architecture
                    ));
                    return Ok(Which::None);
                };
                listed.sort_unstable();
                let layers = sizes.layers;
                match listed.iter().find(|layer| **layer >= layers as u64) {
                    Some(layer) => Err(self.value(key, layer, format!("numbers of layers, below {layers}"))),
                    None => Ok(Which::AllButThese(listed)),
                }
            }
        }
    }

    /// The feed-forward width as it is stored, of that in `config.json`.
    pub(super) fn adjusted_width(
        &self,
        rule: &AdjustedWidth,
        width: Option<usize>,
        assumptions: &mut Vec<String>,
    ) -> Result<Option<usize>> {
        let config = |config| Key { gguf: "", config };
        let Some(width) = self.size(config(rule.width))?.or(width).filter(|_| !self.is_gguf()) else {
            return Ok(width);
        };
        if !self.fields().boolean(rule.flag)?.unwrap_or(true) {
            return Ok(Some(width));
        }
        let part = 2 * width / 3;
        let multiplier = match self.fields().number(rule.multiplier)? {
            // null asks for no rounding either.
            None if self.is_null(rule.multiplier) => return Ok(Some(part)),
            None => 1.0,
            Some(multiplier) if multiplier > 0.0 && multiplier <= 1e3 => multiplier,
            Some(multiplier) => {
                return Err(self.value(rule.multiplier, multiplier, "a number above 0 and up to 1000".into()));
            }
        };
        let multiple = match (self.size(config(rule.multiple))?, rule.default_multiple) {
            (Some(multiple), _) => multiple,
            (None, (multiple, why)) => {
                assumptions.push(format!("{} {multiple}: it is absent ({why})", rule.multiple));
                multiple
            }
        };
        // Rounded down, as by `int()` in transformers, and then up to the multiple.
        let width = (part as f64 * multiplier) as usize;
        self.bounded(rule.width, width.next_multiple_of(multiple) as u64).map(Some)
    }

    /// How many of all blocks are the decoder's, and do not predict further tokens.
    pub(super) fn without_predictors(&self, family: &Family, blocks: usize) -> Result<usize> {
        let Some(key) = family.predictors.map(|key| self.key(key)) else { return Ok(blocks) };
        let predictors = self.fields().unsigned(&key)?.unwrap_or(0);
        if predictors == 0 || !self.is_gguf() {
            return Ok(blocks);
        }
        match usize::try_from(predictors).ok().and_then(|predictors| blocks.checked_sub(predictors)) {
            None | Some(0) => Err(self.contradiction(
                format!("{} is {blocks}", self.key(family.keys.layers)),
                format!("{key} is {predictors}, which leaves no layer of the decoder"),
            )),
            Some(layers) => Ok(layers),
        }
    }
}

impl Tensors<'_> {
    /// The mixer of a layer with a state.
    pub(super) fn state_mixer(&mut self, mixer: StateMixer, layer: Option<usize>) -> Result<Mixer> {
        match mixer {
            StateMixer::DeltaNet(DeltaNetKeys { gguf_sharing, .. }) => {
                let StateSizes { key_heads, value_heads, key_dim, value_dim, .. } =
                    self.sizes.states.unwrap_or_default();
                let gguf = self.reader.is_gguf();
                Ok(Mixer::DeltaNet(Box::new(DeltaNetWeights {
                    key_heads,
                    value_heads,
                    key_dim,
                    value_dim,
                    sharing: if gguf { gguf_sharing } else { KeySharing::Neighbours },
                    qkvz: self.delta_input(Role::DeltaQkvz, [Role::DeltaQkv, Role::DeltaGate], layer)?,
                    ba: self.delta_input(Role::DeltaBetaAlpha, [Role::DeltaBeta, Role::DeltaAlpha], layer)?,
                    conv: self.conv(layer)?,
                    dt_bias: self.whole_name(Role::DeltaBias, layer)?,
                    decay: self.whole_name(Role::DeltaDecay, layer)?,
                    // The converter stores -exp of it.
                    decay_is_log: !gguf,
                    norm: self.norm(Role::DeltaNorm, layer)?,
                    out: self.matrix(Role::DeltaOut, layer)?,
                })))
            }
            StateMixer::ShortConv => Ok(Mixer::ShortConv(Box::new(ShortConvWeights {
                bcx: self.matrix(Role::ConvIn, layer)?,
                conv: self.conv(layer)?,
                out: self.matrix(Role::ConvOut, layer)?,
            }))),
        }
    }

    /// The matrix of role `both` where the file has it, or the format no other, else that of each.
    fn delta_input(&mut self, both: Role, each: [Role; 2], layer: Option<usize>) -> Result<DeltaInput> {
        let stored = self.header.tensors.contains_key(&format!("{}.weight", self.stem(both, layer)));
        let apart = self.names(each[0]) && !self.stem(each[0], layer).is_empty();
        Ok(if self.names(both) && (stored || !apart) {
            DeltaInput::ByKeyHead(Box::new(self.matrix(both, layer)?))
        } else {
            let [first, second] = each.map(|role| self.matrix(role, layer));
            DeltaInput::Apart(Box::new([first?, second?]))
        })
    }

    /// The convolution, which transformers stores with a dimension for its one input a channel.
    fn conv(&mut self, layer: Option<usize>) -> Result<ConvWeights> {
        let name = format!("{}.weight", self.stem(Role::Conv, layer));
        let (channels, kernel, because) = self.sizes.of(Role::Conv);
        let shape: &[u64] = if self.reader.is_gguf() { &[channels, kernel] } else { &[channels, 1, kernel] };
        let stored = self.checked(&name, shape, &because)?;
        self.check_vector_dtype(&stored)?;
        let weight = TensorInfo { shape: vec![channels, kernel], ..stored };
        Ok(ConvWeights { weight, bias: self.bias(Role::Conv, layer)? })
    }

    /// A vector whose stored name has no suffix, or one of its own.
    pub(super) fn whole_name(&mut self, role: Role, layer: Option<usize>) -> Result<TensorInfo> {
        let (width, _, because) = self.sizes.of(role);
        let vector = self.checked(&self.stem(role, layer), &[width], &because)?;
        self.check_vector_dtype(&vector)?;
        Ok(vector)
    }
}
