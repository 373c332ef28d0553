//! BF16: by the processor's BF16 dot product where it has one, else widened by a shift.
//!
//! Lane `i` of 16 (by AVX2, of 8) adds up the products whose index is `i` modulo 16 (with the BF16 dot product: whose
//! index halved is `i` modulo 16), in order; the lanes are added by `sum_lanes`.

#![allow(unsafe_code)]

use super::f32::floats_portable;
use super::isa::Sets;
use super::{Form, Input, Output, Registered};
use model_diagnostics::{DType, capability::Tier};

const PORTABLE: Registered = Registered {
    name: "bf16/portable",
    dtype: DType::BF16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: portable,
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "bf16/avx512-bf16",
        tier: Tier::Native,
        form: Form::Bf16,
        sets: Sets::AVX512.and(Sets::BF16),
        matmul: avx512_bf16::matmul,
        ..PORTABLE
    },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "bf16/avx512", sets: Sets::AVX512, matmul: avx512::matmul, ..PORTABLE },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "bf16/avx2", sets: Sets::AVX2, matmul: avx2::matmul, ..PORTABLE },
    PORTABLE,
];

pub(super) fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
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
        floats(weight, input, output, |eight: &[u8; 16]| {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_16(eight))))
        });
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
        let halves = unsafe { _mm256_loadu_si256(w.cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
    }

    /// The first `count` elements, widened, and zeros.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_w_part(w: *const u8, count: usize) -> __m512 {
        // SAFETY: the caller's; what the mask leaves out is not read.
        let halves = unsafe { _mm256_maskz_loadu_epi16(mask_16(count), w.cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn product(w: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(w, x, sum)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512_bf16 {
    use crate::kernels::avx512::float_kernel;
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;
    use std::mem::transmute;

    float_kernel!(
        matmul, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", 32, 64, halves: u16,
        load_w, load_w_part, load_x, load_x_part, product
    );

    /// 32 elements.
    ///
    /// # Safety
    /// 64 bytes are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn load_w(w: *const u8) -> __m512bh {
        // SAFETY: the caller's; the load needs no alignment.
        let bits = unsafe { _mm512_loadu_si512(w.cast()) };
        // SAFETY: both types are 512 bits, and all bits are valid in both.
        unsafe { transmute::<__m512i, __m512bh>(bits) }
    }

    /// The first `count` elements, and zeros.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn load_w_part(w: *const u8, count: usize) -> __m512bh {
        // SAFETY: the caller's; what the mask leaves out is not read.
        let bits = unsafe { _mm512_maskz_loadu_epi16((1 << count) - 1, w.cast()) };
        // SAFETY: both types are 512 bits, and all bits are valid in both.
        unsafe { transmute::<__m512i, __m512bh>(bits) }
    }

    /// 32 activations.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn load_x(x: *const u16) -> __m512bh {
        // SAFETY: the caller's.
        unsafe { load_w(x.cast()) }
    }

    /// The first `count` activations, and zeros.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn load_x_part(x: *const u16, count: usize) -> __m512bh {
        // SAFETY: the caller's.
        unsafe { load_w_part(x.cast(), count) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn product(w: __m512bh, x: __m512bh, sum: __m512) -> __m512 {
        _mm512_dpbf16_ps(sum, w, x)
    }
}
