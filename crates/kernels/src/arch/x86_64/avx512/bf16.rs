//! BF16 by the dot product of AVX-512 BF16.

use super::floats::{Steps, matmul as matmul_by};
use crate::{Call, Input};
use half::bf16;
use std::arch::x86_64::*;
use std::mem::transmute;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    unsafe { matmul_by::<Products>(call) };
}

struct Products;

impl Steps for Products {
    type Weight = bf16;
    type X = u16;
    type Register = __m512bh;
    const ELEMENTS: usize = 32;

    #[inline(always)]
    fn row(input: &Input, token: usize) -> &[u16] {
        input.halves(token)
    }

    #[inline(always)]
    unsafe fn load<const WHOLE: bool>(w: *const bf16, left: usize) -> __m512bh {
        // SAFETY: the caller guarantees it; what the mask leaves out is not read.
        let bits = unsafe {
            if WHOLE { _mm512_loadu_si512(w.cast()) } else { _mm512_maskz_loadu_epi16((1 << left) - 1, w.cast()) }
        };
        // SAFETY: both types are 512 bits, and all bits are valid in both.
        unsafe { transmute::<__m512i, __m512bh>(bits) }
    }

    #[inline(always)]
    unsafe fn load_x<const WHOLE: bool>(x: *const u16, left: usize) -> __m512bh {
        // SAFETY: the caller guarantees it.
        unsafe { Self::load::<WHOLE>(x.cast(), left) }
    }

    #[inline(always)]
    unsafe fn product(w: __m512bh, x: __m512bh, sum: __m512) -> __m512 {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_dpbf16_ps(sum, w, x) }
    }
}
