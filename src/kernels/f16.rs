//! F16: widened in a register.
//!
//! Lane `i` of 16 (by AVX2, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

#![allow(unsafe_code)]

use super::f32::floats_portable;
use super::isa::Sets;
use super::{Form, Input, Output, Registered};
use model_diagnostics::{DType, capability::Tier};

const PORTABLE: Registered = Registered {
    name: "f16/portable",
    dtype: DType::F16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: portable,
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f16/avx512", sets: Sets::AVX512, matmul: avx512::matmul, ..PORTABLE },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f16/avx2", sets: Sets::AVX2, matmul: avx2::matmul, ..PORTABLE },
    PORTABLE,
];

/// The value of the half-precision number stored in two bytes.
#[inline(always)]
pub(super) fn f16_to_f32(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = bits & 0x7fff;
    // Exponent and fraction shifted into place, then the bias made good by a multiplication, which is exact and
    // normalises subnormal numbers too; infinities and NaNs get the whole exponent instead.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23);
    let special = f32::from_bits(magnitude << 13 | 0xff << 23);
    let value = if magnitude >= 0x7c00 { special } else { finite };
    f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
}

/// The half-precision number at byte `at`.
#[inline(always)]
pub(super) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32([bytes[at], bytes[at + 1]])
}

pub(super) fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f16_to_f32(*bytes);
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    floats_portable(weight, input, output, dequantize);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::kernels::avx2::{floats, load_16};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        floats(weight, input, output, |eight: &[u8; 16]| _mm256_cvtph_ps(load_16(eight)));
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use crate::kernels::avx512::{float_kernel, load_x, load_x_part, mask_16};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    float_kernel!(
        matmul, "avx512f,avx512bw,avx512dq,avx512vl", 16, 32, floats: f32,
        load_w, load_w_part, load_x, load_x_part, product
    );

    /// 16 elements, widened.
    ///
    /// # Safety
    /// 32 bytes are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_w(w: *const u8) -> __m512 {
        // SAFETY: the caller's; the load needs no alignment.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(w.cast()) })
    }

    /// The first `count` elements, widened, and zeros.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_w_part(w: *const u8, count: usize) -> __m512 {
        // SAFETY: the caller's; what the mask leaves out is not read.
        _mm512_cvtph_ps(unsafe { _mm256_maskz_loadu_epi16(mask_16(count), w.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn product(w: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(w, x, sum)
    }
}
