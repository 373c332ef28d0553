//! The options of a block that tables of families and specs of models share.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The activation of a feed-forward layer, with its gate projection where it has one. Complete.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Activation<Gate = ()> {
    /// `silu(gate) * up`.
    SwiGlu { gate: Gate },
    /// `gelu(gate) * up`, with gelu by its tanh formula.
    GeGlu { gate: Gate },
    /// `gelu(gate) * up`, with gelu by the error function.
    GeGluErf { gate: Gate },
    /// `max(gate, 0) * up`.
    ReGlu { gate: Gate },
    /// `gate * sigmoid(alpha * gate) * (up + 1)`, with `gate` at most `limit` and `up` between `-limit` and `limit`.
    ClampedSwiGlu { gate: Gate, limit: f32, alpha: f32 },
    /// `gelu(up)`, by its tanh formula.
    GeluTanh,
    /// `gelu(up)`, by the error function.
    Gelu,
    /// `up * sigmoid(1.702 * up)`.
    QuickGelu,
    /// `max(up, 0)^2`.
    ReluSquared,
    /// xIELU of `up` (arXiv 2411.13010), by the numbers that a layer has learned.
    XIelu,
    /// `max(up, 0)`.
    Relu,
}

impl<Gate> Activation<Gate> {
    /// The gate projection.
    pub fn gate(&self) -> Option<&Gate> {
        match self {
            Activation::SwiGlu { gate }
            | Activation::GeGlu { gate }
            | Activation::GeGluErf { gate }
            | Activation::ReGlu { gate }
            | Activation::ClampedSwiGlu { gate, .. } => Some(gate),
            Activation::GeluTanh
            | Activation::Gelu
            | Activation::QuickGelu
            | Activation::Relu
            | Activation::ReluSquared
            | Activation::XIelu => None,
        }
    }

    /// The same activation with the gate that `make` returns for this one.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn try_map<'g, G, E>(&'g self, make: impl FnOnce(&'g Gate) -> Result<G, E>) -> Result<Activation<G>, E> {
        Ok(match self {
            Activation::SwiGlu { gate } => Activation::SwiGlu { gate: make(gate)? },
            Activation::GeGlu { gate } => Activation::GeGlu { gate: make(gate)? },
            Activation::GeGluErf { gate } => Activation::GeGluErf { gate: make(gate)? },
            Activation::ReGlu { gate } => Activation::ReGlu { gate: make(gate)? },
            &Activation::ClampedSwiGlu { ref gate, limit, alpha } => {
                Activation::ClampedSwiGlu { gate: make(gate)?, limit, alpha }
            }
            Activation::GeluTanh => Activation::GeluTanh,
            Activation::Gelu => Activation::Gelu,
            Activation::QuickGelu => Activation::QuickGelu,
            Activation::ReluSquared => Activation::ReluSquared,
            Activation::XIelu => Activation::XIelu,
            Activation::Relu => Activation::Relu,
        })
    }
}

/// The activation of a layer without a gate, outside of the blocks. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseActivation {
    /// `tanh(x)`.
    Tanh,
    /// `gelu(x)` by the error function.
    Gelu,
    /// `max(x, 0)`.
    Relu,
}

impl DenseActivation {
    /// The activation that transformers calls `name`.
    pub fn named(name: &str) -> Option<DenseActivation> {
        match name {
            "tanh" => Some(DenseActivation::Tanh),
            "gelu" => Some(DenseActivation::Gelu),
            "relu" => Some(DenseActivation::Relu),
            _ => None,
        }
    }
}

/// How the vectors of tokens become a vector of the text. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The vector of the last token.
    Last,
    /// The mean of all token vectors.
    Mean,
    /// The vector of the first token.
    Cls,
    /// The largest of each element.
    Max,
    /// The mean weighted by position, from 1 on.
    #[serde(rename = "weightedmean")]
    WeightedMean,
    /// The sum over the square root of the number of tokens.
    #[serde(rename = "mean_sqrt_len_tokens")]
    MeanSqrtLen,
}

