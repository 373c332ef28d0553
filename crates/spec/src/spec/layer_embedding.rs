//! Per-layer embeddings: a row for each token and layer, which the layer's block adds to the residual stream.

use super::reader::Reader;
use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{LinearWeights, MapWeights, Stored, WeightTypes};
use crate::error::Result;
use crate::family::{Key, Role};
use crate::header::TensorInfo;

/// The most elements of a row of all layers together.
const MOST_ELEMENTS: usize = 1 << 24;

weights! {
    /// Per-layer embeddings (transformers `modeling_gemma4.py`): a layer's input is
    /// `(norm(projection(x) / sqrt(hidden)) + embedding * sqrt(width)) / sqrt(2)`, with `x` the model's embedding as the
    /// first block reads it.
    pub struct LayerEmbeddingWeights<W> {
        /// Elements of a row for one layer.
        pub width: usize,
        /// The embedding, `[vocab, layers * width]`, or of fewer tokens: later ones have the first row.
        pub embedding: W::Matrix = matrix,
        /// The projection of the model's embedding, `[layers * width, hidden]`.
        pub projection: W::Matrix = matrix,
        /// The norm of the projection's part for a layer, `[width]`.
        pub norm: W::Norm = norm,
    }

    /// How a block uses its layer input: `norm(output(gelu(gate(x)) * input))` is added to the residual stream `x`.
    pub struct LayerEmbeddingUse<W> {
        /// The gate projection, `[width, hidden]`.
        pub gate: W::Matrix = matrix,
        /// The output projection, `[hidden, width]`.
        pub output: W::Matrix = matrix,
        /// The norm of the output, `[hidden]`.
        pub output_norm: W::Norm = norm,
    }
}

impl Reader<'_> {
    /// Elements of a token's embedding for a layer; 0 without per-layer embeddings.
    pub(super) fn layer_embedding_width(&self, layers: usize) -> Result<usize> {
        let Some((key, default, why)) = self.family.block.layer_embedding else { return Ok(0) };
        let key = self.key(key);
        let width = match self.fields().unsigned(&key)? {
            None if self.is_gguf() || self.is_null(&key) => 0,
            width => {
                let width = width.map(|width| usize::try_from(width).unwrap_or(usize::MAX));
                self.or_default(width, &key, (default, why))
            }
        };
        if width.saturating_mul(layers) > MOST_ELEMENTS {
            return Err(self.value(&key, width, format!("at most {MOST_ELEMENTS} elements in all layers together")));
        }
        Ok(width)
    }

    /// How many of the tokens of a `vocab` have such an embedding.
    pub(super) fn layer_vocab(&self, vocab: usize) -> Result<usize> {
        let Some((key, default, why)) = self.family.block.layer_vocabulary.filter(|_| !self.is_gguf()) else {
            return Ok(vocab);
        };
        Ok(self.or_default(self.size(Key::config(key))?, key, (default, why)))
    }
}

impl Tensors<'_> {
    /// The factor of the residual stream after `layer`. GGUF files may lack it, as in llama.cpp.
    pub(super) fn scale(&mut self, layer: usize) -> Result<Option<TensorInfo>> {
        let name = self.stem(Role::LayerScale, Some(layer));
        if self.reader.is_gguf() && !self.stores(&name) {
            return Ok(None);
        }
        self.whole_name_if_named(Role::LayerScale, Some(layer))
    }

    pub(super) fn layer_embedding(&mut self) -> Result<Option<Box<LayerEmbeddingWeights>>> {
        let width = self.sizes.layer_embedding;
        if width == 0 {
            return Ok(None);
        }
        Ok(Some(Box::new(LayerEmbeddingWeights {
            width,
            embedding: LinearWeights::new(self.matrix(Role::LayerEmbedding, None)?.weight),
            projection: self.matrix(Role::LayerEmbeddingProjection, None)?,
            norm: self.norm(Role::LayerEmbeddingNorm, None)?,
        })))
    }

    pub(super) fn layer_embedding_use(&mut self, layer: usize) -> Result<Option<Box<LayerEmbeddingUse>>> {
        if self.sizes.layer_embedding == 0 {
            return Ok(None);
        }
        let at = Some(layer);
        Ok(Some(Box::new(LayerEmbeddingUse {
            gate: self.matrix(Role::LayerEmbeddingGate, at)?,
            output: self.matrix(Role::LayerEmbeddingOutput, at)?,
            output_norm: self.norm(Role::LayerEmbeddingOutputNorm, at)?,
        })))
    }
}
