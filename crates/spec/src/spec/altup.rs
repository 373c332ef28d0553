//! Several residual streams (AltUp), and a low-rank residual beside attention (LAuReL).

use super::LinearWeights;
use super::reader::Reader;
use super::tensors::{Rows, Tensors, rows_of};
use super::weights::{mapped, weights};
use super::{MapWeights, Stored, WeightTypes};
use crate::error::Result;
use crate::family::Role;

/// The most residual streams.
const MOST_STREAMS: usize = 16;

weights! {
    /// Further residual streams beside the first, which is the model's embedding (transformers `modeling_gemma3n.py`). Each begins as
    /// a projection of the first with the magnitude of that, and ends by another projection with it; the mean of all is what the
    /// output head reads.
    pub struct AltUpWeights<W> {
        /// The projections that they begin with, `[hidden, hidden]` each.
        pub inputs: Vec<W::Matrix> = list matrix,
        /// The projections by which they end, `[hidden, hidden]` each.
        pub outputs: Vec<W::Matrix> = list matrix,
    }

    /// How a block predicts and corrects the residual streams. With `m(x) = tanh(router(norm(x)) / hidden)` and `x` the first of `n`
    /// streams, the prediction of stream `i` is itself and the sum of all streams `j` times `(prediction(m(x)))[i * n + j]`. The block
    /// makes `y` of that of the first, and what changed is added to each, times `1 + correction(m(y))`.
    pub struct AltUpUse<W> {
        /// The norm of the router's input, `[hidden]`.
        pub norm: W::Norm = norm,
        /// The router, `[n, hidden]`.
        pub router: W::Matrix = matrix,
        /// What it gives -> how much of each stream is in each prediction, `[n * n, n]`.
        pub prediction: W::Matrix = matrix,
        /// What it gives -> how much each stream is corrected, `[n, n]`.
        pub correction: W::Matrix = matrix,
        /// The factors of the first stream as the gate of the layer's embedding reads it, `[hidden]`.
        pub scale: Option<W::Vector> = optional vector,
    }

    /// A residual beside attention: what attention reads, `x`, and `norm(up(down(x)))` are added with its output, and the residual
    /// stream is divided by the root of 2.
    pub struct LaurelWeights<W> {
        /// `[rank, hidden]`.
        pub down: W::Matrix = matrix,
        /// `[hidden, rank]`.
        pub up: W::Matrix = matrix,
        /// Of its output, `[hidden]`.
        pub norm: W::Norm = norm,
    }
}

impl Reader<'_> {
    /// The number of residual streams; 0 where the family has one.
    pub(super) fn streams(&self) -> Result<usize> {
        let Some(table) = self.family.block.altup else { return Ok(0) };
        let key = self.key(table.streams);
        let streams = match self.size(table.streams)? {
            None if self.is_gguf() => self.present(table.streams, None)?,
            streams => self.or_default(streams, &key, table.default),
        };
        match streams {
            1..=MOST_STREAMS => Ok(streams),
            _ => Err(self.value(&key, streams, format!("a number between 1 and {MOST_STREAMS}"))),
        }
    }

    /// The rank of the residual beside attention; 0 where the family has none.
    pub(super) fn laurel_rank(&self) -> Result<usize> {
        let Some((key, default, why)) = self.family.block.laurel_rank else { return Ok(0) };
        let rank = if self.key(key).is_empty() { None } else { self.size(key)? };
        Ok(self.or_absent(rank, default, format_args!("a residual of rank {default}"), &self.key(key), why))
    }
}

impl Tensors<'_> {
    /// The projections of the further residual streams.
    pub(super) fn altup(&mut self) -> Result<Option<Box<AltUpWeights>>> {
        let further = self.sizes.streams.saturating_sub(1);
        if self.sizes.streams == 0 {
            return Ok(None);
        }
        let mut of = |role| (0..further).map(|index| self.of_stream(role, index)).collect::<Result<Vec<_>>>();
        Ok(Some(Box::new(AltUpWeights { inputs: of(Role::AltUpInput)?, outputs: of(Role::AltUpOutput)? })))
    }

    /// The projection of the further stream `index`; in GGUF one tensor has those of all.
    fn of_stream(&mut self, role: Role, index: usize) -> Result<LinearWeights> {
        if !self.reader.is_gguf() {
            return self.matrix(role, Some(index));
        }
        let (outputs, inputs, because) = self.shape(role, None);
        let (further, before) = (self.sizes.streams as u64 - 1, index as u64 * outputs);
        let because = format!("{further} further streams, {because}");
        let whole = self.checked(&self.weight_name(role, None), &[further, outputs, inputs], &because)?;
        let total = further * outputs;
        let tensor = rows_of(whole, before, total, vec![outputs, inputs]);
        self.scaled(Rows { tensor, module: self.stem(role, None), before, total }, role)
    }

    /// How `layer` predicts and corrects the residual streams.
    pub(super) fn altup_use(&mut self, layer: usize) -> Result<Option<Box<AltUpUse>>> {
        let Some(table) = self.family.block.altup else { return Ok(None) };
        let at = Some(layer);
        let (flag, default) = (self.reader.flag(table.scaled)?, (true, table.default.1));
        let scaled = self.reader.is_gguf()
            || match layer {
                0 => self.reader.or_default(flag, table.scaled, default),
                _ => flag.unwrap_or(default.0),
            };
        if !scaled {
            // transformers stores it all the same.
            let name = self.stem(Role::AltUpScale, at);
            self.used.insert(name);
        }
        Ok(Some(Box::new(AltUpUse {
            norm: self.norm(Role::AltUpRouterNorm, at)?,
            router: self.matrix(Role::AltUpRouter, at)?,
            prediction: self.matrix(Role::AltUpPrediction, at)?,
            correction: self.matrix(Role::AltUpCorrection, at)?,
            scale: if scaled { Some(self.whole_name(Role::AltUpScale, at)?) } else { None },
        })))
    }

    /// The residual beside the attention of `layer`.
    pub(super) fn laurel(&mut self, layer: usize) -> Result<Option<Box<LaurelWeights>>> {
        let at = Some(layer);
        if self.sizes.laurel_rank == 0 {
            return Ok(None);
        }
        Ok(Some(Box::new(LaurelWeights {
            down: self.matrix(Role::LaurelDown, at)?,
            up: self.matrix(Role::LaurelUp, at)?,
            norm: self.norm(Role::LaurelNorm, at)?,
        })))
    }
}
