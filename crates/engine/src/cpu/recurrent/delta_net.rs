//! Gated delta nets and Kimi delta attention.

use super::{Chunk, Columns, decays, softplus};
use crate::cpu::CpuDevice;
use crate::cpu::device::CpuPass;
use crate::cpu::scratch::{with_scratch, with_scratch_parts};
use crate::decoder::{Batch, widened};
use crate::error::Result;
use crate::kernels::{
    DeltaRows, DeltaState, delta_scratch, exp_all, gate_sigmoid, l2_norm, softplus as softpluses, swiglu,
};
use crate::memory;
use model_factory_spec::spec::DeltaNetWeights;

/// Epsilon, added to the squared length whose root divides queries and keys (transformers `l2norm`).
const L2_EPS: f32 = 1e-6;

/// What states are advanced by.
struct Products<'p> {
    /// All queries, then all keys, then all values.
    qkv: Columns<'p>,
    gates: Columns<'p>,
    strengths: Columns<'p>,
    /// What decays are made of, one of each head or as many as a key has elements.
    alphas: Columns<'p>,
}

/// The factors of the softpluses of heads, and what is added before these.
struct Decays {
    factors: Vec<f64>,
    biases: Vec<f32>,
}

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
        let factors = decays(net.value_heads, &net.decay, net.decay_is_log)?;
        let decays = Decays { factors, biases: widened(&net.dt_bias, net.value_heads * net.decays())? };
        let CpuPass { batch, projected, mixed, .. } = pass;
        let products = self.delta_products(net, batch, width, projected)?;
        self.advance_heads((batch, mixed), layer, [net.value_heads, net.key_dim, net.value_dim], &|index, chunk| {
            self.advance_delta_head(net, index, &decays, &products, chunk)
        })
    }

    /// Makes gates and decays of the rows of `projected`, after all of them, where they have second projections.
    fn delta_products<'p>(
        &self,
        net: &DeltaNetWeights<Self>,
        batch: &Batch<'_>,
        width: usize,
        projected: &'p mut Vec<f32>,
    ) -> Result<Products<'p>> {
        let rows = batch.rows;
        let (channels, values, heads) = (net.channels(), net.values(), net.value_heads);
        let Some(second) = &net.second else {
            let columns = |first| Columns::new(projected, width, first);
            let [qkv, gates, strengths, alphas] =
                [0, channels, channels + values, channels + values + heads].map(columns);
            return Ok(Products { qkv, gates, strengths, alphas });
        };
        let (rank, all) = (second.rank, heads * net.key_dim);
        projected.resize(rows * (width + values + all), 0.0);
        let (inputs, rest) = projected.split_at_mut(rows * width);
        let (gates, alphas) = rest.split_at_mut(rows * values);
        let columns = |first| Columns::new(inputs, width, first);
        let [qkv, of_gates, strengths, of_alphas] =
            [0, channels, channels + rank, channels + rank + heads].map(columns);
        self.multiply_columns(batch, &[&second.gate], of_gates, rank, gates)?;
        self.multiply_columns(batch, &[&second.alpha], of_alphas, rank, alphas)?;
        Ok(Products { qkv, gates: Columns::new(gates, values, 0), strengths, alphas: Columns::new(alphas, all, 0) })
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
    /// Advances the state of value head `index` by the rows of `chunk`.
    fn advance_delta_head(
        &self,
        net: &DeltaNetWeights<Self>,
        index: usize,
        decays: &Decays,
        products: &Products<'_>,
        Chunk { state, first, out, rows }: Chunk<'_, '_>,
    ) -> memory::Result<()> {
        let isa = self.isa;
        let (key_dim, value_dim, each) = (net.key_dim, net.value_dim, net.decays());
        let (keys, count) = (net.key_heads * key_dim, rows.len());
        let (factor, biases) = (decays.factors[index], &decays.biases[index * each..][..each]);
        let lengths = [2 * count * key_dim, count * value_dim, count * value_dim, count * each, count];
        let rest = delta_scratch(key_dim, value_dim);
        with_scratch_parts(lengths, rest, |[keys_queries, own, mixed, decays, strengths], scratch| {
            let (head, value) = (net.key_head(index) * key_dim, index * value_dim);
            for (row, of) in rows.clone().enumerate() {
                let qkv = products.qkv.row(of);
                let (query, key) = (&qkv[head..][..key_dim], &qkv[keys + head..][..key_dim]);
                let scale = 1.0 / (key_dim as f32).sqrt();
                l2_norm(isa, key, 1.0, L2_EPS, &mut keys_queries[row * key_dim..][..key_dim]);
                l2_norm(isa, query, scale, L2_EPS, &mut keys_queries[(count + row) * key_dim..][..key_dim]);
                own[row * value_dim..][..value_dim].copy_from_slice(&qkv[2 * keys + value..][..value_dim]);
                let beta = f64::from(products.strengths.row(of)[index]);
                strengths[row] = net.strength * (1.0 / (1.0 + (-beta).exp())) as f32;
                let alphas = &products.alphas.row(of)[index * each..][..each];
                let decays = &mut decays[row * each..][..each];
                if net.second.is_none() {
                    decays[0] = (factor * softplus(f64::from(alphas[0]) + f64::from(biases[0]))).exp() as f32;
                    continue;
                }
                decays.iter_mut().zip(alphas).zip(biases).for_each(|((decay, alpha), bias)| *decay = alpha + bias);
                softpluses(isa, decays);
                decays.iter_mut().for_each(|decay| *decay *= factor as f32);
                exp_all(isa, decays);
            }
            let advanced = DeltaRows { keys_queries, values: own, decays, strengths: Some(strengths) };
            DeltaState::new(state, key_dim, value_dim, each).advance(isa, first, advanced, scratch, mixed);
            for (mixed, row) in mixed.chunks_exact(value_dim).zip(rows) {
                let gates = &products.gates.row(row)[value..][..value_dim];
                let (normed, out) = (&mut scratch[..value_dim], out.row(row));
                net.norm.apply(isa, mixed, normed);
                if net.second.is_some() {
                    out.copy_from_slice(normed);
                    gate_sigmoid(isa, gates, out);
                } else {
                    swiglu(isa, gates, normed, out);
                }
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
