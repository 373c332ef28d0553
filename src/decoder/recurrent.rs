//! The vectors of layers with a state, on a device.

use model_diagnostics::spec::KeySharing;

/// A gated delta net but for its matrices: see [`DeltaNetWeights`](model_diagnostics::spec::DeltaNetWeights).
pub struct DeltaNet<Vector, Norm> {
    /// Heads of queries and keys.
    pub(crate) key_heads: usize,
    /// Heads of values.
    pub(crate) value_heads: usize,
    /// Elements of a query or a key.
    pub(crate) key_dim: usize,
    /// Elements of a value.
    pub(crate) value_dim: usize,
    /// Which value heads share a head of keys.
    pub(super) sharing: KeySharing,
    /// Over queries, keys and values.
    pub(crate) conv: Conv<Vector>,
    /// Added before the softplus, `[value_heads]`.
    pub(crate) dt_bias: Vector,
    /// What the softplus is multiplied by, `[value_heads]`.
    pub(crate) decay: Vector,
    /// Whether `decay` is the logarithm of its negative.
    pub(crate) decay_is_log: bool,
    /// Of every head of the output.
    pub(crate) norm: Norm,
}

/// A causal convolution of every channel by itself.
pub struct Conv<Vector> {
    /// `[channels, kernel]`, the current position last.
    pub(crate) weight: Vector,
    /// `[channels]`.
    pub(crate) bias: Option<Vector>,
    /// Elements of a row.
    pub(crate) channels: usize,
    /// Positions that an output depends on.
    pub(crate) kernel: usize,
}

impl<Vector, Norm> DeltaNet<Vector, Norm> {
    /// Which head of keys value head `head` has.
    pub(crate) fn key_head(&self, head: usize) -> usize {
        match self.sharing {
            KeySharing::Neighbours => head / (self.value_heads / self.key_heads),
            KeySharing::Strided => head % self.key_heads,
        }
    }
}
