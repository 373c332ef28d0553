//! Vectors of AVX-512.

use crate::arch::generic::simd::{E4M3_IN_F16, Simd, bytes_of_codes, operations};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Vectors of 512 bits: AVX-512 F, BW, DQ and VL, and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool = false>(());

impl<const VNNI: bool> Avx512<VNNI> {
    /// # Safety
    /// The processor has F, BW, DQ and VL, and VNNI if the parameter says so.
    pub(crate) unsafe fn new() -> Self {
        Avx512(())
    }

    /// Loads 16 halves, or those before the end with zeros after them.
    ///
    /// # Safety
    /// The conditions of [`Simd::load`].
    #[inline(always)]
    unsafe fn load_halves<const WHOLE: bool>(self, at: *const u16, left: usize) -> __m256i {
        // SAFETY: the caller guarantees it; what the mask leaves out is not read.
        unsafe {
            if WHOLE { _mm256_loadu_si256(at.cast()) } else { _mm256_maskz_loadu_epi16(mask_16(left), at.cast()) }
        }
    }
}

/// A mask of the low `count` bits, for 16 elements.
#[inline]
pub(crate) fn mask_16(count: usize) -> u16 {
    ((1u32 << count.min(16)) - 1) as u16
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type Floats = __m512;
    type Bits = __m512i;
    type Table = __m512;
    const LANES: usize = 16;

    operations! {
        all(x: f32) -> __m512 = _mm512_set1_ps(x);
        all_int(x: i32) -> __m512 = _mm512_cvtepi32_ps(_mm512_set1_epi32(x));
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        negated_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        sum(v: __m512) -> f32 = super::sum_lanes(v);
    }

    #[inline(always)]
    unsafe fn load<const WHOLE: bool>(self, at: *const f32, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it; what the mask leaves out is not read.
        unsafe { if WHOLE { _mm512_loadu_ps(at) } else { _mm512_maskz_loadu_ps(mask_16(left), at) } }
    }

    #[inline(always)]
    unsafe fn load_f16<const WHOLE: bool>(self, at: *const f16, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_cvtph_ps(self.load_halves::<WHOLE>(at.cast(), left)) }
    }

    #[inline(always)]
    unsafe fn load_bf16<const WHOLE: bool>(self, at: *const bf16, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it.
        let halves = unsafe { self.load_halves::<WHOLE>(at.cast(), left) };
        // SAFETY: the value proves the instruction sets.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3<const WHOLE: bool>(self, at: *const u8, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it; what the mask leaves out is not read.
        unsafe {
            let bytes = if WHOLE { _mm_loadu_si128(at.cast()) } else { _mm_maskz_loadu_epi8(mask_16(left), at.cast()) };
            let words = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(bytes));
            _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16(E4M3_IN_F16)))
        }
    }

    #[inline(always)]
    fn table(self, values: &[f32; 16]) -> __m512 {
        // SAFETY: there are 16.
        unsafe { self.load::<true>(values.as_ptr(), 16) }
    }

    #[inline(always)]
    fn scaled(self, table: __m512, scale: f32) -> __m512 {
        self.mul(table, self.all(scale))
    }

    #[inline(always)]
    unsafe fn look_up<const WHOLE: bool>(self, table: __m512, at: *const u8, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it; the value proves the instruction sets.
        unsafe {
            let eights = _mm512_set1_epi64(i64::from_le_bytes(bytes_of_codes::<8, WHOLE>(at, left)));
            // Even lanes are of the first eight codes, odd ones of the others: a shift brings a code to the low four bits, and of an
            // index only these count.
            let shifts = _mm512_setr_epi32(4, 4, 0, 0, 12, 12, 8, 8, 20, 20, 16, 16, 28, 28, 24, 24);
            _mm512_permutexvar_ps(_mm512_srlv_epi32(eights, shifts), table)
        }
    }

    #[inline(always)]
    fn as_looked_up(self, v: __m512) -> __m512 {
        // SAFETY: the value proves the instruction sets.
        unsafe { _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), v) }
    }

    #[inline(always)]
    fn in_order(self, v: __m512) -> __m512 {
        // SAFETY: the value proves the instruction sets.
        unsafe { _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), v) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, left: usize, v: __m512) {
        // SAFETY: the caller guarantees it; the mask keeps the store inside.
        unsafe { _mm512_mask_storeu_ps(at, mask_16(left), v) };
    }

    #[inline(always)]
    unsafe fn store_all(self, at: *mut f32, v: __m512) {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_storeu_ps(at, v) };
    }

    #[inline(always)]
    unsafe fn store_bits(self, at: *mut u8, v: __m512i) {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_storeu_si512(at.cast(), v) };
    }
}
