//! The processor's operations of a forward pass.

use super::disentangled::Relative;
use super::encoder::Distances;
use super::experts::Routed;
use super::operand::Operands;
use super::page::KvRows;
use super::{CpuDevice, Matrix, NormVectors};
use crate::decoder::{AllocatePage, Batch, Device, Extensions, Operand, Output};
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_format::header::TensorInfo;
use model_factory_spec::plan::{KV_PAGE, KvDtype, KvSize};
use model_factory_spec::spec::{
    AttentionWeights, DenseWeights, LinearWeights, Mixer, ModelSpec, Multipliers, NormWeights, WeightTypes,
};
use std::sync::Arc;

/// Elements that one task multiplies and caps.
pub(super) const TASK_ELEMENTS: usize = 4096;

/// A batch and its activations, as [`Device`] names them, and more.
pub struct CpuPass<'b> {
    pub(super) batch: Batch<'b>,
    pub(super) hidden: Vec<f32>,
    pub(super) projected: Vec<f32>,
    /// Also a layer's gated input, and the sum of the outputs of experts and of a dense layer next to them.
    pub(super) mixed: Vec<f32>,
    /// What a layer's second mixer has put out; empty where no layer has two.
    pub(super) aside: Vec<f32>,
    /// The inputs of layers from their embeddings, `[rows, layers * width]`; empty without such layers.
    pub(super) layer_inputs: Vec<f32>,
    /// The residual streams, side by side, `[rows, streams * hidden]`; empty where there is one.
    pub(super) streams: Vec<f32>,
    pub(super) activated: Operands,
    /// Like `activated`, for a layer of experts.
    pub(super) routed: Routed,
    /// A sub-layer's output before its norm, `[rows, hidden]`; empty where no layer has one there.
    pub(super) product: Vec<f32>,
    pub(super) logits: Vec<f32>,
    /// What is added to scores of an encoder by the distance of positions.
    pub(super) distances: Distances,
    pub(super) relative: Option<Relative>,
    /// Where windows end in which rows of an encoder attend; none where they attend to their sequence.
    pub(super) windows: Vec<usize>,
}

impl WeightTypes for CpuDevice {
    type Matrix = Matrix;
    type Norm = NormVectors;
    type Vector = WeightView;
    type Numbers = Vec<f32>;
}

impl Device for CpuDevice {
    type Pass<'b> = CpuPass<'b>;

    const ADAPTERS: bool = true;

    const BATCH_INVARIANT: bool = true;

    fn matrix(&self, weights: &Weights, linear: &LinearWeights, place: usize) -> Result<Matrix> {
        let mut matrix = Matrix::new(weights, linear, self.isa, self.activations())?;
        matrix.place = place;
        Ok(matrix)
    }

    fn load_norm(&self, weights: &Weights, norm: &NormWeights) -> Result<NormVectors> {
        Ok(NormVectors::new(weights, norm))
    }

    fn vector(&self, weights: &Weights, vector: &TensorInfo) -> Result<WeightView> {
        Ok(weights.view(vector))
    }

    fn kv_size(spec: &ModelSpec, dtype: KvDtype) -> KvSize {
        KvSize::of_cpu(spec, dtype)
    }

    fn pages(&self) -> AllocatePage {
        let layout = self.layout.clone();
        Arc::new(move |kind| Ok(layout.page(kind)?))
    }

