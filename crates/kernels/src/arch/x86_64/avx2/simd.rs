//! Vectors of AVX2.

use crate::arch::generic::simd::{E4M3_IN_F16, Simd, bytes_of_codes, operations};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Vectors of 256 bits: AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    pub(crate) unsafe fn new() -> Avx2 {
        Avx2(())
    }

    /// Loads 8 halves, or those before the end with zeros after them.
    ///
    /// # Safety
    /// The conditions of [`Simd::load`].
    #[inline(always)]
    unsafe fn load_halves<const WHOLE: bool>(self, at: *const u16, left: usize) -> __m128i {
        let mut halves = [0; 8];
        let at = if WHOLE {
            at.cast::<u8>()
        } else {
            // SAFETY: the caller guarantees it: so many can be read, and they are no part of a local array.
            unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), halves.as_mut_ptr().cast(), 2 * left.min(8)) };
            halves.as_ptr().cast()
        };
        // SAFETY: 8 halves are at `at` by now.
        unsafe { _mm_loadu_si128(at.cast()) }
    }
}

/// The mask of the first `left` of 8 elements.
#[inline]
#[target_feature(enable = "avx2")]
fn mask_8(left: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(left.min(8) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

impl Simd for Avx2 {
    type Floats = __m256;
    type Bits = __m256i;
    type Table = [__m256; 2];
    const LANES: usize = 8;

    operations! {
        all(x: f32) -> __m256 = _mm256_set1_ps(x);
        all_int(x: i32) -> __m256 = _mm256_cvtepi32_ps(_mm256_set1_epi32(x));
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        negated_mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        sum(v: __m256) -> f32 = super::sum_eight_lanes(v);
    }

    #[inline(always)]
    unsafe fn load<const WHOLE: bool>(self, at: *const f32, left: usize) -> __m256 {
        // SAFETY: the caller guarantees it; what the mask leaves out is not read.
        unsafe { if WHOLE { _mm256_loadu_ps(at) } else { _mm256_maskload_ps(at, mask_8(left)) } }
    }

    #[inline(always)]
    unsafe fn load_f16<const WHOLE: bool>(self, at: *const f16, left: usize) -> __m256 {
        // SAFETY: the caller guarantees it.
        unsafe { _mm256_cvtph_ps(self.load_halves::<WHOLE>(at.cast(), left)) }
    }

    #[inline(always)]
    unsafe fn load_bf16<const WHOLE: bool>(self, at: *const bf16, left: usize) -> __m256 {
        // SAFETY: the caller guarantees it.
        let halves = unsafe { self.load_halves::<WHOLE>(at.cast(), left) };
        // SAFETY: the value proves the instruction sets.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3<const WHOLE: bool>(self, at: *const u8, left: usize) -> __m256 {
        let mut bytes = [0; 8];
        let at = if WHOLE {
            at
        } else {
            // SAFETY: the caller guarantees it: so many can be read, and they are no part of a local array.
            unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), left.min(8)) };
            bytes.as_ptr()
        };
        // SAFETY: 8 bytes are at `at` by now; the value proves the instruction sets.
        unsafe {
            let words = _mm_slli_epi16::<7>(_mm_cvtepi8_epi16(_mm_loadl_epi64(at.cast())));
            _mm256_cvtph_ps(_mm_and_si128(words, _mm_set1_epi16(E4M3_IN_F16)))
        }
    }

    #[inline(always)]
    fn table(self, values: &[f32; 16]) -> [__m256; 2] {
        // SAFETY: there are 16.
        unsafe { [self.load::<true>(values.as_ptr(), 8), self.load::<true>(values.as_ptr().add(8), 8)] }
    }

    #[inline(always)]
    fn scaled(self, [low, high]: [__m256; 2], scale: f32) -> [__m256; 2] {
        let scale = self.all(scale);
        [self.mul(low, scale), self.mul(high, scale)]
    }

    #[inline(always)]
    unsafe fn look_up<const WHOLE: bool>(self, [low, high]: [__m256; 2], at: *const u8, left: usize) -> __m256 {
        // SAFETY: the caller guarantees it; the value proves the instruction sets.
        unsafe {
            let word = i32::from_le_bytes(bytes_of_codes::<4, WHOLE>(at, left));
            let shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
            // Of an index, only the low three bits count; the fourth chooses the half of the table.
            let codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
            let (low, high) = (_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes));
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, left: usize, v: __m256) {
        // SAFETY: the caller guarantees it; the mask keeps the store inside.
        unsafe { _mm256_maskstore_ps(at, mask_8(left), v) };
    }

    #[inline(always)]
    unsafe fn store_all(self, at: *mut f32, v: __m256) {
        // SAFETY: the caller guarantees it.
        unsafe { _mm256_storeu_ps(at, v) };
    }

    #[inline(always)]
    unsafe fn store_bits(self, at: *mut u8, v: __m256i) {
        // SAFETY: the caller guarantees it.
        unsafe { _mm256_storeu_si256(at.cast(), v) };
    }
}
