//! What the quantization of a model says of its modules: [`Scheme`], which every format's file makes, and its [`Kind`]s.

use super::methods;
use super::names::Names;
use crate::header::Fields;
use crate::header::config::Section;
use crate::spec::Int8Activations;
use model_factory_dtypes::{DType, PackedDim};
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
    /// Keys that ask for quantized activations or caches, which weights that are floats are computed without.
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
    /// Packed weights by columns with floats.
    Columns(ColumnPacked),
    /// Floats of 8 bits (E4M3) with floats.
    Fp8(WeightScales),
    /// Floats of 4 bits (E2M1) with floats.
    Fp4(Fp4),
    /// MLX's words with floats.
    Words(Words),
    /// Codes of 4 bits with floats.
    FourBit(FourBit),
    /// I8 weights, 127 of which stand for the scale of an output, with floats.
    Int8Rows,
}

/// bitsandbytes' codes of 4 bits, which stand for the floats of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FourBit {
    /// NF4 or FP4.
    pub(crate) dtype: DType,
    /// Whether scales are bytes, with scales of their own.
    pub(crate) nested: bool,
    /// The dtype that their bytes are stored as.
    pub(crate) storage: DType,
}

/// What scales floats of 4 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fp4 {
    /// MXFP4: a power of 2 (E8M0) for 32 consecutive inputs.
    Powers,
    /// NVFP4 of compressed-tensors: a float (E4M3) for 16 consecutive inputs, and one by which all of the matrix is divided.
    Divided,
    /// NVFP4 of ModelOpt, all of whose matrix is multiplied instead.
    Multiplied,
}

impl Fp4 {
    /// Consecutive inputs that share a scale.
    pub(crate) fn size(self) -> u64 {
        if self == Fp4::Powers { 32 } else { 16 }
    }

    /// Ends of the names of scales of whole matrices, which the first kind has none of.
    pub(crate) const WHOLE: [&str; 2] = ["weight_global_scale", "weight_scale_2"];

    /// The end of the name of its matrices' own scales.
    pub(crate) fn whole(self) -> Option<&'static str> {
        match self {
            Fp4::Powers => None,
            Fp4::Divided => Some(Fp4::WHOLE[0]),
            Fp4::Multiplied => Some(Fp4::WHOLE[1]),
        }
    }
}

/// What MLX's words hold, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Unsigned integers of 2 to 6 or 8 bits, of which 32, 64 or 128 share a scale and a bias.
    Affine { bits: u64, size: u64 },
    /// MXFP4: floats of 4 bits, of which 32 share a power of 2.
    Mxfp4,
    /// NVFP4: floats of 4 bits, of which 16 share a float of 8 bits.
    Nvfp4,
    /// MXFP8: floats of 8 bits (E4M3), of which 32 share a power of 2.
    Mxfp8,
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

/// Integers in words that lie by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnPacked {
    /// Of an integer.
    pub(crate) bits: u32,
    /// What a word holds.
    pub(crate) packed: PackedDim,
    pub(crate) scales: WeightScales,
    /// What is added to a stored zero point; `None` where all are the middle of the integers.
    pub(crate) zero_offset: Option<u32>,
}

/// How activations become integers, before the tensors are known.
pub(crate) type Activations = Int8Activations<()>;

impl Scheme {
    /// A scheme without groups, by the block of a config.
    pub(super) fn new(method: &'static str, block: &Section<'_>, ignore: Names) -> Scheme {
        let (file, place) = (block.file().into(), block.path());
        let name = || block.file().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = if place.is_empty() { name() } else { place };
        Scheme { method, file, place, groups: Vec::new(), ignore, notes: Notes::default() }
    }

    /// With all linear layers of this kind.
    pub(super) fn with_group(mut self, kind: Kind) -> Scheme {
        self.groups.push(Group { place: self.place.clone(), targets: Names::class("Linear"), kind });
        self
    }

