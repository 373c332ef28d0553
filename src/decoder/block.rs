//! One decoder block: attention and feed-forward layer, each behind its norm and added to the residual.

use super::Segment;
use super::attention::{Attend, Rotate, Sequence};
use super::kv_cache::Heads;
use super::rope::Angles;
use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::linear::{Engine, LinearAdd, Matrix, NormActivate, NormLinear, NormScale, contiguous};
use crate::memory;
use crate::weights::Weights;
use candle_core::{Device, Storage, Tensor};
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
}

impl Buffers {
    /// Memory for the rows of `hidden`.
    ///
    /// # Errors
    /// When it runs out.
    pub(super) fn new(hidden: Tensor, heads: Heads) -> Result<Buffers> {
        let rows = hidden.dim(0)?;
        let floats = |width, what| -> Result<Tensor> {
            Ok(Tensor::from_vec(memory::zeros::<f32>(rows * width, what)?, (rows, width), &Device::Cpu)?)
        };
        let qkv = floats(heads.qkv_width(), "queries, keys and values")?;
        Ok(Buffers { qkv, attended: floats(heads.queries * heads.dim, "the output of attention")?, hidden })
    }

    /// The given rows alone, one behind the other; copies of them, unless all are of one range.
    ///
    /// # Errors
    /// When memory runs out.
    pub(super) fn only(&self, rows: &[Range<usize>]) -> Result<Buffers> {
        let count = rows.iter().map(Range::len).sum();
        let of = |buffer: &Tensor| -> Result<Tensor> {
            let mut some = rows.iter().filter(|rows| !rows.is_empty());
            if let (Some(one), None) = (some.next(), some.next()) {
                return Ok(buffer.narrow(0, one.start, one.len())?);
            }
            let (storage, layout) = buffer.storage_and_layout();
            let Storage::Cpu(storage) = &*storage else { return Err(Error::Internal("rows are on the CPU".into())) };
            let (all, width) = (contiguous(storage, layout)?, buffer.dim(1)?);
            let mut copy = memory::reserved(count * width, "the rows whose logits are wanted")?;
            rows.iter().for_each(|rows| copy.extend_from_slice(&all[rows.start * width..rows.end * width]));
            Ok(Tensor::from_vec(copy, (count, width), &Device::Cpu)?)
        };
        Ok(Buffers { hidden: of(&self.hidden)?, qkv: of(&self.qkv)?, attended: self.attended.narrow(0, 0, count)? })
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

    /// Stores keys and values of all rows, which `segments` share as `rows` say, and leaves their queries in `buffers`.
    ///
    /// # Errors
    /// Those of the operations.
    pub(super) fn append(
        &self,
        layer: usize,
        Buffers { hidden, qkv, .. }: &Buffers,
        angles: &Angles,
        segments: &[Segment<'_>],
        rows: &[Range<usize>],
    ) -> Result<()> {
        qkv.inplace_op2(hidden, &self.qkv)?;
        let (q_norm, k_norm) = (self.q_norm.as_ref(), self.k_norm.as_ref());
        qkv.inplace_op1(&Rotate { engine: &self.engine, heads: self.heads, q_norm, k_norm, angles })?;
        for (segment, rows) in segments.iter().zip(rows) {
            segment.cache.append(layer, qkv, rows.clone())?;
        }
        Ok(())
    }

    /// Brings the residual streams through the rest of this block: attention of `sequences`, and the feed-forward layer.
    ///
    /// # Errors
    /// `Cancelled` before the next operation once `cancel` is; those of the operations.
    pub(super) fn forward(
        &self,
        Buffers { hidden, qkv, attended }: &Buffers,
        sequences: &[Sequence<'_>],
        cancel: &CancellationToken,
    ) -> Result<()> {
        cancel.check()?;
        let attend = Attend { engine: &self.engine, heads: self.heads, window: self.window, sequences };
        attended.inplace_op2(qkv, &attend)?;
        cancel.check()?;
        let activate = || self.activated.activate(hidden, &self.down);
        let down = if self.parallel {
            let down = activate()?;
            cancel.check()?;
            hidden.inplace_op2(attended, &self.attention_out)?;
            down
        } else {
            hidden.inplace_op2(attended, &self.attention_out)?;
            cancel.check()?;
            activate()?
        };
        cancel.check()?;
        Ok(hidden.inplace_op1(&down)?)
    }

    /// Whether what [`forward`](Self::forward) computes of a row depends on the rows beside it.
    pub(super) fn mixes_rows(&self) -> bool {
        self.matrices().any(Matrix::mixes_rows)
    }

    /// Every weight matrix, for inspection.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        [self.qkv.matrices(), self.attention_out.matrices(), self.activated.matrices(), self.down.matrices()]
            .into_iter()
            .flatten()
    }
}
