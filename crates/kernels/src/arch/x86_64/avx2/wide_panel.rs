//! Products by AVX2.
//!
//! One `vpmaddubsw` with four activations of a token, repeated in all lanes, gives two sums of pairs for each of 8 outputs. As
//! many of these as fit 16 bits are added before they are widened to 32.

#![allow(clippy::needless_range_loop)] // tokens are indices of several arrays

use super::simd::Avx2;
use super::{load, pairs, transpose};
use crate::Call;
use crate::arch::generic::panel::Multiply;
use crate::arch::generic::simd::Simd;
use crate::arch::generic::wide::EightBlocks;
use crate::arch::generic::wide_panel::{Columns, ROWS, matmul_by};
use crate::dtypes::blocks::Format;
use crate::scratch::with_scratch;
use std::arch::x86_64::*;
use std::ops::Range;

const _: () = assert!(ROWS == Avx2::LANES);

/// The number of vectors of pairs whose sum fits 16 bits; half a block has four.
const fn pairs_a_word<F: Format>() -> usize {
    match F::BITS {
        0..=4 if !F::HALVES => 8,
        0..=5 => 4,
        6 => 2,
        _ => 1,
    }
}

impl Multiply for Avx2 {
    const TOKENS: usize = 4;
    const ASKS: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn products<F: Format, const T: usize>(
        self,
        w: *const u8,
        x: &[[[i8; 4]; 8]; T],
        groups: Range<usize>,
        offsets: &[i32; T],
    ) -> [__m256; T] {
        let zero = _mm256_setzero_si256();
        let mut dots = [zero; T];
        for some in groups.step_by(const { pairs_a_word::<F>() }) {
            let mut words = [zero; T];
            for group in some..some + const { pairs_a_word::<F>() } {
                // SAFETY: the caller guarantees it.
                let w = load(unsafe { &*w.add(32 * group).cast() });
                for t in 0..T {
                    let x = _mm256_set1_epi32(i32::from_le_bytes(x[t][group].map(|x| x as u8)));
                    words[t] = _mm256_add_epi16(words[t], pairs::<F>(w, x));
                }
            }
            for t in 0..T {
                dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(words[t], _mm256_set1_epi16(1)));
            }
        }
        let mut sums = [_mm256_setzero_ps(); T];
        for t in 0..T {
            let offset = if F::OFFSET > 0 { offsets[t] >> F::SHIFT } else { 0 };
            sums[t] = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[t], _mm256_set1_epi32(offset)));
        }
        sums
    }
}

impl Columns for Avx2 {
    #[inline(always)]
    fn columns<F: Format>(self, rows: [__m256i; ROWS]) -> [__m256i; 8] {
        // SAFETY: the value proves the instruction sets.
        unsafe { transpose(rows) }
    }
}

/// The matrix product with several tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn many_tokens<F: EightBlocks<EIGHT>, const EIGHT: usize>(call: &mut Call<'_>, eights: &F) {
    // SAFETY: the function is compiled for the instruction sets.
    let simd = unsafe { Avx2::new() };
    // SAFETY: the reason above holds here too.
    let done = with_scratch(|scratch| unsafe { matmul_by(simd, scratch, call, eights) });
    call.note(done);
}
