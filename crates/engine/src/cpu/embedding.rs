//! What is added to a token's embedding; and embeddings of layers: what each block reads of them, and its gate.

use super::{CpuDevice, KvPage, Matrix, NormVectors, TASK_ROWS, scratch};
use crate::decoder::{EmbeddingInput, JoinedInput, LayerEmbedding, Sequence};
use crate::kernels;
use crate::memory::{self, Refusals};

/// `hidden` += the rows of `input` that the positions of `sequences` and their kinds of tokens are.
pub(super) fn add_input(
    device: &CpuDevice,
    sequences: &[Sequence<'_, KvPage>],
    input: &EmbeddingInput<Matrix, NormVectors>,
    hidden: &mut [f32],
) -> memory::Result<()> {
    let (width, isa) = (device.buffers.hidden, device.isa);
    scratch::with_scratch(width, |stored| {
        let positions = sequences.iter().flat_map(|sequence| {
            let second = sequence.second_text.unwrap_or(usize::MAX);
            (sequence.start..)
                .take(sequence.rows.len())
                .map(move |position| (position, usize::from(position >= second)))
        });
        for ((position, kind), hidden) in positions.zip(hidden.chunks_exact_mut(width)) {
            if let Some(types) = &input.token_types {
                types.dequantize_row(kind, stored);
                kernels::add(isa, hidden, stored);
            }
            if let Some((rows, first)) = &input.positions {
                rows.dequantize_row(first + position, stored);
                kernels::add(isa, hidden, stored);
            }
        }
        Ok(())
    })
}

/// `hidden` = the projection of its norm and, behind it, the norm of `given`.
pub(super) fn join(
    device: &CpuDevice,
    rows: usize,
    joined: &JoinedInput<Matrix, NormVectors>,
    given: &[f32],
    hidden: &mut [f32],
) -> memory::Result<()> {
    let JoinedInput { embedding_norm, hidden_norm, projection } = joined;
    let width = device.buffers.hidden;
    let mut pairs = memory::zeros(rows * 2 * width, "what a prediction head reads")?;
    let inputs = hidden.chunks_exact(width).zip(given.chunks_exact(width));
    for ((embedding, state), pair) in inputs.zip(pairs.chunks_exact_mut(2 * width)) {
        let (first, second) = pair.split_at_mut(width);
        embedding_norm.apply(device.isa, embedding, first);
        hidden_norm.apply(device.isa, state, second);
    }
    let operands = device.converted(&pairs, &[projection])?;
    device.multiply(&[projection], &operands, rows, hidden)
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
            refusals.note(scratch::with_scratch(all + width, |scratch| {
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
