//! A stored norm, applied to a row.

use super::scratch;
use crate::decoder::floats;
use crate::kernels::{self, Isa};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_spec::spec::{Norm, NormWeights};

/// A norm over rows of `width` elements.
#[derive(Clone, Debug)]
pub struct NormVectors {
    weight: WeightView,
    kind: Norm<WeightView>,
    /// Elements of a row.
    pub(super) width: usize,
}

impl NormVectors {
    /// The norm of `weights`.
    pub fn new(weights: &Weights, norm: &NormWeights) -> NormVectors {
        NormVectors {
            weight: weights.view(&norm.weight),
            kind: match &norm.kind {
                &Norm::Rms { eps, offset } => Norm::Rms { eps, offset },
                Norm::Layer { eps, bias } => {
                    Norm::Layer { eps: *eps, bias: bias.as_ref().map(|bias| weights.view(bias)) }
                }
            },
            width: norm.weight.shape[0] as usize,
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
        let weight = floats(&self.weight, part.clone());
        match &self.kind {
            Norm::Rms { eps, offset } => kernels::rms_norm(isa, x, weight, *offset, *eps as f32, out),
            Norm::Layer { eps, bias } => {
                let bias = bias.as_ref().map(|bias| floats(bias, part));
                kernels::layer_norm(isa, x, weight, bias, *eps as f32, out);
            }
        }
    }
}
