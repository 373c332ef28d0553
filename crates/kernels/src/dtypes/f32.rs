//! F32: multiplied as stored.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

use super::floats;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64;
use crate::isa::Sets;
use crate::{Form, Product, Registered};
use model_factory_dtypes::{DType, Tier};

const PORTABLE: Registered = Registered {
    name: "f32/portable",
    dtype: DType::F32,
    tier: Tier::Native,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: Product::Rows(|weight, input, output| floats::portable(weight, input, output, dequantize)),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "f32/avx512",
        sets: Sets::AVX512,
        matmul: Product::Rows(x86_64::avx512::floats::widened::<f32>),
        ..PORTABLE
    },
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "f32/avx2",
        sets: Sets::AVX2,
        matmul: Product::Rows(x86_64::avx2::floats::widened::<f32>),
        ..PORTABLE
    },
    #[cfg(target_arch = "aarch64")]
    Registered {
        name: "f32/neon",
        sets: Sets::NEON,
        matmul: Product::Rows(aarch64::neon::floats::widened::<f32>),
        ..PORTABLE
    },
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<4>().0) {
        *out = f32::from_le_bytes(*bytes);
    }
}
