//! Embeddings of layers: what each block reads of them, its gate and its factor.

use super::device::{CpuPass, TASK_ELEMENTS};
use super::{CpuDevice, Matrix, scratch};
use crate::decoder::LayerEmbeddings;
use crate::error::Result;
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::LayerEmbeddingWeights;

impl LayerEmbeddings<CpuDevice> for CpuDevice {
    fn layer_inputs(&self, pass: &mut CpuPass<'_>, embedding: &LayerEmbeddingWeights<Self>) -> Result<()> {
        let CpuPass { batch, hidden, layer_inputs: inputs, .. } = pass;
        let mut ids = memory::reserved(batch.rows, "the ids of a batch")?;
        ids.extend(batch.sequences.iter().flat_map(|sequence| sequence.tokens).copied());
        let LayerEmbeddingWeights { width, embedding, projection, norm } = embedding;
        let all = projection.outputs;
        let operands = self.normed(None, hidden, &[projection])?;
        self.multiply(&[projection], &operands, batch.rows, inputs)?;
        // The order of transformers' `project_per_layer_inputs`.
        let (of_projection, of_embedding) = ((projection.inputs as f32).sqrt().recip(), (*width as f32).sqrt());
        let half = std::f32::consts::FRAC_1_SQRT_2;
        self.each_row(inputs, all, |row, inputs| {
            scratch::with_scratch(all + width, |scratch| {
                let (stored, plain) = scratch.split_at_mut(all);
                // Tokens beyond the rows have the first.
                let id = Some(ids[row] as usize).filter(|id| *id < embedding.outputs).unwrap_or(0);
                embedding.dequantize_row(id, stored);
                for (input, stored) in inputs.chunks_exact_mut(*width).zip(stored.chunks_exact(*width)) {
                    plain.iter_mut().zip(&*input).for_each(|(plain, x)| *plain = x * of_projection);
                    norm.apply(self.isa, plain, input);
                    input.iter_mut().zip(stored).for_each(|(x, stored)| *x = (*x + stored * of_embedding) * half);
                }
                Ok(())
            })
        })?;
        Ok(())
    }

    fn gate_layer_input(&self, pass: &mut CpuPass<'_>, gate: &Matrix, layer: usize) -> Result<()> {
        let CpuPass { batch, hidden, layer_inputs: inputs, mixed: gated, .. } = pass;
        let (rows, width) = (batch.rows, gate.outputs);
        let all = inputs.len() / rows.max(1);
        gated.resize(rows * width, 0.0);
        let operands = self.normed(None, hidden, &[gate])?;
        self.multiply(&[gate], &operands, rows, gated)?;
        Ok(self.each_row(gated, width, |row, gated| {
            kernels::gelu_tanh(self.isa, gated);
            let input = &inputs[row * all + layer * width..][..width];
            gated.iter_mut().zip(input).for_each(|(gated, input)| *gated *= input);
            Ok(())
        })?)
    }

    fn scale(&self, pass: &mut CpuPass<'_>, factor: f32) -> Result<()> {
        let hidden = &mut pass.hidden;
        self.pool.chunks(hidden, TASK_ELEMENTS, |_, hidden| hidden.iter_mut().for_each(|x| *x *= factor));
        Ok(())
    }
}
