//! BF16: by the processor's BF16 dot product where it has one, else widened by a shift.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16 (with the BF16 dot product: whose
//! index halved is `i` modulo 16), in order; the lanes are added by `sum_lanes`.

#![allow(unsafe_code)]

use super::floats;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::arch::generic;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64;
use crate::isa::Sets;
use crate::{Form, Product, Registered};
use model_factory_dtypes::{DType, Tier};

const PORTABLE: Registered = Registered {
    name: "bf16/portable",
    dtype: DType::BF16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: Product::Rows(|weight, input, output| floats::portable(weight, input, output, dequantize)),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "bf16/avx512-bf16",
        tier: Tier::Native,
        form: Form::Bf16,
        sets: Sets::AVX512.and(Sets::BF16),
        matmul: Product::Rows(avx512_bf16::matmul),
        ..PORTABLE
    },
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "bf16/avx512",
        sets: Sets::AVX512,
        matmul: Product::Rows(x86_64::avx512::floats::widened::<half::bf16>),
        ..PORTABLE
    },
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "bf16/avx2",
        sets: Sets::AVX2,
        matmul: Product::Rows(generic::floats::avx2::<half::bf16>),
        ..PORTABLE
    },
    #[cfg(target_arch = "aarch64")]
    Registered {
        name: "bf16/neon-bf16",
        tier: Tier::Native,
        form: Form::Bf16,
        sets: Sets::ARM_BF16,
        matmul: Product::Rows(aarch64::neon::bf16::matmul),
        ..PORTABLE
    },
    #[cfg(target_arch = "aarch64")]
    Registered {
        name: "bf16/neon",
        sets: Sets::NEON,
        matmul: Product::Rows(generic::floats::neon::<half::bf16>),
        ..PORTABLE
    },
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512_bf16 {
    use crate::arch::x86_64::avx512::floats::{Steps, matmul as matmul_by};
    use crate::{Input, Output};
    use half::bf16;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        // SAFETY: the function is compiled for the instruction sets.
        unsafe { matmul_by::<Products>(weight, input, output) };
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
            // SAFETY: the caller's; what the mask leaves out is not read.
            let bits = unsafe {
                if WHOLE { _mm512_loadu_si512(w.cast()) } else { _mm512_maskz_loadu_epi16((1 << left) - 1, w.cast()) }
            };
            // SAFETY: both types are 512 bits, and all bits are valid in both.
            unsafe { transmute::<__m512i, __m512bh>(bits) }
        }

        #[inline(always)]
        unsafe fn load_x<const WHOLE: bool>(x: *const u16, left: usize) -> __m512bh {
            // SAFETY: the caller's.
            unsafe { Self::load::<WHOLE>(x.cast(), left) }
        }

        #[inline(always)]
        unsafe fn product(w: __m512bh, x: __m512bh, sum: __m512) -> __m512 {
            // SAFETY: the caller's.
            unsafe { _mm512_dpbf16_ps(sum, w, x) }
        }
    }
}
