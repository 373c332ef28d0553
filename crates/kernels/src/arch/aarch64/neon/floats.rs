//! Products of float dtypes by NEON.

use super::simd::Neon;
use crate::Call;
use crate::arch::generic::floats::widened as widened_by;
use crate::element::Element;

/// The product of weights that are widened in a register.
#[target_feature(enable = "neon")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    widened_by::<Neon, E>(unsafe { Neon::new() }, call);
}
