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

/// Which token vectors become the vector of the text. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The vector of the last token.
    Last,
    /// The mean of all token vectors.
    Mean,
    /// The vector of the first token.
    Cls,
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

#[cfg(test)]
mod tests {
    use super::distance_bucket;

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
