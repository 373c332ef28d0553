//! Mamba and Mamba-2.

use super::delta_net::in_order;
use super::{Chunk, Columns, decays, softplus};
use crate::cpu::CpuDevice;
use crate::cpu::device::CpuPass;
use crate::cpu::scratch::{with_scratch, with_scratch_parts};
use crate::decoder::{Batch, widened};
use crate::error::Result;
use crate::kernels::{DeltaRows, DeltaState, ScanRows, ScanState, delta_scratch, divide_by_rms, exp_all, swiglu};
use crate::memory;
use model_factory_spec::spec::{MambaWeights, SelectionWeights};

type Weights = MambaWeights<CpuDevice>;

/// What states are advanced by.
struct Products<'p> {
    values: Columns<'p>,
    /// Those of all groups, and after them as many queries.
    keys: Columns<'p>,
    gates: Columns<'p>,
    steps: Columns<'p>,
}

impl CpuDevice {
    /// `projected` are the products of the mixer's inputs.
    pub(super) fn mamba(&self, pass: &mut CpuPass<'_>, layer: usize, mamba: &Weights) -> Result<()> {
        let &MambaWeights { heads, groups, head_dim, .. } = mamba;
        let values = heads * head_dim;
        if mamba.gate.is_none() {
            self.each_row(&mut pass.projected, 2 * values, |_, row| {
                with_scratch(2 * values, |copy| {
                    in_order(row, copy, heads, &[head_dim, head_dim]);
                    row.rotate_left(values);
                    Ok(())
                })
            })?;
        }
        self.convolve_rows(pass, layer, &mamba.conv, true)?;
        let CpuPass { batch, projected, mixed, .. } = pass;
        let width = projected.len() / batch.rows.max(1);
        let products = match &mamba.selection {
            Some(selection) => self.select(mamba, selection, batch, projected)?,
            None => {
                let columns = |first| Columns::new(projected, width, first);
                let [keys, gates, steps] = [values, mamba.conv.channels, width - heads].map(columns);
                Products { values: columns(0), keys, gates, steps }
            }
        };
        let skips = widened(&mamba.skip, heads)?;
        let (states, biases) = (mamba.states(), widened(&mamba.step_bias, heads)?);
        if mamba.by_element {
            return self.advance_heads((batch, mixed), layer, states, &|index, chunk| {
                self.scan(mamba, index, (&biases, &skips), &products, chunk)
            });
        }
        let decays = decays(heads, &mamba.decay, mamba.decay_is_log)?;
        self.advance_heads((batch, mixed), layer, states, &|index, chunk| {
            let decay = [decays[index], f64::from(biases[index])];
            self.advance_mamba_head(mamba, index, (decay, skips[index]), &products, chunk)
        })?;
        let Some(norm) = &mamba.norm else { return Ok(()) };
        let of_group = values / groups;
        Ok(self.each_row(&mut pass.mixed, values, |_, row| {
            let mut parts = row.chunks_exact_mut(of_group).enumerate();
            parts.try_for_each(|(group, part)| norm.apply_in_place(self.isa, group * of_group, part))
        })?)
    }

