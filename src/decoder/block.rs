//! One decoder block: attention and feed-forward layer, each behind its norm and added to the residual.

use super::Segment;
use super::attention::{Attend, Rotate, Sequence};
use super::kv_cache::Heads;
use super::rope::Angles;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::linear::{Engine, LinearAdd, Matrix, NormActivate, NormLinear, NormScale};
use crate::weights::Weights;
use candle_core::Tensor;
use model_diagnostics::spec::{LayerWeights, ModelSpec};
use std::ops::Range;

/// The weights of one block, as operations.
pub(super) struct Block {
    engine: Engine,
    heads: Heads,
    qkv: NormLinear,
    q_norm: Option<NormScale>,
    k_norm: Option<NormScale>,
    window: Option<usize>,
    attention_out: LinearAdd,
    activated: NormActivate,
    down: LinearAdd,
    parallel: bool,
}

impl Block {
    /// Builds the operations of a layer.
    ///
    /// # Errors
    /// Those of [`Matrix::new`]; `Internal` when activation and weights do not agree on a gate, which the diagnosis rules
    /// out.
    pub(super) fn new(
        engine: &Engine,
        heads: Heads,
        spec: &ModelSpec,
        weights: &Weights,
        layer: &LayerWeights,
    ) -> Result<Block> {
        let matrix = |linear| Matrix::new(weights, linear, engine.isa);
        let scale = |weight| NormScale::new(weights, weight, spec.norm);
        let qkv = vec![matrix(&layer.q)?, matrix(&layer.k)?, matrix(&layer.v)?];
        let (up, gate) = (matrix(&layer.up)?, layer.gate.as_ref().map(matrix).transpose()?);
        let activated = NormActivate::new(engine.clone(), scale(&layer.mlp_norm), spec.activation, up, gate)
            .ok_or_else(|| {
                Error::Internal("the diagnosis accepted an activation that the weights do not fit".into())
            })?;
        Ok(Block {
            engine: engine.clone(),
            heads,
            qkv: NormLinear::new(engine.clone(), scale(&layer.attention_norm), qkv),
            q_norm: layer.q_norm.as_ref().map(scale),
            k_norm: layer.k_norm.as_ref().map(scale),
            window: spec.sliding_window,
            attention_out: LinearAdd::new(engine.clone(), matrix(&layer.o)?),
            activated,
            down: LinearAdd::new(engine.clone(), matrix(&layer.down)?),
            parallel: spec.parallel_block,
        })
    }

    /// `hidden` `[rows, hidden]` of several sequences -> the same after this block. Stores the rows' keys and values.
    ///
    /// # Errors
    /// `Cancelled` before the next operation once `cancel` is; those of the operations.
    pub(super) fn forward(
        &self,
        layer: usize,
        hidden: &Tensor,
        angles: &Angles,
        segments: &[Segment<'_>],
        rows: &[Range<usize>],
        cancel: &Cancel,
    ) -> Result<Tensor> {
        let qkv = hidden.apply_op1_no_bwd(&self.qkv)?;
        let (q_norm, k_norm) = (self.q_norm.as_ref(), self.k_norm.as_ref());
        qkv.inplace_op1(&Rotate { engine: &self.engine, heads: self.heads, q_norm, k_norm, angles })?;
        let mut sequences = Vec::with_capacity(segments.len());
        for (segment, rows) in segments.iter().zip(rows) {
            segment.cache.append(layer, &qkv, rows.clone())?;
            let pages = segment.cache.pages(layer);
            sequences.push(Sequence { rows: rows.clone(), start: segment.cache.len(), pages });
        }
        cancel.check()?;
        let attend = Attend { engine: &self.engine, heads: self.heads, window: self.window, sequences: &sequences };
        let attended = qkv.apply_op1_no_bwd(&attend)?;
        cancel.check()?;
        let changed = attended.apply_op2_no_bwd(hidden, &self.attention_out)?;
        let read = if self.parallel { hidden } else { &changed };
        cancel.check()?;
        let activated = read.apply_op1_no_bwd(&self.activated)?;
        cancel.check()?;
        Ok(activated.apply_op2_no_bwd(&changed, &self.down)?)
    }

    /// Every weight matrix, for inspection.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        [self.qkv.matrices(), self.attention_out.matrices(), self.activated.matrices(), self.down.matrices()]
            .into_iter()
            .flatten()
    }
}
