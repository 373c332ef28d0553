//! The kind and the epsilons of norms.

use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::{Key, NormKind};
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
