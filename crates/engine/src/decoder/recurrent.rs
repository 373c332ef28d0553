//! The vectors of layers with a state, on a device.

use model_factory_spec::spec::KeySharing;

/// A gated delta net but for its matrices: see [`DeltaNetWeights`](model_factory_spec::spec::DeltaNetWeights).
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
    /// Whether the products of its input stand by heads of keys: queries, keys, values and gates, and what corrects and decays.
    pub(crate) by_key_head: [bool; 2],
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

/// Mamba-2 but for its matrices: see [`Mamba2Weights`](model_factory_spec::spec::Mamba2Weights).
pub struct Mamba2<Vector, Norm> {
    /// Heads.
    pub(crate) heads: usize,
    /// Groups of them that share keys and queries, and are normed together.
    pub(crate) groups: usize,
    /// Elements of a value.
    pub(crate) head_dim: usize,
    /// Elements of a key or a query.
    pub(crate) state_dim: usize,
    /// The least and the longest step.
    pub(crate) step_limit: [f64; 2],
    /// Over values, keys and queries.
    pub(crate) conv: Conv<Vector>,
    /// Added before the softplus, `[heads]`.
    pub(crate) step_bias: Vector,
    /// What a step is multiplied by, `[heads]`.
    pub(crate) decay: Vector,
    /// Whether `decay` is the logarithm of its negative.
    pub(crate) decay_is_log: bool,
    /// What a value is multiplied by to be added to what is read, `[heads]`.
    pub(crate) skip: Vector,
    /// Of the output, group by group.
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
    /// Brings a row of the products of its input in order, where they stand by heads of keys: all queries, all keys, all values, all
    /// gates, then what corrects and what decays. `copy` has as many elements.
    pub(crate) fn order(&self, row: &mut [f32], copy: &mut [f32]) {
        let shared = self.value_heads / self.key_heads;
        let (values, wide) = (shared * self.value_dim, 2 * self.value_heads);
        let (qkvz, ba) = row.split_at_mut(row.len() - wide);
        if self.by_key_head[0] {
            in_order(qkvz, copy, self.key_heads, &[self.key_dim, self.key_dim, values, values]);
        }
        if self.by_key_head[1] {
            in_order(ba, copy, self.key_heads, &[shared, shared]);
        }
    }

    /// Which head of keys value head `head` has.
    pub(crate) fn key_head(&self, head: usize) -> usize {
        match self.sharing {
            KeySharing::Neighbours => head / (self.value_heads / self.key_heads),
            KeySharing::Strided => head % self.key_heads,
        }
    }
}

/// `row` has `groups` of these parts, and then the first part of all groups, the second of all, and so on.
fn in_order(row: &mut [f32], copy: &mut [f32], groups: usize, parts: &[usize]) {
    let copy = &mut copy[..row.len()];
    copy.copy_from_slice(row);
    let (mut rest, mut before) = (row, 0);
    for &part in parts {
        let (out, behind) = rest.split_at_mut(groups * part);
        let of_groups = copy.chunks_exact(copy.len() / groups);
        out.chunks_exact_mut(part).zip(of_groups).for_each(|(to, from)| to.copy_from_slice(&from[before..][..part]));
        (rest, before) = (behind, before + part);
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn parts_of_groups_become_groups_of_parts() {
        let mut row = [1.0, 10.0, 11.0, 100.0, 2.0, 20.0, 21.0, 200.0, 3.0, 30.0, 31.0, 300.0];
        in_order(&mut row, &mut [f32::NAN; 14], 3, &[1, 2, 1]);
        assert_eq!(row, [1.0, 2.0, 3.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0, 100.0, 200.0, 300.0]);
    }
}
