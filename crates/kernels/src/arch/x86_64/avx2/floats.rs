//! Products of float dtypes by AVX2.

use super::simd::Avx2;
use crate::Call;
use crate::arch::generic::floats::widened as widened_by;
use crate::element::Element;

/// The product of weights that are widened in a register.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    widened_by::<_, E>(unsafe { Avx2::new() }, call);
}
