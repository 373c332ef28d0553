//! The kind and the epsilons of norms.

use super::reader::{Reader, missing};
use super::tensors::Tensors;
use crate::error::Result;
use crate::family::{HeadNorms, Key, NormKind, Role};
use crate::header::TensorInfo;

/// A norm.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// What it multiplies by, `[width]`; one where the model has no such tensor.
    pub weight: Option<TensorInfo>,
    /// Elements of a row.
    pub width: usize,
    /// Its formula.
    pub kind: Norm,
}

/// The formula of a norm. Complete.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Norm<T = TensorInfo> {
    /// `x / sqrt(mean(x^2) + eps) * weight`, or `... * (1 + weight)` where the weight is stored as its `offset` from one.
    Rms { eps: f64, offset: bool },
    /// `(x - mean(x)) / sqrt(variance(x) + eps) * weight`, with the weight as in the other, and `+ bias`, `[width]`, where
    /// there is one.
    Layer { eps: f64, offset: bool, bias: Option<T> },
}

impl Reader<'_> {
    /// The kind and the epsilon of every norm.
    pub(super) fn norms(&self) -> Result<(NormKind, f64)> {
        let has = |key: &Key| self.fields().has(&self.key(*key));
        let (kind, key) = match self.family.block.rms_key.filter(has) {
            Some(key) => (NormKind::Rms, key),
            None => (self.family.block.norm, self.family.files.keys.norm_eps),
        };
        let eps = self.fields().number(&self.key(key))?.or_else(|| self.default(key));
        let key = self.key(key);
        let eps = eps.ok_or_else(|| missing(self.fields(), &key, "the norm's epsilon is never guessed"))?;
        Ok((kind, self.epsilon(&key, eps)?))
    }

    /// The epsilon of norms after sub-layers, where it is another.
    pub(super) fn output_norm_eps(&self) -> Result<Option<f64>> {
        let Some((key, eps, why)) = self.family.block.output_norm_eps else { return Ok(None) };
        let key = self.key(key);
        let what = format_args!("an epsilon of {eps} after sub-layers");
        self.epsilon(&key, self.or_absent(self.fields().number(&key)?, eps, what, &key, why)).map(Some)
    }

    fn epsilon(&self, key: &str, eps: f64) -> Result<f64> {
        let known = eps > 0.0 && eps < 1.0;
        if known { Ok(eps) } else { Err(self.value(key, eps, "a number between 0 and 1".into())) }
    }
}

impl Tensors<'_> {
    /// The norm of queries or of keys, where the model has one. Those with a weight for each head have no bias.
    pub(super) fn head_norm(&mut self, role: Role, layer: Option<usize>) -> Result<Option<NormWeights>> {
        let block = &self.family.block;
        if let Some(plain) = block.plain_head_norms {
            return self.plain_head_norm(plain, layer);
        }
        let stored = match block.head_norm_flag {
            Some(_) if self.reader.is_gguf() => self.stores(&self.weight_name(role, layer)),
            Some(flag) => self.reader.flag(flag)?.unwrap_or(false),
            None => true,
        };
        if !stored || block.head_norms != HeadNorms::OfEachHead {
            return if stored { self.norm_if_named(role, layer) } else { Ok(None) };
        }
        let (width, ..) = self.shape(role, layer);
        let head_dim = self.sizes(layer).head_dim as u64;
        let weight = self.floats(role, layer, &self.weight_name(role, layer), &[width / head_dim, head_dim])?;
        let eps = self.options.norm_eps;
        let kind = match self.options.norm {
            NormKind::Rms | NormKind::RmsFromOne => Norm::Rms { eps, offset: false },
            NormKind::Layer | NormKind::LayerFromOne | NormKind::PlainLayer => {
                Norm::Layer { eps, offset: false, bias: None }
            }
        };
        let weight = Some(TensorInfo { shape: vec![width], ..weight });
        Ok(Some(NormWeights { weight, width: width as usize, kind }))
    }

    /// The norm of each head of queries or keys without a weight.
    fn plain_head_norm(
        &self,
        (flag, but_experts): (&'static str, usize),
        layer: Option<usize>,
    ) -> Result<Option<NormWeights>> {
        let (reader, sizes) = (self.reader, self.sizes(layer));
        let normed = match reader.is_gguf() {
            true => sizes.experts.is_none_or(|experts| experts.count != but_experts),
            false => reader.flag(flag)?.unwrap_or(true),
        };
        let rotates = layer.is_some_and(|layer| self.options.layers.rotated.has(layer));
        let kind = Norm::Rms { eps: self.options.norm_eps, offset: false };
        Ok((normed && rotates).then_some(NormWeights { weight: None, width: sizes.head_dim, kind }))
    }
}

impl NormWeights {
    /// The scale, and the shift of one that has it.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let bias = if let Norm::Layer { bias, .. } = &self.kind { bias.as_ref() } else { None };
        self.weight.iter().chain(bias)
    }

    /// Whether its weight is stored as an offset from one.
    pub fn is_from_one(&self) -> bool {
        matches!(self.kind, Norm::Rms { offset: true, .. } | Norm::Layer { offset: true, .. })
    }
}
