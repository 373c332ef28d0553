//! Embeddings of layers: a row for each token, of which each block adds a part to the residual stream.

use super::reader::Reader;
use super::tensors::Tensors;
use super::{LinearWeights, NormWeights};
use crate::error::Result;
use crate::family::{Family, Role};
use crate::header::TensorInfo;

/// The most elements of a row in all layers together.
const MOST_ELEMENTS: usize = 1 << 24;

/// Embeddings of layers (transformers `modeling_gemma4.py`, per-layer embeddings): a layer's input is
/// `(norm(projection(x) / sqrt(hidden)) + embedding * sqrt(width)) / sqrt(2)`, `x` the model's embedding as the first block
/// reads it.
#[derive(Clone, Debug)]
pub struct LayerEmbeddingWeights {
    /// Elements of a layer.
    pub width: usize,
    /// `[vocab, layers * width]`.
    pub embedding: TensorInfo,
    /// `[layers * width, hidden]`.
    pub projection: LinearWeights,
    /// Of what the projection gives a layer, `[width]`.
    pub norm: NormWeights,
}

/// What a block does with its input of these: `norm(output(gelu(gate(x)) * input))` is added to the residual stream `x`.
#[derive(Clone, Debug)]
pub struct LayerEmbeddingUse {
    /// `[width, hidden]`.
    pub gate: LinearWeights,
    /// `[hidden, width]`.
    pub output: LinearWeights,
    /// `[hidden]`.
    pub output_norm: NormWeights,
}

impl LayerEmbeddingWeights {
    /// Every tensor once.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let LayerEmbeddingWeights { width: _, embedding, projection, norm } = self;
        std::iter::once(embedding).chain(projection.tensors()).chain(norm.tensors())
    }

    /// The matrices.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &TensorInfo> {
        [&self.embedding, &self.projection.weight].into_iter()
    }
}

impl Reader<'_> {
    /// Elements of a token's embedding for a layer; 0 without.
    pub(super) fn layer_embedding_width(
        &self,
        family: &Family,
        layers: usize,
        assumptions: &mut Vec<String>,
    ) -> Result<usize> {
        let Some(table) = &family.layer_embedding else { return Ok(0) };
        let key = self.key(table.width);
        let width = match self.fields().unsigned(&key)? {
            Some(width) => usize::try_from(width).unwrap_or(usize::MAX),
            None if self.is_gguf() || self.is_null(&key) => 0,
            None => {
                let (width, why) = table.default_width;
                assumptions.push(format!("{key} {width}: it is absent ({why})"));
                width
            }
        };
        if width.saturating_mul(layers) > MOST_ELEMENTS {
            return Err(self.value(&key, width, format!("at most {MOST_ELEMENTS} elements in all layers together")));
        }
        Ok(width)
    }
}

impl Tensors<'_> {
    /// What the residual stream is multiplied by behind `layer`. GGUF files may lack it, as in llama.cpp.
    pub(super) fn scale(&mut self, layer: usize) -> Result<Option<TensorInfo>> {
        let (role, at) = (Role::LayerScale, Some(layer));
        let name = self.stem(role, at);
        if !self.names(role) || self.reader.is_gguf() && !self.header.tensors.contains_key(&name) {
            return Ok(None);
        }
        let (width, _, because) = self.sizes.of(role);
        let scale = self.checked(&name, &[width], &because)?;
        self.check_vector_dtype(&scale)?;
        Ok(Some(scale))
    }

    /// The embeddings of layers, where the model has them.
    pub(super) fn layer_embedding(&mut self) -> Result<Option<Box<LayerEmbeddingWeights>>> {
        let width = self.sizes.layer_embedding;
        if width == 0 {
            return Ok(None);
        }
        Ok(Some(Box::new(LayerEmbeddingWeights {
            width,
            embedding: self.matrix(Role::LayerEmbedding, None)?.weight,
            projection: self.matrix(Role::LayerEmbeddingProjection, None)?,
            norm: self.norm(Role::LayerEmbeddingNorm, None)?,
        })))
    }

    /// What `layer` does with its own.
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
