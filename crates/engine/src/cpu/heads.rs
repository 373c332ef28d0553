//! The sizes of attention, and the changes to queries, keys and values before they are stored.

use super::device::CpuPass;
use super::{CpuDevice, scratch};
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::{AttentionWeights, KeyValueProjections, KeysValues, LayerWeights};

#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) kv: usize,
    pub(super) dim: usize,
    /// Elements of a value; where they are fewer, values are the first elements of keys, and only keys are stored.
    pub(super) value_dim: usize,
    /// Whether each query has a gate.
    pub(super) gated: bool,
    /// Columns of gates after keys and values.
    pub(super) gates: usize,
    /// Whether keys and values are kept in pages.
    pub(super) cached: bool,
}

impl Heads {
    /// The heads of a layer, none where it is not attention; and which other layer stores its keys and values.
    pub(super) fn of(layer: &LayerWeights) -> (Heads, Option<usize>) {
        let none = Heads { queries: 0, kv: 0, dim: 0, value_dim: 0, gated: false, gates: 0, cached: false };
        let Some(attention) = layer.attention() else { return (none, None) };
        let &AttentionWeights { heads: queries, kv_heads: kv, head_dim: dim, gated, gates, causal: cached, .. } =
            attention;
        let source = match attention.kv {
            KeysValues::OfLayer(source) => Some(source),
            KeysValues::Own(_) | KeysValues::Latent(_) => None,
        };
        let value_dim = attention.kv.latent().map_or(dim, |latent| latent.rank);
        (Heads { queries, kv, dim, value_dim, gated, gates, cached }, source)
    }

    /// Whether values are the first elements of keys.
    pub(super) fn values_are_keys(self) -> bool {
        self.value_dim < self.dim
    }

    /// Heads of what is stored: keys, and values that are not keys.
    pub(super) fn stored(self) -> usize {
        if self.values_are_keys() { self.kv } else { 2 * self.kv }
    }

    /// The shares into which queries are divided as tasks: those of one head of keys, or some of those of latents.
    pub(super) fn shares(self) -> usize {
        // Fewer would order the values of a tile for too few.
        const LEAST: usize = 8;
        if !self.values_are_keys() {
            return self.kv;
        }
        let most = (self.queries / self.kv / LEAST).max(1);
        self.kv * (1..=most).rev().find(|shares| (self.queries / self.kv).is_multiple_of(*shares)).unwrap_or(1)
    }

    /// Columns of queries.
    pub(super) fn width(self) -> usize {
        self.queries * self.dim
    }

    /// The first column of keys, after queries and their gates.
    pub(super) fn keys(self) -> usize {
        self.width() * if self.gated { 2 } else { 1 }
    }

    /// Columns of q, k, v and gates of their own side by side.
    pub(super) fn qkv_width(self) -> usize {
        self.keys() + 2 * self.kv * self.dim + self.gates
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
        let (dim, keys_are_values) = (heads.dim, own.is_some_and(|own| own.projections.are_keys()));
        if keys_are_values {
            widen(qkv, batch.rows, heads.qkv_width());
        }
        let width = qkv.len() / batch.rows.max(1);
        let angles = attention.rope.map(|rope| &batch.angles[rope]);
        let kv = if own.is_some() { heads.kv } else { 0 };
        let v_norm_eps = own.and_then(|own| own.v_norm_eps).map(|eps| eps as f32);
        let norms = [attention.q_norm.as_ref(), attention.k_norm()];
        let normed = |row: [&mut [f32]; 2]| {
            for (norm, heads) in norms.into_iter().zip(row) {
                let Some(norm) = norm else { continue };
                let width = if attention.norms_each_head { dim } else { norm.width };
                let mut parts = heads.chunks_exact_mut(width).enumerate();
                parts.try_for_each(|(part, head)| norm.apply_in_place(self.isa, part * width % norm.width, head))?;
            }
            Ok(())
        };
        // The groups of heads whose queries, keys and values are next to each other, and whether values come first.
        let groups = own.and_then(|own| match own.projections {
            KeyValueProjections::ByHeads => Some((heads.kv, false)),
            KeyValueProjections::Groups(count) => Some((count, true)),
            _ => None,
        });
        self.each_row(qkv, width, |row, qkv| {
            if let Some(groups) = groups {
                part_heads(qkv, heads, groups)?;
            }
            if let Some(limit) = attention.qkv_limit {
                qkv.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
            }
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
                v[..kv * dim].chunks_exact_mut(dim).for_each(|head| kernels::divide_by_rms(self.isa, head, eps));
            }
            if !attention.norms_rotated {
                normed([&mut *q, &mut *k])?;
            }
            if let Some(angles) = angles {
                for head in q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)) {
                    angles.rotate(self.isa, row, head);
                }
            }
            if attention.norms_rotated {
                normed([&mut *q, k])?;
            }
            if let Some(scale) = attention.query_scale {
                let scale = scale.at(batch.position(row));
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

/// For each of `count` groups of heads its queries, its keys and its values, or values before keys -> all queries, all keys, all
/// values.
fn part_heads(
    row: &mut [f32],
    Heads { queries, kv, dim, .. }: Heads,
    (count, values_first): (usize, bool),
) -> memory::Result<()> {
    scratch::with_scratch(row.len(), |groups| {
        groups.copy_from_slice(row);
        let (width, each) = (queries / count * dim, kv / count * dim);
        let (q, others) = row.split_at_mut(queries * dim);
        let (k, v) = others.split_at_mut(kv * dim);
        let heads = k.chunks_exact_mut(each).zip(v.chunks_exact_mut(each));
        for ((q, (k, v)), group) in q.chunks_exact_mut(width).zip(heads).zip(groups.chunks_exact(width + 2 * each)) {
            let (of_q, others) = group.split_at(width);
            q.copy_from_slice(of_q);
            let (first, second) = if values_first { (v, k) } else { (k, v) };
            first.copy_from_slice(&others[..each]);
            second.copy_from_slice(&others[each..]);
        }
        Ok(())
    })
}
