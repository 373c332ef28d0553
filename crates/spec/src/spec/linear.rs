//! A matrix as it is stored: its elements, its bias, and what other tensors say of how elements become weights.

use super::{Columns, IntegerRows, Runs, tensors};
use crate::header::TensorInfo;

/// A weight matrix `[outputs, inputs]` and its bias `[outputs]`.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// The matrix.
    pub weight: TensorInfo,
    /// Whether it is stored `[inputs, outputs]`; only floats are.
    pub transposed: bool,
    /// The bias.
    pub bias: Option<TensorInfo>,
    /// What its elements are scaled by, where other tensors say that: there for every matrix of F4, F8_E4M3, FP4, I8, NF4, S8 and U2 to U8.
    pub scaling: Option<Scaling>,
    /// What its products are scaled by.
    pub factor: Option<Factor>,
    /// What products are multiplied by before a bias is added, where keys of the model say that: the outputs up to a number
    /// by the factor next to it. Empty where they do not.
    pub multipliers: Vec<(usize, f32)>,
    /// The linear layer that it is rows of, where adapters may change that one.
    pub module: Option<Module>,
}

/// The rows of a linear layer that a matrix is: all of them, or those of one role of a fused one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name in the file: that of its weight without `.weight`.
    pub name: String,
    /// Rows of it before these.
    pub before: u64,
    /// Rows of it in all.
    pub total: u64,
    /// The experts whose rows follow each other in it; 1 where it is of none, or of one.
    pub experts: u64,
}

impl Module {
    /// All rows of a linear layer.
    pub(super) fn whole(name: String, total: u64) -> Module {
        Module { name, before: 0, total, experts: 1 }
    }
}

impl LinearWeights {
    /// The matrix, its bias, and how its int8 product is scaled.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        std::iter::once(&self.weight).chain(&self.bias).chain(self.scales())
    }

    /// Elements of a product.
    pub fn outputs(&self) -> usize {
        self.weight.shape[usize::from(self.transposed)] as usize
    }

    /// Elements of what it is multiplied with.
    pub fn inputs(&self) -> usize {
        self.weight.shape[usize::from(!self.transposed)] as usize
    }

    /// Only `weight`.
    pub fn new(weight: TensorInfo) -> LinearWeights {
        LinearWeights {
            weight,
            transposed: false,
            bias: None,
            scaling: None,
            factor: None,
            multipliers: Vec::new(),
            module: None,
        }
    }

    /// The tensors that say how its product is scaled.
    pub fn scales(&self) -> impl Iterator<Item = &TensorInfo> {
        let tensors: [Option<&TensorInfo>; 5] = match &self.scaling {
            None => [None; 5],
            Some(Scaling::Blocks(scale) | Scaling::Floats(FloatScales { scale, .. })) => {
                [Some(scale), None, None, None, None]
            }
            Some(Scaling::Groups(groups)) => [Some(&groups.scale), groups.zero_point.as_ref(), None, None, None],
            Some(Scaling::Columns(columns)) => {
                let Columns { scale, zero_point, g_idx, zero_bias, .. } = columns;
                [Some(scale), Some(zero_point), g_idx.as_ref(), zero_bias.as_ref(), None]
            }
            Some(Scaling::Affine(affine)) => [Some(&affine.scale), Some(&affine.bias), None, None, None],
            Some(Scaling::Runs(Runs { scale, table, state, nested, .. })) => {
                let (factors, values) = nested.as_ref().map(|nested| (&nested.factors, &nested.table)).unzip();
                [Some(scale), Some(table), Some(state), factors, values]
            }
            Some(Scaling::IntegerRows(rows)) => [Some(&rows.scale), rows.format.as_ref(), None, None, None],
            Some(Scaling::Int8(int8)) => match &int8.activations {
                Int8Activations::Static { scale, zero_point } => {
                    [Some(&int8.scale), Some(scale), zero_point.as_ref(), None, None]
                }
                _ => [Some(&int8.scale), None, None, None, None],
            },
        };
        tensors.into_iter().flatten().chain(self.factor.as_ref().map(|factor| &factor.tensor))
    }
}