    /// Whether any group lies by columns.
    pub(super) fn is_by_columns(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Columns(_)))
    }

    /// Whether tensors that the row `method` of `methods.txt` marks are those of a group.
    pub(super) fn describes(&self, method: &str) -> bool {
        self.groups.iter().any(|group| match group.kind {
            Kind::Int8 { .. } => method == methods::INT8_WITH_SCALES,
            Kind::Packed(_) => method == methods::COMPRESSED_TENSORS,
            Kind::Columns(_) => methods::BY_COLUMNS.contains(&method),
            Kind::Fp8(_) => methods::FP8.contains(&method),
            Kind::Fp4(_) => methods::FP4.contains(&method),
            Kind::Words(_) => method == methods::MLX,
            Kind::FourBit(_) => method == methods::BITSANDBYTES[0],
            Kind::Int8Rows => method == methods::BITSANDBYTES[1],
        })
    }

    /// Whether weights of any group are floats.
    pub(crate) fn is_of_floats(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Fp8(_) | Kind::Fp4(_)))
    }

    /// The dtypes of quantized matrices that lie under the name of a matrix.
    pub(crate) fn dtypes(&self) -> Vec<&'static str> {
        let mut dtypes: Vec<&str> = Vec::new();
        for group in &self.groups {
            let dtype = match group.kind {
                Kind::Int8 { .. } | Kind::Int8Rows => "I8",
                Kind::FourBit(four) => four.dtype.name(),
                Kind::Fp8(_) => "F8_E4M3",
                Kind::Fp4(Fp4::Multiplied) => "U8",
                Kind::Fp4(_) | Kind::Packed(_) | Kind::Columns(_) => "packed",
                Kind::Words(_) => "U32",
            };
            dtypes.extend((!dtypes.contains(&dtype)).then_some(dtype));
        }
        dtypes
    }

    /// Whether the groups are MLX's.
    pub(crate) fn is_mlx(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Words(_)))
    }

    /// Whether the groups are bitsandbytes'.
    pub(super) fn is_of_bitsandbytes(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::FourBit(_) | Kind::Int8Rows))
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
            if self.is_mlx() {
                return Err(format!("{}.{entry} is false", self.place));
            }
            if self.is_of_bitsandbytes() {
                return Err(format!("{}.llm_int8_skip_modules has {entry:?}", self.place));
            }
            return Err(format!("{}.ignore has {entry:?}", self.place));
        }
        let rank = |group: &Group| group.targets.rank(module, class);
        let best = self.groups.iter().filter_map(|group| rank(group).map(|rank| (rank, group)));
        // `min_by_key` takes the first of equals, as compressed-tensors does.
        let best = best.min_by_key(|(rank, _)| *rank).map(|(_, group)| group);
        best.ok_or_else(|| format!("no target of {} names {module}", self.place))
    }

    /// `compressed-tensors int8 w8a8: weights by channel, activations dynamic by token`, `compressed-tensors: w4a16 by groups of
    /// 128`, `FP8: E4M3 by blocks of 128 x 128`, or `MLX: 4 bits by groups of 64`.
    pub(crate) fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for group in &self.groups {
            let group = match group.kind {
                Kind::Int8 { weights, activations } => format!("weights {weights}, activations {activations}"),
                Kind::Packed(packed) => packed.to_string(),
                Kind::Columns(ColumnPacked { bits, scales, zero_offset, .. }) => {
                    Packed { bits, symmetric: zero_offset.is_none(), scales }.to_string()
                }
                Kind::Fp8(scales) => format!("E4M3 {scales}"),
                Kind::Fp4(Fp4::Powers) | Kind::Words(Words::Mxfp4) => "MXFP4".to_owned(),
                Kind::Fp4(_) | Kind::Words(Words::Nvfp4) => "NVFP4".to_owned(),
                Kind::Words(Words::Mxfp8) => "MXFP8".to_owned(),
                Kind::Words(Words::Affine { bits, size }) => format!("{bits} bits {}", WeightScales::Group(size)),
                Kind::FourBit(FourBit { dtype, nested, .. }) => {
                    format!("{dtype}{}", if nested { " with nested scales" } else { "" })
                }
                Kind::Int8Rows => "LLM.int8".to_owned(),
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
