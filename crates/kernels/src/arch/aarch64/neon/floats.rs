//! Products of float dtypes by NEON.

use super::simd::{Neon, sum_eight_lanes};
use crate::Call;
use crate::arch::generic::floats::{Eight, widened as widened_by};
use crate::element::Element;

impl Eight for Neon {
    #[inline(always)]
    fn sum(self, v: Self::Floats) -> f32 {
        // SAFETY: the value is the proof.
        unsafe { sum_eight_lanes(v) }
    }
}

/// The product of weights that are widened in a register.
#[target_feature(enable = "neon")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    widened_by::<_, E>(unsafe { Neon::new() }, call);
}