/// Floats that products are multiplied or divided by, before a bias is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// `[1]`, or one for each of as many equal parts of the outputs.
    pub tensor: TensorInfo,
    /// Whether they divide.
    pub divides: bool,
}

impl Factor {
    /// Those of one of `count` equal parts of the outputs.
    pub(super) fn of(self, part: u64, count: u64) -> Factor {
        Factor { tensor: tensors::rows_of(self.tensor, part, count, vec![1]), ..self }
    }
}

/// How the elements of a matrix become weights, where tensors of their own say that. Complete.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// F4: powers of 2 (F8_E8M0) for blocks of 32 elements of a row, `[outputs, inputs / 32]`, or floats (F8_E4M3) for blocks of 16.
    Blocks(TensorInfo),
    /// F8_E4M3: floats that are multiplied with floats.
    Floats(FloatScales),
    /// I8: integers that are multiplied with integers.
    Int8(Int8),
    /// U4 and U8: integers that are multiplied with floats.
    Groups(Groups),
    /// U4 and U8 in words by columns.
    Columns(Columns),
    /// U2 to U6 and U8: integers with scales and biases, which are multiplied with floats.
    Affine(Affine),
    /// NF4 and FP4: codes of floats, which are multiplied with floats.
    Runs(Runs),
    /// S8: integers that are multiplied with floats.
    IntegerRows(IntegerRows),
}

/// A product of floats with integers of 2 to 8 bits, stored unsigned: a weight is `scale * stored + bias` (mlx 0.32
/// `backend/cpu/quantized.cpp`).
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// Scales, floats: `[outputs, inputs / size]`.
    pub scale: TensorInfo,
    /// Biases, of the dtype of the scales: `[outputs, inputs / size]`.
    pub bias: TensorInfo,
    /// Consecutive inputs that share both: 32, 64 or 128.
    pub size: usize,
}

/// The scales of floats of 8 bits: a weight is its block's scale times the stored number.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatScales {
    /// Floats or powers of 2: `[blocks below each other, blocks side by side]`.
    pub scale: TensorInfo,
    /// Outputs and inputs of a block; the last ones of a row or column may be cut. Inputs are a multiple of 32, or all of them.
    pub block: [usize; 2],
    /// Outputs of the first blocks that belong to what is stored before the matrix in one tensor with it.
    pub before: usize,
}

/// A product of floats with integers of 4 or 8 bits, stored unsigned: a weight is `scale * (stored - middle - zero point)`, where the
/// middle is 8 or 128 (compressed-tensors 0.20 `compressors/pack_quantized`).
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// Scales, floats: `[outputs, inputs / size]`.
    pub scale: TensorInfo,
    /// Consecutive inputs that share a scale, a multiple of 32.
    pub size: usize,
    /// Zero points: I8 `[outputs, inputs / size]`, or I32 `[outputs * bits / 32, inputs / size]`, rounded up, whose words hold those of
    /// consecutive outputs, stored like weights.
    pub zero_point: Option<TensorInfo>,
}

/// An int8 product: `y = scale of x * scale of w * sum((x - zero) * w)`, in integers up to the scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Int8 {
    /// Scales of the weight, floats: `[1]`, `[outputs, 1]`, or `[outputs, inputs / group]`.
    pub scale: TensorInfo,
    /// Consecutive inputs that share a scale; all of them unless the scheme is by group.
    pub group: usize,
    /// How activations become integers.
    pub activations: Int8Activations,
}

/// How the activations of an int8 product become integers from -128 to 127, with a scale, and a zero point that is always 0
/// where it is `symmetric`. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Int8Activations<T = TensorInfo> {
    /// Those of each token's row.
    PerToken { symmetric: bool },
    /// One for all rows that are computed together.
    PerTensor { symmetric: bool },
    /// Stored: a scale of one float, and one I8, 0 where there is none.
    Static { scale: T, zero_point: Option<T> },
}
