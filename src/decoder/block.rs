//! One decoder block: attention and feed-forward layer, each behind its norm and added to the residual.

use super::Segment;
use super::attention::{Attend, Rotate, Sequence};
use super::kv_cache::Heads;
use super::rope::Angles;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::linear::{Engine, LinearAdd, Matrix, NormActivate, NormLinear, NormScale};
use crate::weights::Weights;
use candle_core::{DType, Device, Tensor};
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

/// The residual stream, and what a block computes for it; the next one writes over all.
pub(super) struct Buffers {
    /// `[rows, hidden]`
    pub(super) hidden: Tensor,
    /// `[rows, q, k and v]`
    qkv: Tensor,
    /// `[rows, queries * head_dim]`
    attended: Tensor,
    /// `[rows, feed_forward]`
    activated: Tensor,
}

impl Buffers {
    /// Memory for the rows of `hidden`.
    ///
    /// # Errors
    /// When it runs out.
    pub(super) fn new(hidden: Tensor, heads: Heads, feed_forward: usize) -> candle_core::Result<Buffers> {
        let rows = hidden.dim(0)?;
        let floats = |width| Tensor::zeros((rows, width), DType::F32, &Device::Cpu);
        Ok(Buffers {
            qkv: floats(heads.qkv_width())?,
            attended: floats(heads.queries * heads.dim)?,
            activated: floats(feed_forward)?,
            hidden,
        })
    }
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

    /// Brings the residual streams of several sequences' rows through this block. Stores the rows' keys and values.
    ///
    /// # Errors
    /// `Cancelled` before the next operation once `cancel` is; those of the operations.
    pub(super) fn forward(
        &self,
        layer: usize,
        Buffers { hidden, qkv, attended, activated }: &Buffers,
        angles: &Angles,
        segments: &[Segment<'_>],
        rows: &[Range<usize>],
        cancel: &Cancel,
    ) -> Result<()> {
        qkv.inplace_op2(hidden, &self.qkv)?;
        let (q_norm, k_norm) = (self.q_norm.as_ref(), self.k_norm.as_ref());
        qkv.inplace_op1(&Rotate { engine: &self.engine, heads: self.heads, q_norm, k_norm, angles })?;
        let mut sequences = Vec::with_capacity(segments.len());
        for (segment, rows) in segments.iter().zip(rows) {
            segment.cache.append(layer, qkv, rows.clone())?;
            let pages = segment.cache.pages(layer);
            sequences.push(Sequence { rows: rows.clone(), start: segment.cache.len(), pages });
        }
        cancel.check()?;
        let attend = Attend { engine: &self.engine, heads: self.heads, window: self.window, sequences: &sequences };
        attended.inplace_op2(qkv, &attend)?;
        cancel.check()?;
        if self.parallel {
            activated.inplace_op2(hidden, &self.activated)?;
            cancel.check()?;
        }
        hidden.inplace_op2(attended, &self.attention_out)?;
        cancel.check()?;
        if !self.parallel {
            activated.inplace_op2(hidden, &self.activated)?;
            cancel.check()?;
        }
        Ok(hidden.inplace_op2(activated, &self.down)?)
    }

    /// Every weight matrix, for inspection.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        [self.qkv.matrices(), self.attention_out.matrices(), self.activated.matrices(), self.down.matrices()]
            .into_iter()
            .flatten()
    }
}