    fn extensions(&self) -> Extensions<'_, Self> {
        Extensions {
            recurrent: Some(self),
            experts: Some(self),
            encoder: Some(self),
            layer_embeddings: Some(self),
            streams: Some(self),
            hidden_states: Some(self),
            latents: Some(self),
            vision: Some(self),
            soft_tokens: Some(self),
        }
    }

    fn run<'b>(&self, batch: Batch<'b>, ops: &mut dyn FnMut(&mut CpuPass<'b>, bool) -> Result<()>) -> Result<Vec<f32>> {
        let _scratch = self.leaders.lend();
        let rows = batch.rows;
        let mut pass = CpuPass {
            batch,
            hidden: memory::zeros(rows * self.buffers.hidden.max(self.buffers.embedding), "the residual stream")?,
            projected: memory::zeros(rows * self.buffers.projected, "queries, keys and values")?,
            mixed: memory::zeros(rows * self.buffers.mixed, "the output of attention")?,
            aside: memory::zeros(rows * self.buffers.aside, "the output of a second mixer")?,
            product: memory::zeros(rows * self.buffers.output, "the output of a sub-layer")?,
            layer_inputs: memory::zeros(rows * self.buffers.layer_inputs, "what layers read of their embeddings")?,
            streams: memory::zeros(rows * self.buffers.streams, "the residual streams")?,
            activated: Operands::default(),
            routed: Routed::default(),
            logits: Vec::new(),
            distances: Distances::default(),
            relative: None,
            windows: Vec::new(),
        };
        ops(&mut pass, false)?;
        Ok(pass.logits)
    }

    fn embed(&self, pass: &mut CpuPass<'_>, embedding: &Matrix, scale: f32) -> Result<()> {
        let ids = pass.batch.sequences.iter().flat_map(|sequence| sequence.tokens);
        pass.hidden.resize(pass.batch.rows * embedding.inputs, 0.0);
        for (id, row) in ids.zip(pass.hidden.chunks_exact_mut(embedding.inputs)) {
            embedding.dequantize_row(*id as usize, row);
            row.iter_mut().for_each(|x| *x *= scale);
        }
        Ok(())
    }

    fn norm_project(&self, pass: &mut CpuPass<'_>, norm: Option<&NormVectors>, mixer: &Mixer<Self>) -> Result<()> {
        let matrices = mixer.inputs();
        let CpuPass { batch, hidden, projected, .. } = pass;
        projected.resize(batch.rows * matrices.iter().map(|matrix| matrix.outputs).sum::<usize>(), 0.0);
        let operands = self.adapted(batch, norm, hidden, &matrices)?;
        Ok(self.multiply(&matrices, &operands, batch.rows, projected)?)
    }

    fn rotate_and_store(&self, pass: &mut CpuPass<'_>, layer: usize, attention: &AttentionWeights<Self>) -> Result<()> {
        self.rotate(pass, layer, attention)?;
        if attention.kv.own().is_none() || !attention.causal {
            return Ok(());
        }
        let heads = self.layout.layers[layer].heads;
        let kv = KvRows { x: &pass.projected, width: heads.qkv_width(), first: heads.keys() };
        self.store(&mut pass.batch, layer, kv)
    }

    fn attend(&self, pass: &mut CpuPass<'_>, layer: usize, attention: &AttentionWeights<Self>) -> Result<()> {
        self.attend_by(pass, layer, attention, |attend, out| attend.fill(out))
    }

    fn norm_up_activate(
        &self,
        pass: &mut CpuPass<'_>,
        norm: Option<&NormVectors>,
        dense: &DenseWeights<Self>,
    ) -> Result<()> {
        pass.activated = Operands::default(); // the last layer's memory is used again
        let inputs = self.adapted(&pass.batch, norm, &pass.hidden, &dense.inputs())?;
        pass.activated = self.up_activate(&pass.batch, &inputs, pass.batch.rows, dense)?;
        Ok(())
    }

    fn linear_add(
        &self,
        pass: &mut CpuPass<'_>,
        operand: Operand,
        matrix: &Matrix,
        output: Output<'_, Self>,
    ) -> Result<()> {
        let CpuPass { batch, hidden, mixed, activated, product, .. } = pass;
        match operand {
            Operand::Activated => self.add_product(activated, batch.rows, matrix, output, product, hidden),
            Operand::Mixed => {
                let operands = self.adapted(batch, None, mixed, &[matrix])?;
                self.add_product(&operands, batch.rows, matrix, output, product, hidden)
            }
        }
    }

    fn keep_wanted(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let rows = pass.batch.rows;
        let Some(kept) = pass.batch.keep_wanted()? else { return Ok(()) };
        let CpuPass { hidden, projected, mixed, aside, layer_inputs, streams, .. } = pass;
        for buffer in [hidden, projected, mixed, aside, layer_inputs, streams] {
            let (width, mut end) = (buffer.len() / rows, 0);
            for rows in &kept {
                buffer.copy_within(rows.start * width..rows.end * width, end * width);
                end += rows.len();
            }
            buffer.truncate(end * width);
        }
        Ok(())
    }

    fn logits(
        &self,
        pass: &mut CpuPass<'_>,
        norm: &NormVectors,
        head: &Matrix,
        &Multipliers { logits: scale, logit_cap: cap, .. }: &Multipliers,
    ) -> Result<()> {
        let CpuPass { batch, hidden, logits, .. } = pass;
        *logits = memory::zeros(batch.rows * self.buffers.logits, "logits")?;
        let operands = self.adapted(batch, Some(norm), hidden, &[head])?;
        self.multiply(&[head], &operands, batch.rows, logits)?;
        if scale != 1.0 || cap.is_some() {
            self.pool.chunks(logits, TASK_ELEMENTS, |_, logits| {
                logits.iter_mut().for_each(|logit| *logit *= scale);
                if let Some(cap) = cap {
                    kernels::soft_cap(self.isa, logits, cap);
                }
            });
        }
        Ok(())
    }
}

impl CpuDevice {
    /// Stores keys and values of all rows in the pages of the batch's sequences.
    pub(super) fn store(&self, batch: &mut Batch<'_>, layer: usize, kv: KvRows<'_>) -> Result<()> {
        for sequence in &mut batch.sequences {
            let mut row = sequence.rows.start;
            while row < sequence.rows.end {
                let position = sequence.start + row - sequence.rows.start;
                let slot = position % KV_PAGE;
                let count = (KV_PAGE - slot).min(sequence.rows.end - row);
                let page = sequence.pages[position / KV_PAGE].of_mut(self.layout.layers[layer].kind)?;
                if let Err((index, value)) = self.layout.store(page, layer, slot, kv, row..row + count) {
                    let position = position + index - row;
                    return Err(Error::CacheOverflow { layer, position, value, dtype: self.kv_dtype() });
                }
                row += count;
            }
        }
        Ok(())
    }

    /// `to` += the product of `operands` and `matrix`, normed and multiplied as `output` says; `product` is scratch.
    pub(super) fn add_product(
        &self,
        operands: &Operands,
        rows: usize,
        matrix: &Matrix,
        Output { norm, scale }: Output<'_, Self>,
        product: &mut [f32],
        to: &mut [f32],
    ) -> Result<()> {
        let Some(norm) = norm else { return Ok(self.multiply_add(&[matrix], operands, rows, Some(scale), to)?) };
        let product = &mut product[..rows * self.buffers.output];
        self.multiply(&[matrix], operands, rows, product)?;
        Ok(self.norm_add(norm, product, scale, to)?)
    }
}
