//! Attention by AVX2. The same bits as by AVX-512.

use super::simd::Avx2;
use crate::arch::generic::simd::operations;
use crate::attention::passes::{self, Attend};
use crate::attention::{Attention, KvElement, Query};
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn attend<E: KvElement>(queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    // SAFETY: the function is compiled for the instruction sets.
    passes::attend(unsafe { Avx2::new() }, queries, attention);
}

impl Attend for Avx2 {
    const QUERIES: usize = 2;

    operations! {
        no_ints() -> __m256i = _mm256_setzero_si256();
        all_ints(x: i32) -> __m256i = _mm256_set1_epi32(x);
        add_pairs(sums: __m256i, a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
        to_floats(ints: __m256i) -> __m256 = _mm256_cvtepi32_ps(ints);
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> __m256i {
        // SAFETY: the caller guarantees it.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bytes_apart(self, at: *const u8) -> __m256i {
        // SAFETY: the caller guarantees it.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())) }
    }
}
