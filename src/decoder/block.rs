//! One decoder block: attention and feed-forward layer, each behind its norm and added to the residual.

use super::Segment;
use super::attention::{Attend, Rotate, Sequence};
use super::kv_cache::Heads;
use super::rope::Angles;
use crate::linear::{Engine, LinearAdd, Matrix, NormGated, NormLinear, NormScale};
use crate::weights::Weights;
use candle_core::{Result, Tensor};
use model_diagnostics::spec::{LayerWeights, Norm};
use std::ops::Range;

/// The weights of one block, as operations.
pub(super) struct Block {
    engine: Engine,
    heads: Heads,
    qkv: NormLinear,
    attention_out: LinearAdd,
    gated: NormGated,
    down: LinearAdd,
}

impl Block {
    /// Builds the operations of a layer; `None` when a dtype has no kernel.
    pub(super) fn new(
        engine: &Engine,
        heads: Heads,
        norm: Norm,
        weights: &Weights,
        layer: &LayerWeights,
    ) -> Option<Block> {
        let matrix = |linear| Matrix::new(weights, linear, engine.isa);
        let scale = |weight| NormScale::new(weights, weight, norm);
        let qkv = vec![matrix(&layer.q)?, matrix(&layer.k)?, matrix(&layer.v)?];
        Some(Block {
            engine: engine.clone(),
            heads,
            qkv: NormLinear::new(engine.clone(), scale(&layer.attention_norm), qkv),
            attention_out: LinearAdd::new(engine.clone(), matrix(&layer.o)?),
            gated: NormGated::new(engine.clone(), scale(&layer.mlp_norm), matrix(&layer.gate)?, matrix(&layer.up)?),
            down: LinearAdd::new(engine.clone(), matrix(&layer.down)?),
        })
    }

    /// `hidden` `[rows, hidden]` of several sequences -> the same after this block. Stores the rows' keys and values.
    pub(super) fn forward(
        &self,
        layer: usize,
        hidden: &Tensor,
        angles: &Angles,
        segments: &[Segment<'_>],
        rows: &[Range<usize>],
    ) -> Result<Tensor> {
        let qkv = hidden.apply_op1_no_bwd(&self.qkv)?;
        qkv.inplace_op1(&Rotate { engine: &self.engine, heads: self.heads, angles })?;
        let mut sequences = Vec::with_capacity(segments.len());
        for (segment, rows) in segments.iter().zip(rows) {
            segment.cache.append(layer, &qkv, rows.clone())?;
            let pages = segment.cache.pages(layer);
            sequences.push(Sequence { rows: rows.clone(), start: segment.cache.len(), pages });
        }
        let attend = Attend { engine: &self.engine, heads: self.heads, sequences: &sequences };
        let attended = qkv.apply_op1_no_bwd(&attend)?;
        let hidden = attended.apply_op2_no_bwd(hidden, &self.attention_out)?;
        hidden.apply_op1_no_bwd(&self.gated)?.apply_op2_no_bwd(&hidden, &self.down)
    }

    /// Every weight matrix, for inspection.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        [self.qkv.matrices(), self.attention_out.matrices(), self.gated.matrices(), self.down.matrices()]
            .into_iter()
            .flatten()
    }
}
