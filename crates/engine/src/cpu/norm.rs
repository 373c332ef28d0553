//! A stored norm, applied to a row.

use super::scratch;
use crate::decoder::floats;
use crate::kernels::{self, Gain, Isa};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_spec::spec::{Norm, NormWeights};

/// A norm over rows of `width` elements.
#[derive(Clone, Debug)]
pub struct NormVectors {
    weight: Option<WeightView>,
    kind: Norm<WeightView>,
    /// Elements of a row.
    pub(super) width: usize,
}

impl NormVectors {
    /// The norm of `weights`.
    pub fn new(weights: &Weights, norm: &NormWeights) -> NormVectors {
        NormVectors {
            weight: norm.weight.as_ref().map(|weight| weights.view(weight)),
            kind: match norm.kind {
                Norm::Rms { eps, offset } => Norm::Rms { eps, offset },
                Norm::Layer { eps, offset, ref bias } => {
                    Norm::Layer { eps, offset, bias: bias.as_ref().map(|bias| weights.view(bias)) }
                }
            },
            width: norm.width,
        }
    }

    /// `out` = the norm of the row `x`.
    pub(super) fn apply(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        self.apply_part(isa, 0, x, out);
    }

    /// `x` = its norm by the weights from element `first` on.
    pub(super) fn apply_in_place(&self, isa: Isa, first: usize, x: &mut [f32]) -> memory::Result<()> {
        scratch::with_scratch(x.len(), |plain| {
            plain.copy_from_slice(x);
            self.apply_part(isa, first, plain, x);
            Ok(())
        })
    }

    /// `out` = the norm of `x`, a part that is normed by itself, by the weights from element `first` on.
    fn apply_part(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        let part = first..first + x.len();
        let gain = |offset: bool| match &self.weight {
            None => Gain::One,
            Some(weight) if offset => Gain::FromOne(floats(weight, part.clone())),
            Some(weight) => Gain::Stored(floats(weight, part.clone())),
        };
        match &self.kind {
            Norm::Rms { eps, offset } => kernels::rms_norm(isa, x, gain(*offset), *eps as f32, out),
            Norm::Layer { eps, offset, bias } => {
                let bias = bias.as_ref().map(|bias| floats(bias, part.clone()));
                kernels::layer_norm(isa, x, gain(*offset), bias, *eps as f32, out);
            }
        }
    }
}
