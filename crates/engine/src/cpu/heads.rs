//! The sizes of attention, and the changes to queries, keys and values before they are stored.

use super::device::CpuPass;
use super::{CpuDevice, scratch};
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::{AttentionWeights, KeysValues, LayerWeights};

#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) kv: usize,
    pub(super) dim: usize,
    /// Whether each query has a gate.
    pub(super) gated: bool,
    /// Whether keys and values are kept in pages.
    pub(super) cached: bool,
}

impl Heads {
    /// The heads of a layer, none where it is not attention; and which other layer stores its keys and values.
    pub(super) fn of(layer: &LayerWeights) -> (Heads, Option<usize>) {
        let none = Heads { queries: 0, kv: 0, dim: 0, gated: false, cached: false };
        let Some(attention) = layer.attention() else { return (none, None) };
        let &AttentionWeights { heads: queries, kv_heads: kv, head_dim: dim, gated, causal: cached, .. } = attention;
        let source = match attention.kv {
            KeysValues::OfLayer(source) => Some(source),
            KeysValues::Own(_) => None,
        };
        (Heads { queries, kv, dim, gated, cached }, source)
    }

    /// Columns of queries, or of the output of attention.
    pub(super) fn width(self) -> usize {
        self.queries * self.dim
    }

    /// The first column of keys, after queries and their gates.
    pub(super) fn keys(self) -> usize {
        self.width() * if self.gated { 2 } else { 1 }
    }

    /// Columns of q, k and v side by side.
    pub(super) fn qkv_width(self) -> usize {
        self.keys() + 2 * self.kv * self.dim
    }
}

impl CpuDevice {
    /// Norms q, k and v as `attention` says, and rotates every head of q and k by its row's position if angles are given.
    pub(super) fn rotate(
        &self,
        CpuPass { batch, projected: qkv, .. }: &mut CpuPass<'_>,
        layer: usize,
        attention: &AttentionWeights<Self>,
    ) -> memory::Result<()> {
        let (heads, own) = (self.layout.layers[layer].heads, attention.kv.own());
        let (dim, keys_are_values) = (heads.dim, own.is_some_and(|own| own.v.is_none()));
        if keys_are_values {
            widen(qkv, batch.rows, heads.qkv_width());
        }
        let width = qkv.len() / batch.rows.max(1);
        let angles = attention.rope.map(|rope| &batch.angles[rope]);
        let kv = if own.is_some() { heads.kv } else { 0 };
        let v_norm_eps = own.and_then(|own| own.v_norm_eps).map(|eps| eps as f32);
        let norms = [attention.q_norm.as_ref(), attention.k_norm()];
        self.each_row(qkv, width, |row, qkv| {
            let (q, others) = qkv.split_at_mut(heads.keys());
            if heads.gated {
                part_gates(q, dim)?;
            }
            let (k, v) = others.split_at_mut(kv * dim);
            let q = &mut q[..heads.width()];
            if keys_are_values {
                v.copy_from_slice(k);
            }
            if let Some(eps) = v_norm_eps {
                v.chunks_exact_mut(dim).for_each(|head| kernels::divide_by_rms(self.isa, head, eps));
            }
            for (norm, heads) in norms.into_iter().zip([&mut *q, &mut *k]) {
                let Some(norm) = norm else { continue };
                heads.chunks_exact_mut(norm.width).try_for_each(|heads| norm.apply_in_place(self.isa, 0, heads))?;
            }
            let Some(angles) = angles else { return Ok(()) };
            for head in q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)) {
                angles.rotate(self.isa, row, head);
            }
            if let Some(scale) = angles.query_scale(row) {
                q.iter_mut().for_each(|x| *x *= scale);
            }
            Ok(())
        })
    }
}

/// Makes room after each of the `rows` of `x`, so that they have `width` elements.
fn widen(x: &mut Vec<f32>, rows: usize, width: usize) {
    let narrow = x.len() / rows.max(1);
    x.resize(rows * width, 0.0);
    for row in (1..rows).rev() {
        x.copy_within(row * narrow..(row + 1) * narrow, row * width);
    }
}

/// A query and a gate in turn -> all queries, then all gates.
fn part_gates(row: &mut [f32], dim: usize) -> memory::Result<()> {
    scratch::with_scratch(row.len(), |pairs| {
        pairs.copy_from_slice(row);
        let (queries, gates) = row.split_at_mut(pairs.len() / 2);
        let heads = queries.chunks_exact_mut(dim).zip(gates.chunks_exact_mut(dim));
        for ((query, gate), pair) in heads.zip(pairs.chunks_exact(2 * dim)) {
            query.copy_from_slice(&pair[..dim]);
            gate.copy_from_slice(&pair[dim..]);
        }
        Ok(())
    })
}
