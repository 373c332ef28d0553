//! What is added to a token's embedding; and embeddings of layers: what each block reads of them, and its gate.

use super::{CpuDevice, KvPage, Matrix, TASK_ROWS, operand};
use crate::decoder::{LayerEmbedding, Sequence};
use crate::kernels;
use crate::memory::{self, Refusals};

/// `hidden` += the rows of `positions` that the rows of `sequences` are, and the first of `token_types`.
pub(super) fn add_positions(
    device: &CpuDevice,
    sequences: &[Sequence<'_, KvPage>],
    positions: &Matrix,
    token_types: Option<&Matrix>,
    hidden: &mut [f32],
) -> memory::Result<()> {
    let (width, isa) = (positions.inputs(), device.isa);
    operand::with_scratch(2 * width, |scratch| {
        let (stored, of_type) = scratch.split_at_mut(width);
        if let Some(types) = token_types {
            types.dequantize_row(0, of_type);
        }
        let of_rows = sequences.iter().flat_map(|sequence| (sequence.start..).take(sequence.rows.len()));
        for (position, hidden) in of_rows.zip(hidden.chunks_exact_mut(width)) {
            if token_types.is_some() {
                kernels::add(isa, hidden, of_type);
            }
            positions.dequantize_row(position, stored);
            kernels::add(isa, hidden, stored);
        }
        Ok(())
    })
}

/// Fills `inputs` `[rows, layers * width]`, of tokens `ids` with the residual stream `hidden`.
pub(super) fn inputs(
    device: &CpuDevice,
    ids: &[u32],
    hidden: &[f32],
    embedding: &LayerEmbedding<CpuDevice>,
    inputs: &mut [f32],
) -> memory::Result<()> {
    let LayerEmbedding { width, embedding, projection, norm } = embedding;
    let all = projection.outputs();
    let operands = device.normed(None, hidden, &[projection])?;
    device.multiply(&[projection], &operands, ids.len(), inputs)?;
    // The order of transformers' `project_per_layer_inputs`.
    let (of_projection, of_embedding) = ((projection.inputs() as f32).sqrt().recip(), (*width as f32).sqrt());
    let half = std::f32::consts::FRAC_1_SQRT_2;
    let refusals = Refusals::default();
    device.pool.run_grid(inputs, all, TASK_ROWS, &[0, all], &|tile, out| {
        for row in tile.rows.clone() {
            refusals.note(operand::with_scratch(all + width, |scratch| {
                let (stored, plain) = scratch.split_at_mut(all);
                embedding.dequantize_row(ids[row] as usize, stored);
                for (input, stored) in out.row(row).chunks_exact_mut(*width).zip(stored.chunks_exact(*width)) {
                    plain.iter_mut().zip(&*input).for_each(|(plain, x)| *plain = x * of_projection);
                    norm.apply(device.isa, plain, input);
                    input.iter_mut().zip(stored).for_each(|(x, stored)| *x = (*x + stored * of_embedding) * half);
                }
                Ok(())
            }));
        }
    });
    refusals.into_result()
}

/// `gated` = `gelu(gate(hidden))` times the input of layer `layer`.
pub(super) fn gate(
    device: &CpuDevice,
    rows: usize,
    hidden: &[f32],
    gate: &Matrix,
    inputs: &[f32],
    layer: usize,
    gated: &mut Vec<f32>,
) -> memory::Result<()> {
    let (width, all) = (gate.outputs(), inputs.len() / rows.max(1));
    gated.resize(rows * width, 0.0);
    let operands = device.normed(None, hidden, &[gate])?;
    device.multiply(&[gate], &operands, rows, gated)?;
    device.pool.run_grid(gated, width, TASK_ROWS, &[0, width], &|tile, out| {
        for row in tile.rows.clone() {
            let gated = out.row(row);
            kernels::gelu_tanh(device.isa, gated);
            let input = &inputs[row * all + layer * width..][..width];
            gated.iter_mut().zip(input).for_each(|(gated, input)| *gated *= input);
        }
    });
    Ok(())
}