impl Pooling {
    /// The pooling that sentence-transformers calls `name`.
    pub fn named(name: &str) -> Option<Pooling> {
        Some(match name {
            "lasttoken" => Pooling::Last,
            "mean" => Pooling::Mean,
            "cls" => Pooling::Cls,
            "max" => Pooling::Max,
            "weightedmean" => Pooling::WeightedMean,
            "mean_sqrt_len_tokens" => Pooling::MeanSqrtLen,
            _ => return None,
        })
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The order of queries, keys and values in one matrix. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvOrder {
    /// All queries, then all keys, then all values.
    AfterQueries,
    /// For every head of keys its queries, its key and its value.
    ByHeads,
    /// In so many equal groups of heads, each with its queries, its values and its keys.
    Groups(usize),
}

/// Buckets of distances between positions, as MPNet and T5 have them.
pub const DISTANCE_BUCKETS: usize = 32;

/// The bucket of a key `distance` positions after the query: half of the buckets are for later positions, and of each half one half
/// for a distance each, the rest for distances up to 128 by their logarithm (transformers' `relative_position_bucket`).
pub fn distance_bucket(distance: isize) -> usize {
    const HALF: usize = DISTANCE_BUCKETS / 2;
    const EXACT: usize = HALF / 2;
    let far = distance.unsigned_abs();
    // The logarithm of the square, whose whole numbers are exact: those of 8 to 128 are 6 to 14.
    let large = || (far.saturating_mul(far).ilog2() as usize + EXACT - 6).min(HALF - 1);
    let bucket = if far < EXACT { far } else { large() };
    bucket + if distance > 0 { HALF } else { 0 }
}

/// Relative positions as DeBERTa has them: rows of a matrix, near ones with a row each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativePositions {
    /// Rows to either side: those of later keys come first.
    pub span: usize,
    /// Where positions further than half of the span share rows by the logarithm of their distance: the position that has the
    /// last row. Otherwise each has its own, and those past the span have the last one.
    pub furthest: Option<usize>,
}

impl RelativePositions {
    /// The row of a key `distance` positions before the query (transformers' `make_log_bucket_position`, in F32 as there).
    pub fn row(self, distance: isize) -> usize {
        let (far, half) = (distance.unsigned_abs(), self.span / 2);
        let log = |far: usize| (f64::from(far as f32 / half as f32)).ln() as f32;
        let bucket = match self.furthest {
            Some(furthest) if far > half => {
                let part = log(far) / log(furthest - 1) * (half - 1) as f32;
                part.ceil() as usize + half
            }
            _ => far,
        };
        match distance < 0 {
            true => self.span.saturating_sub(bucket),
            false => self.span.saturating_add(bucket).min(2 * self.span - 1),
        }
    }
}

/// Which elements of a head are rotated as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeLayout {
    /// Elements `i` and `i + dimensions / 2`.
    HalfSplit,
    /// Elements `2i` and `2i + 1`.
    Interleaved,
}

impl fmt::Display for RopeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How the outputs of a router become weights. Complete.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum RouterScore {
    /// The softmax over all experts; the largest are chosen.
    Softmax,
    /// The largest outputs are chosen; the weights are the softmax over these.
    SoftmaxOfChosen,
    /// The sigmoid of each output; the largest are chosen.
    Sigmoid,
    /// The method of Phi-3.5-MoE: experts are chosen one after the other, each weighted by a softmax over the remaining
    /// experts that lie no further than `2 * jitter` of the largest below it; `jitter` is the model's `router_jitter_noise`.
    SparseMixer { jitter: f64 },
}

/// What experts and their router read of a block. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertInput {
    /// The norm of the residual stream after the mixer.
    AfterMixer,
    /// The same; the router reads the residual stream before the mixer, without a norm.
    RouterBefore,
    /// The norm of the residual stream before the mixer.
    Before,
    /// The norm of the residual stream after the mixer; for each expert times its weight, which its output has not.
    Weighed,
}

/// Which value heads share a key head; each is shared by `value_heads / key_heads` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// Neighbors share: head `i` has the keys `i / (value_heads / key_heads)` (safetensors).
    Neighbours,
    /// Every `key_heads`-th head shares: head `i` has the keys `i % key_heads` (GGUF).
    Strided,
}

/// How the rows of an image attend in a sequence of text. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRows {
    /// As those of ids: to earlier rows.
    Causal,
    /// To all rows of the image, and to earlier ones. One step computes all of them, so there is a largest image.
    BothSides {
        /// Rows of the largest image.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::{RelativePositions, distance_bucket};

    /// Those of transformers' `make_log_bucket_position(.., 256, 512)`, and of relative positions without buckets.
    #[test]
    fn relative_positions_have_rows_to_either_side() {
        let buckets = RelativePositions { span: 256, furthest: Some(512) };
        let distances = [0, 1, 127, 128, 129, 130, 200, 300, 400, 510, 511, 512, 5000];
        let rows = distances.map(|distance| buckets.row(distance) - 256);
        assert_eq!(rows, [0, 1, 127, 128, 129, 130, 169, 207, 233, 255, 255, 255, 255]);
        let later = distances.map(|distance| 256 - buckets.row(-distance));
        assert_eq!(later, [0, 1, 127, 128, 129, 130, 169, 207, 233, 255, 255, 256, 256]);
        let plain = RelativePositions { span: 4, furthest: None };
        assert_eq!([-9, -4, -1, 0, 3, 4, 9].map(|distance| plain.row(distance)), [0, 0, 3, 4, 7, 7, 7]);
    }

    /// Those of transformers' `MPNetEncoder.relative_position_bucket` in float32.
    #[test]
    fn far_positions_share_buckets() {
        let buckets = [0, 1, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 500].map(
            |distance: isize| {
                assert_eq!(distance_bucket(distance), distance_bucket(-distance) + if distance > 0 { 16 } else { 0 });
                distance_bucket(-distance)
            },
        );
        assert_eq!(buckets, [0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]);
    }
}
