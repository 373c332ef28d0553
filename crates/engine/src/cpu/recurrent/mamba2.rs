//! Mamba-2.

use super::{Chunk, decays, softplus};
use crate::cpu::CpuDevice;
use crate::cpu::device::CpuPass;
use crate::cpu::scratch::with_scratch_parts;
use crate::decoder::widened;
use crate::error::Result;
use crate::kernels::{DeltaRows, DeltaState, delta_scratch, swiglu};
use crate::memory;
use model_factory_spec::spec::Mamba2Weights;

impl CpuDevice {
    /// `projected` are the products with `input`, `gate` and `step`.
    pub(super) fn mamba2(&self, pass: &mut CpuPass<'_>, layer: usize, mamba: &Mamba2Weights<Self>) -> Result<()> {
        let &Mamba2Weights { heads, groups, head_dim, state_dim, .. } = mamba;
        let values = heads * head_dim;
        self.convolve_rows(pass, layer, &mamba.conv, true)?;
        let decays = decays(heads, &mamba.decay, mamba.decay_is_log, &mamba.step_bias)?;
        let skips = widened(&mamba.skip, heads)?;
        self.advance_heads(pass, layer, [heads, state_dim, head_dim], &|index, chunk| {
            self.advance_mamba2_head(mamba, index, (decays[index], skips[index]), chunk)
        })?;
        let Some(norm) = &mamba.norm else { return Ok(()) };
        let of_group = values / groups;
        Ok(self.each_row(&mut pass.mixed, values, |_, row| {
            let mut parts = row.chunks_exact_mut(of_group).enumerate();
            parts.try_for_each(|(group, part)| norm.apply_in_place(self.isa, group * of_group, part))
        })?)
    }

    /// Advances the state of head `index` by the rows of `chunk`. The output is what is read, plus `skip` times the value,
    /// times the SiLU of the gate. `decay` is the factor of its steps, and what is added before their softplus.
    fn advance_mamba2_head(
        &self,
        mamba: &Mamba2Weights<Self>,
        index: usize,
        ([decay, bias], skip): ([f64; 2], f32),
        Chunk { state, first, projected, out, row: at }: Chunk<'_, '_>,
    ) -> memory::Result<()> {
        let isa = self.isa;
        let &Mamba2Weights { heads, groups, head_dim, state_dim, step_limit: [least, most], .. } = mamba;
        let (values, keys) = (heads * head_dim, groups * state_dim);
        let width = mamba.conv.channels + values + heads;
        let count = projected.len() / width;
        let lengths = [2 * count * state_dim, count * head_dim, count * head_dim, count];
        let rest = delta_scratch(state_dim, head_dim);
        with_scratch_parts(lengths, rest, |[keys_queries, stepped, mixed, decays], scratch| {
            let (key, value) = (values + index / (heads / groups) * state_dim, index * head_dim);
            for (row, projected) in projected.chunks_exact(width).enumerate() {
                keys_queries[row * state_dim..][..state_dim].copy_from_slice(&projected[key..][..state_dim]);
                keys_queries[(count + row) * state_dim..][..state_dim]
                    .copy_from_slice(&projected[key + keys..][..state_dim]);
                let step = softplus(f64::from(projected[width - heads + index]) + bias).clamp(least, most);
                decays[row] = (decay * step).exp() as f32;
                let step = step as f32;
                let stepped = &mut stepped[row * head_dim..][..head_dim];
                stepped.iter_mut().zip(&projected[value..]).for_each(|(to, x)| *to = step * x);
            }
            let rows = DeltaRows { keys_queries, values: stepped, decays, strengths: None };
            DeltaState::new(state, state_dim, head_dim).advance(isa, first, rows, scratch, mixed);
            for ((row, mixed), projected) in mixed.chunks_exact_mut(head_dim).enumerate().zip(projected.chunks(width)) {
                mixed.iter_mut().zip(&projected[value..]).for_each(|(y, x)| *y += skip * x);
                let gate = &projected[mamba.conv.channels + value..][..head_dim];
                swiglu(isa, gate, mixed, out.row(at + row));
            }
            Ok(())
        })
    }
}
