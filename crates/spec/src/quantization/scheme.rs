//! What the quantization of a model says of its modules: [`Scheme`], which every format's file makes, and its [`Kind`]s.

use super::methods;
use super::names::Names;
use crate::header::Fields;
use crate::header::config::Section;
use crate::spec::Int8Activations;
use std::fmt;
use std::path::PathBuf;

/// What a config block says of every module.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// What people call the method.
    method: &'static str,
    pub(crate) file: PathBuf,
    /// The dotted key, as of a group.
    pub(crate) place: String,
    pub(super) groups: Vec<Group>,
    pub(super) ignore: Names,
    /// What was read past or taken for granted.
    pub(crate) notes: Notes,
}

/// What a config block does not say, or says to nobody here.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Keys that no known version writes.
    pub(crate) unknown: Vec<String>,
    /// Absent keys, each with the default of compressed-tensors' `QuantizationArgs`.
    pub(crate) defaults: Vec<String>,
    /// Keys that ask for quantized activations or caches, which FP8 weights are computed without.
    pub(crate) floats: Vec<String>,
}

impl Notes {
    /// Notes the keys of `section` that are not `known`.
    pub(super) fn unknown(&mut self, section: &Section<'_>, known: &str) {
        let unknown = section.object().keys().filter(|key| known.split(' ').all(|known| known != *key));
        self.unknown.extend(unknown.map(|key| section.dotted(key)));
    }

    pub(super) fn absent(&mut self, section: &Section<'_>, key: &str, value: &str) {
        self.defaults.push(format!("{} = {value}", section.dotted(key)));
    }
}

/// One entry of `config_groups`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) place: String,
    pub(super) targets: Names,
    pub(crate) kind: Kind,
}

/// What the modules of a group are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// I8 weights with integers.
    Int8 { weights: WeightScales, activations: Activations },
    /// Packed weights with floats.
    Packed(Packed),
    /// Floats of 8 bits (E4M3) with floats.
    Fp8(WeightScales),
    /// MLX's fields, with scales and biases, with floats.
    Affine(Affine),
}

/// Unsigned integers one after the other, of which as many as a group has share a scale and a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    /// 2 to 6, or 8.
    pub(crate) bits: u64,
    /// 32, 64 or 128.
    pub(crate) size: u64,
}

/// How many weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightScales {
    /// All of a matrix.
    Tensor,
    /// Those of an output.
    Channel,
    /// This many consecutive inputs of an output.
    Group(u64),
    /// So many consecutive outputs and inputs, of floats.
    Block([u64; 2]),
}

impl WeightScales {
    /// Of blocks with these sides, outputs and inputs.
    pub(super) fn of_block(sides: &[u64]) -> Option<WeightScales> {
        let sides = <[u64; 2]>::try_from(sides).ok()?;
        (!sides.contains(&0)).then_some(WeightScales::Block(sides))
    }
}

/// Integers in words, of an output one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// 4 or 8.
    pub(crate) bits: u32,
    /// Whether there are no zero points.
    pub(crate) symmetric: bool,
    pub(crate) scales: WeightScales,
}

/// How activations become integers, before the tensors are known.
pub(crate) type Activations = Int8Activations<()>;

impl Scheme {
    /// A scheme without groups, by the block of a config.
    pub(super) fn new(method: &'static str, block: &Section<'_>, ignore: Names) -> Scheme {
        let (file, place) = (block.file().into(), block.path());
        Scheme { method, file, place, groups: Vec::new(), ignore, notes: Notes::default() }
    }

    /// With all linear layers in FP8.
    pub(super) fn with_group(mut self, place: String, scales: WeightScales) -> Scheme {
        self.groups.push(Group { place, targets: Names::class("Linear"), kind: Kind::Fp8(scales) });
        self
    }

