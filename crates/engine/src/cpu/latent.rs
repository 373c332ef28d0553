//! Attention to latents (DeepSeek V2, arXiv 2405.04434): the cache holds a latent and one rotated key for all heads.
//!
//! Prompts and single tokens are computed in one way, as a position's bits must not depend on which it is: a query is
//! multiplied by its head's part of the projection of keys, attends to latents as to one head of keys and values, and what
//! it attends to is multiplied by the part for values. The other way, keys and values of all heads made of the latents,
//! takes fewer operations in long prompts, and would make those of the whole context again for every token.

use super::attention::AttentionPass;
use super::device::CpuPass;
use super::matrix::Matrix;
use super::operand::Operands;
use super::page::KvRows;
use super::{CpuDevice, TASK_ROWS, scratch};
use crate::decoder::LatentLayers;
use crate::error::{Error, Result};
use crate::memory::{self, Refusals};
use model_factory_spec::spec::{AttentionWeights, ExpertMatrices, LatentWeights, QueryWeights};

impl LatentLayers<CpuDevice> for CpuDevice {
    fn absorb_and_store(
        &self,
        pass: &mut CpuPass<'_>,
        layer: usize,
        attention: &AttentionWeights<CpuDevice>,
    ) -> Result<()> {
        let latent = weights(attention)?;
        let (&LatentWeights { rank, plain, rotated, .. }, heads) = (latent, attention.heads);
        let CpuPass { batch, projected, .. } = pass;
        let (rows, [first, whole]) = (batch.rows, latent.queries(heads));
        // The products of the inputs, the second products of queries, and the queries that attend.
        let (width, up) = (first + rank + rotated, if latent.q_up.is_some() { whole } else { 0 });
        let absorbed = heads * (rank + rotated);
        projected.resize(rows * (width + up + absorbed), 0.0);
        let (inputs, rest) = projected.split_at_mut(rows * width);
        let (ups, queries) = rest.split_at_mut(rows * up);
        if let Some(QueryWeights { norm, matrix, .. }) = &latent.q_up {
            let form = std::iter::once(matrix.form);
            let operands = Operands::prepare(&self.spare, form, first, |input, form| {
                input.fill(&self.pool, self.isa, form, rows, first, |row, normed| {
                    norm.apply(self.isa, &inputs[row * width..][..first], normed);
                })
            })?;
            self.multiply(&[matrix], &operands, rows, ups)?;
        }
        let angles = attention.rope.map(|rope| &batch.angles[rope]);
        self.each_row(inputs, width, |row, x| {
            let (latents, key) = x[first..].split_at_mut(rank);
            latent.norm.apply_in_place(self.isa, 0, latents)?;
            if let Some(angles) = angles {
                angles.rotate(self.isa, row, key);
            }
            Ok(())
        })?;
        let query = |row: usize, head: usize| {
            let all = if up > 0 { &ups[row * whole..] } else { &inputs[row * width..] };
            all[head * (plain + rotated)..][..plain + rotated].split_at(plain)
        };
        let rotate = |row: usize, head: usize, out: &mut [f32]| {
            out[rank..].copy_from_slice(query(row, head).1);
            if let Some(angles) = angles {
                angles.rotate(self.isa, row, &mut out[rank..]);
            }
            if let Some(scale) = attention.query_scale {
                let scale = scale.at(batch.position(row));
                out.iter_mut().for_each(|x| *x *= scale);
            }
        };
        self.multiply_heads(&latent.keys, queries, [heads, rank + rotated], |row, head| query(row, head).0, rotate)?;
        self.store(batch, layer, KvRows { x: inputs, width, first })?;
        projected.copy_within(rows * (width + up).., 0);
        projected.truncate(rows * absorbed);
        Ok(())
    }

    fn attend_latents(
        &self,
        pass: &mut CpuPass<'_>,
        layer: usize,
        attention: &AttentionWeights<CpuDevice>,
    ) -> Result<()> {
        let latent = weights(attention)?;
        let (&LatentWeights { rank, value_dim, .. }, heads) = (latent, attention.heads);
        let CpuPass { batch, projected, mixed, distances, .. } = pass;
        let (rows, width) = (batch.rows, heads * (rank + latent.rotated));
        mixed.resize(rows * heads * (value_dim + rank), 0.0);
        let (values, latents) = mixed.split_at_mut(rows * heads * value_dim);
        let (of_layer, sequences) = (self.layout.layers[layer].heads, &batch.sequences);
        let qkv = projected;
        AttentionPass {
            device: self,
            heads: of_layer,
            layer,
            weights: attention,
            sequences,
            qkv,
            width,
            distances,
            relative: None,
            windows: &[],
        }
        .fill(latents)?;
        let latents = |row: usize, head: usize| &latents[(row * heads + head) * rank..][..rank];
        self.multiply_heads(&latent.values, values, [heads, value_dim], latents, |_, _, _| {})?;
        mixed.truncate(rows * heads * value_dim);
        Ok(())
    }
}

fn weights(attention: &AttentionWeights<CpuDevice>) -> Result<&LatentWeights<CpuDevice>> {
    attention
        .kv
        .latent()
        .ok_or_else(|| Error::Internal("attention without latents is computed as attention to them".into()))
}

impl CpuDevice {
    /// Fills the first elements of each head of `out` `[rows, heads * width]` with the products of its matrix and the
    /// `input` of a row and a head, and gives the whole head to `then`.
    fn multiply_heads<'x>(
        &self,
        matrices: &ExpertMatrices<Matrix>,
        out: &mut [f32],
        [heads, width]: [usize; 2],
        input: impl Fn(usize, usize) -> &'x [f32] + Sync,
        then: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) -> memory::Result<()> {
        let columns = memory::collected((0..heads + 1).map(|head| head * width), "the heads of a layer")?;
        let (refusals, outputs) = (Refusals::default(), matrices.outputs);
        self.pool.run_grid(out, heads * width, TASK_ROWS, &columns, &|tile, out| {
            let (rows, head) = (&tile.rows, tile.columns.start / width);
            let (matrix, first) = matrices.of(head);
            let form = std::iter::once(matrix.form);
            let operands =
                Operands::gather(self.isa, form, rows.len(), matrix.inputs, |row| input(rows.start + row, head));
            refusals.note(operands.and_then(|operands| {
                scratch::with_scratch(rows.len() * outputs, |products| {
                    matrix.rows(self.isa, first..first + outputs, &operands, products)?;
                    for (row, products) in rows.clone().zip(products.chunks_exact(outputs)) {
                        let out = out.row(row);
                        out[..outputs].copy_from_slice(products);
                        then(row, head, out);
                    }
                    Ok(())
                })
            }));
        });
        refusals.into_result()
    }
}
