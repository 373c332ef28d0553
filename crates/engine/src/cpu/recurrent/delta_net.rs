//! Gated delta nets.

use super::{Chunk, decays, softplus};
use crate::cpu::CpuDevice;
use crate::cpu::device::CpuPass;
use crate::cpu::scratch::{with_scratch, with_scratch_parts};
use crate::error::Result;
use crate::kernels::{DeltaRows, DeltaState, delta_scratch, l2_norm, swiglu};
use crate::memory;
use model_factory_spec::spec::DeltaNetWeights;

/// Epsilon, added to the squared length whose root divides queries and keys (transformers `l2norm`).
const L2_EPS: f32 = 1e-6;

impl CpuDevice {
    /// `projected` are the products with `qkvz` and `ba`.
    pub(super) fn delta_net(&self, pass: &mut CpuPass<'_>, layer: usize, net: &DeltaNetWeights<Self>) -> Result<()> {
        let width = pass.projected.len() / pass.batch.rows.max(1);
        if net.qkvz.by_key_head() || net.ba.by_key_head() {
            self.each_row(&mut pass.projected, width, |_, row| {
                with_scratch(width, |copy| {
                    order(net, row, copy);
                    Ok(())
                })
            })?;
        }
        self.convolve_rows(pass, layer, &net.conv, true)?;
        let decays = decays(net.value_heads, &net.decay, net.decay_is_log, &net.dt_bias)?;
        let CpuPass { batch, projected, mixed, .. } = pass;
        self.advance_heads((batch, mixed), layer, [net.value_heads, net.key_dim, net.value_dim], &|index, chunk| {
            let projected = &projected[chunk.rows.start * width..chunk.rows.end * width];
            self.advance_delta_head(net, index, decays[index], projected, chunk)
        })
    }
}

/// Reorders a row of products of the inputs of `net` that is grouped by heads of keys: all queries, all
/// keys, all values, all gates, then all correction strengths and all decays. `copy` has as many elements.
fn order(net: &DeltaNetWeights<CpuDevice>, row: &mut [f32], copy: &mut [f32]) {
    let shared = net.value_heads / net.key_heads;
    let (values, wide) = (shared * net.value_dim, 2 * net.value_heads);
    let (qkvz, ba) = row.split_at_mut(row.len() - wide);
    if net.qkvz.by_key_head() {
        in_order(qkvz, copy, net.key_heads, &[net.key_dim, net.key_dim, values, values]);
    }
    if net.ba.by_key_head() {
        in_order(ba, copy, net.key_heads, &[shared, shared]);
    }
}

/// `row` has `groups` of these parts; afterwards the first part of all groups, then the second of all, and so on.
pub(super) fn in_order(row: &mut [f32], copy: &mut [f32], groups: usize, parts: &[usize]) {
    let copy = &mut copy[..row.len()];
    copy.copy_from_slice(row);
    let (mut rest, mut before) = (row, 0);
    for &part in parts {
        let (out, later) = rest.split_at_mut(groups * part);
        let of_groups = copy.chunks_exact(copy.len() / groups);
        out.chunks_exact_mut(part).zip(of_groups).for_each(|(to, from)| to.copy_from_slice(&from[before..][..part]));
        (rest, before) = (later, before + part);
    }
}

impl CpuDevice {
    /// Advances the state of value head `index` by the rows of `chunk`, of which `projected` are the products. `decay` is the factor of its softplus,
    /// and what is added before it.
    fn advance_delta_head(
        &self,
        net: &DeltaNetWeights<Self>,
        index: usize,
        [decay, bias]: [f64; 2],
        projected: &[f32],
        Chunk { state, first, out, rows: at }: Chunk<'_, '_>,
    ) -> memory::Result<()> {
        let isa = self.isa;
        let (key_dim, value_dim) = (net.key_dim, net.value_dim);
        let (keys, values) = (net.key_heads * key_dim, net.value_heads * value_dim);
        let width = 2 * keys + 2 * values + 2 * net.value_heads;
        let count = at.len();
        let lengths = [2 * count * key_dim, count * value_dim, count * value_dim, count, count];
        let rest = delta_scratch(key_dim, value_dim);
        with_scratch_parts(lengths, rest, |[keys_queries, own, mixed, decays, strengths], scratch| {
            let head = net.key_head(index) * key_dim;
            for (row, projected) in projected.chunks_exact(width).enumerate() {
                let (qkv, others) = projected.split_at(2 * keys + values);
                let (query, key) = (&qkv[head..][..key_dim], &qkv[keys + head..][..key_dim]);
                let scale = 1.0 / (key_dim as f32).sqrt();
                l2_norm(isa, key, 1.0, L2_EPS, &mut keys_queries[row * key_dim..][..key_dim]);
                l2_norm(isa, query, scale, L2_EPS, &mut keys_queries[(count + row) * key_dim..][..key_dim]);
                own[row * value_dim..][..value_dim].copy_from_slice(&qkv[2 * keys + index * value_dim..][..value_dim]);
                let (beta, alpha) = (others[values + index], others[values + net.value_heads + index]);
                strengths[row] = net.strength * (1.0 / (1.0 + (-f64::from(beta)).exp())) as f32;
                decays[row] = (decay * softplus(f64::from(alpha) + bias)).exp() as f32;
            }
            let rows = DeltaRows { keys_queries, values: own, decays, strengths: Some(strengths) };
            DeltaState::new(state, key_dim, value_dim).advance(isa, first, rows, scratch, mixed);
            for (row, mixed) in mixed.chunks_exact(value_dim).enumerate() {
                let z = &projected[row * width + 2 * keys + values + index * value_dim..][..value_dim];
                let normed = &mut scratch[..value_dim];
                net.norm.apply(isa, mixed, normed);
                swiglu(isa, z, normed, out.row(at.start + row));
            }
            Ok(())
        })
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
