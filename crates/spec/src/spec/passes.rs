//! Layers that are passed several times: the same weights again, with keys and values of their own.

use super::tensors::Tensors;
use super::{LayerWeights, NormWeights};
use crate::error::Result;

/// The most layers that all passes may have together, as in llama.cpp.
const MOST_LAYERS: usize = 512;

impl Tensors<'_> {
    /// The layers of all passes, and how many passes there are. Between two of them the residual stream is normed by `norm`, the
    /// last one, unless a key leaves that out.
    pub(super) fn passes(
        &self,
        layers: Vec<LayerWeights>,
        norm: Option<&NormWeights>,
    ) -> Result<(Vec<LayerWeights>, usize)> {
        let Some((count, plain)) = self.family.block.passes else { return Ok((layers, 1)) };
        let key = self.reader.key(count);
        let passes = self.reader.size(count)?;
        let passes = self.reader.or_absent(passes, 1, "one pass over the layers", &key, "the default of llama.cpp");
        if passes.saturating_mul(layers.len()) > MOST_LAYERS {
            let expected = format!("passes over {} layers that are {MOST_LAYERS} together at most", layers.len());
            return Err(self.reader.value(&key, passes, expected));
        }
        let plain = self.reader.fields().boolean(&self.reader.key(plain))?.unwrap_or(false);
        let mut all = Vec::new();
        for pass in 1..=passes {
            all.extend(layers.iter().cloned());
            let last = all.last_mut().and_then(|layer| layer.feed_forward.as_mut());
            if let Some(last) = last.filter(|_| pass < passes && !plain) {
                last.sum_norm = norm.cloned();
            }
        }
        Ok((all, passes))
    }
}
