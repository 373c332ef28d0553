//! F32: multiplied as stored.
//!
//! Lane `i` of 16 (by AVX2, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

#![allow(unsafe_code)]

use super::isa::Sets;
use super::{Form, Input, LANES, Output, Registered, sum_lanes};
use crate::memory;
use model_diagnostics::{DType, capability::Tier};

const PORTABLE: Registered = Registered {
    name: "f32/portable",
    dtype: DType::F32,
    tier: Tier::Native,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: portable,
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f32/avx512", sets: Sets::AVX512, matmul: avx512::matmul, ..PORTABLE },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f32/avx2", sets: Sets::AVX2, matmul: avx2::matmul, ..PORTABLE },
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<4>().0) {
        *out = f32::from_le_bytes(*bytes);
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    floats_portable(weight, input, output, dequantize);
}

/// Rows widened one after the other, times all tokens.
pub(super) fn floats_portable(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    dequantize: impl Fn(&[u8], &mut [f32]),
) {
    let mut wide = match memory::zeros(input.inputs(), "a widened row") {
        Ok(wide) => wide,
        Err(refused) => return output.note(Err(refused)),
    };
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        dequantize(bytes, &mut wide);
        for token in 0..input.tokens() {
            output.part(token, row, 1)[0] = dot(&wide, input.floats(token));
        }
    }
}

fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (w, x) in w.chunks(LANES).zip(x.chunks(LANES)) {
        for ((lane, w), x) in lanes.iter_mut().zip(w).zip(x) {
            *lane += w * x;
        }
    }
    sum_lanes(lanes)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::kernels::avx2::{floats, load};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        floats(weight, input, output, |eight: &[u8; 32]| _mm256_castsi256_ps(load(eight)));
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use crate::kernels::avx512::{float_kernel, load_x, load_x_part, mask_16};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    float_kernel!(
        matmul, "avx512f,avx512bw,avx512dq,avx512vl", 16, 64, floats: f32,
        load_w, load_w_part, load_x, load_x_part, product
    );

    /// 16 elements.
    ///
    /// # Safety
    /// 64 bytes are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_w(w: *const u8) -> __m512 {
        // SAFETY: the caller's; the load needs no alignment.
        unsafe { _mm512_loadu_ps(w.cast()) }
    }

    /// The first `count` elements, and zeros.
    ///
    /// # Safety
    /// They are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_w_part(w: *const u8, count: usize) -> __m512 {
        // SAFETY: the caller's; what the mask leaves out is not read.
        unsafe { _mm512_maskz_loadu_ps(mask_16(count), w.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn product(w: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(w, x, sum)
    }
}