    /// Whether tensors that the row `method` of `methods.txt` marks are those of a group.
    pub(super) fn describes(&self, method: &str) -> bool {
        self.groups.iter().any(|group| match group.kind {
            Kind::Int8 { .. } => method == methods::INT8_WITH_SCALES,
            Kind::Packed(_) => method == methods::COMPRESSED_TENSORS,
            Kind::Fp8(_) => methods::FP8.contains(&method),
            Kind::Affine(_) => method == methods::MLX,
        })
    }

    /// Whether any group is FP8.
    pub(crate) fn is_fp8(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Fp8(_)))
    }

    /// Whether the groups are MLX's.
    pub(crate) fn is_affine(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Affine(_)))
    }

    /// Whether a group names `module` itself.
    pub(crate) fn names(&self, module: &str) -> bool {
        self.groups.iter().any(|group| group.targets.rank(module, "") == Some(0))
    }

    /// Notes the keys of `block` that ask for a quantized KV cache.
    pub(super) fn note_cache(&mut self, block: &Section<'_>) {
        let keys = ["kv_cache_scheme", "kv_cache_quant_algo"].into_iter().filter(|key| block.has(key));
        self.notes.floats.extend(keys.map(|key| block.dotted(key)));
    }

    /// The group of `module`, whose class transformers calls `class`, or what the block says instead. `ignore` comes first; then a
    /// target that is the module's name, then one that is a pattern, then one that is its class.
    pub(crate) fn group(&self, module: &str, class: &str) -> Result<&Group, String> {
        if let Some(entry) = self.ignore.matching(module, class) {
            if self.is_affine() {
                return Err(format!("{}.{entry} is false", self.place));
            }
            return Err(format!("{}.ignore has {entry:?}", self.place));
        }
        let rank = |group: &Group| group.targets.rank(module, class);
        let best = self.groups.iter().filter_map(|group| rank(group).map(|rank| (rank, group)));
        // `min_by_key` takes the first of equals, as compressed-tensors does.
        let best = best.min_by_key(|(rank, _)| *rank).map(|(_, group)| group);
        best.ok_or_else(|| format!("no target of {}.config_groups names {module}", self.place))
    }

    /// `compressed-tensors int8 w8a8: weights by channel, activations dynamic by token`, `compressed-tensors: w4a16 by groups of
    /// 128`, `FP8: E4M3 by blocks of 128 x 128`, or `MLX: 4 bits by groups of 64`.
    pub(crate) fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for group in &self.groups {
            let group = match group.kind {
                Kind::Int8 { weights, activations } => format!("weights {weights}, activations {activations}"),
                Kind::Packed(packed) => packed.to_string(),
                Kind::Fp8(scales) => format!("E4M3 {scales}"),
                Kind::Affine(Affine { bits, size, .. }) => format!("{bits} bits {}", WeightScales::Group(size)),
            };
            words.extend((!words.contains(&group)).then_some(group));
        }
        let all_int8 = self.groups.iter().all(|group| matches!(group.kind, Kind::Int8 { .. }));
        format!("{}{}: {}", self.method, if all_int8 { " int8 w8a8" } else { "" }, words.join("; "))
    }
}

impl fmt::Display for WeightScales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightScales::Tensor => f.write_str("by tensor"),
            WeightScales::Channel => f.write_str("by channel"),
            WeightScales::Group(size) => write!(f, "by groups of {size}"),
            WeightScales::Block([outputs, inputs]) => write!(f, "by blocks of {outputs} x {inputs}"),
        }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scales, symmetric) = match *self {
            Activations::PerToken { symmetric } => ("dynamic by token", symmetric),
            Activations::PerTensor { symmetric } => ("dynamic by tensor", symmetric),
            Activations::Static { zero_point, .. } => ("static by tensor", zero_point.is_none()),
        };
        write!(f, "{scales}{}", if symmetric { "" } else { " with zero points" })
    }
}

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packed { bits, symmetric, scales } = self;
        write!(f, "w{bits}a16 {scales}{}", if *symmetric { "" } else { " with zero points" })
    }
}
