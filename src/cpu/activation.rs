//! The activation of a feed-forward layer, of a row.

use crate::kernels::{self, Isa};
use model_diagnostics::spec::Activation;

/// `out` = the activation of a row's products.
pub(super) fn activate<Gate>(isa: Isa, activation: &Activation<Gate>, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::SwiGlu { .. } => kernels::swiglu(isa, gate, up, out),
        Activation::GeGlu { .. } => kernels::geglu(isa, gate, up, out),
        Activation::GeGluErf { .. } => {
            out.copy_from_slice(gate);
            kernels::gelu_erf(isa, out);
            out.iter_mut().zip(up).for_each(|(out, up)| *out *= up);
        }
        &Activation::ClampedSwiGlu { limit, alpha, .. } => kernels::clamped_swiglu(isa, [gate, up], limit, alpha, out),
        Activation::GeluTanh => {
            out.copy_from_slice(up);
            kernels::gelu_tanh(isa, out);
        }
        Activation::Gelu => {
            out.copy_from_slice(up);
            kernels::gelu_erf(isa, out);
        }
    }
}
