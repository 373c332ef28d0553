//! F16: widened in a register.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

use super::floats;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64;
use crate::element::f16_to_f32;
use crate::isa::Sets;
use crate::{Form, Registered};
use model_factory_dtypes::{DType, Tier};

const PORTABLE: Registered = Registered {
    name: "f16/portable",
    dtype: DType::F16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    scaled: false,
    matmul: |call| floats::portable(call, dequantize),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f16/avx512", Sets::AVX512, x86_64::avx512::floats::widened::<half::f16>),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f16/avx2", Sets::AVX2, x86_64::avx2::floats::widened::<half::f16>),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("f16/neon", Sets::NEON, aarch64::neon::floats::widened::<half::f16>),
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    floats::dequantize(row, out, f16_to_f32);
}