    /// Makes keys, queries and steps of the convolved values, the first half of each row of `projected`, after all rows.
    fn select<'p>(
        &self,
        mamba: &Weights,
        selection: &SelectionWeights<Self>,
        batch: &Batch<'_>,
        projected: &'p mut Vec<f32>,
    ) -> Result<Products<'p>> {
        let rows = batch.rows;
        let (values, heads, &SelectionWeights { rank, norm_eps, .. }) = (mamba.values(), mamba.heads, selection);
        let (width, selected) = (2 * values, rank + 2 * mamba.state_dim);
        projected.resize(rows * (width + selected + heads), 0.0);
        let (inputs, rest) = projected.split_at_mut(rows * width);
        let (made, steps) = rest.split_at_mut(rows * selected);
        let matrices: Vec<_> = selection.matrices.iter().collect();
        self.multiply_columns(batch, &matrices, Columns::new(inputs, width, 0), values, made)?;
        if norm_eps.is_some() || !selection.norms.is_empty() {
            self.each_row(made, selected, |_, row| {
                let mut rest = row;
                for (index, len) in [rank, mamba.state_dim, mamba.state_dim].into_iter().enumerate() {
                    let (part, later) = rest.split_at_mut(len);
                    match (selection.norms.get(index), norm_eps) {
                        (Some(norm), _) => norm.apply_in_place(self.isa, 0, part)?,
                        (None, Some(eps)) => divide_by_rms(self.isa, part, eps as f32),
                        (None, None) => {}
                    }
                    rest = later;
                }
                Ok(())
            })?;
        }
        self.multiply_columns(batch, &[&mamba.step], Columns::new(made, selected, 0), rank, steps)?;
        let (inputs, made, steps) = (&*inputs, &*made, &*steps);
        Ok(Products {
            values: Columns::new(inputs, width, 0),
            keys: Columns::new(made, selected, rank),
            gates: Columns::new(inputs, width, values),
            steps: Columns::new(steps, heads, 0),
        })
    }

    /// Advances the state of head `index` by the rows of `chunk`. The output is what is read, plus `skip` times the value,
    /// times the SiLU of the gate. `decay` is the factor of its steps, and what is added before their softplus.
    fn advance_mamba_head(
        &self,
        mamba: &Weights,
        index: usize,
        ([decay, bias], skip): ([f64; 2], f32),
        products: &Products<'_>,
        Chunk { state, first, out, rows }: Chunk<'_, '_>,
    ) -> memory::Result<()> {
        let isa = self.isa;
        let &MambaWeights { heads, groups, head_dim, state_dim, step_limit: [least, most], .. } = mamba;
        let count = rows.len();
        let lengths = [2 * count * state_dim, count * head_dim, count * head_dim, count];
        let rest = delta_scratch(state_dim, head_dim);
        with_scratch_parts(lengths, rest, |[keys_queries, stepped, mixed, decays], scratch| {
            let (key, value) = (index / (heads / groups) * state_dim, index * head_dim);
            for (row, of) in rows.clone().enumerate() {
                let keys = products.keys.row(of);
                keys_queries[row * state_dim..][..state_dim].copy_from_slice(&keys[key..][..state_dim]);
                keys_queries[(count + row) * state_dim..][..state_dim]
                    .copy_from_slice(&keys[groups * state_dim + key..][..state_dim]);
                let step = softplus(f64::from(products.steps.row(of)[index]) + bias).clamp(least, most);
                decays[row] = (decay * step).exp() as f32;
                let step = step as f32;
                let stepped = &mut stepped[row * head_dim..][..head_dim];
                stepped.iter_mut().zip(&products.values.row(of)[value..]).for_each(|(to, x)| *to = step * x);
            }
            let advanced = DeltaRows { keys_queries, values: stepped, decays, strengths: None };
            DeltaState::new(state, state_dim, head_dim, 1).advance(isa, first, advanced, scratch, mixed);
            for (mixed, row) in mixed.chunks_exact_mut(head_dim).zip(rows) {
                mixed.iter_mut().zip(&products.values.row(row)[value..]).for_each(|(y, x)| *y += skip * x);
                swiglu(isa, &products.gates.row(row)[value..][..head_dim], mixed, out.row(row));
            }
            Ok(())
        })
    }

    /// Advances the states of values `index` by the rows of `chunk`, where each element of a state has a decay.
    fn scan(
        &self,
        mamba: &Weights,
        index: usize,
        (biases, skips): (&[f32], &[f32]),
        products: &Products<'_>,
        Chunk { state, first, out, rows }: Chunk<'_, '_>,
    ) -> memory::Result<()> {
        let (isa, count, [_, keys, width]) = (self.isa, rows.len(), mamba.states());
        let [from, to] = [index * width, (index + 1) * width];
        let lengths = [count * keys, count * keys, count * width, count * width, keys * width];
        with_scratch_parts(lengths, width * keys.max(count), |[of_keys, queries, steps, values, decays], scratch| {
            let stored = &mut scratch[..width * keys];
            self.read(&mamba.decay, from * keys..to * keys, stored);
            let sign = if mamba.decay_is_log { -1.0 } else { 1.0 };
            if mamba.decay_is_log {
                exp_all(isa, stored);
            }
            for (channel, stored) in stored.chunks_exact(keys).enumerate() {
                decays[channel..].iter_mut().step_by(width).zip(stored).for_each(|(to, x)| *to = sign * x);
            }
            for (row, of) in rows.clone().enumerate() {
                let (key, query) = products.keys.row(of).split_at(keys);
                of_keys[row * keys..][..keys].copy_from_slice(key);
                queries[row * keys..][..keys].copy_from_slice(query);
                values[row * width..][..width].copy_from_slice(&products.values.row(of)[from..to]);
                let steps = &mut steps[row * width..][..width];
                for ((step, x), bias) in steps.iter_mut().zip(&products.steps.row(of)[from..to]).zip(&biases[from..to])
                {
                    *step = softplus(f64::from(*x) + f64::from(*bias)) as f32;
                }
            }
            let mixed = &mut scratch[..count * width];
            let advanced = ScanRows { keys: of_keys, queries, steps, values, decays };
            ScanState::new(state, keys, width).advance(isa, first, advanced, mixed);
            for ((mixed, values), row) in mixed.chunks_exact_mut(width).zip(values.chunks_exact(width)).zip(rows) {
                mixed.iter_mut().zip(values).zip(&skips[from..to]).for_each(|((y, x), skip)| *y += skip * x);
                swiglu(isa, &products.gates.row(row)[from..to], mixed, out.row(row));
            }
            Ok(())
        })
    }
}
