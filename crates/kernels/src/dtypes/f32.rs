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
use crate::{Form, Registered};
use model_factory_dtypes::{DType, Tier};

const PORTABLE: Registered = Registered {
    name: "f32/portable",
    dtype: DType::F32,
    tier: Tier::Native,
    form: Form::F32,
    sets: Sets::PORTABLE,
    scaled: false,
    matmul: |call| floats::portable(call, dequantize),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f32/avx512", Sets::AVX512, x86_64::avx512::floats::widened::<f32>),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f32/avx2", Sets::AVX2, x86_64::avx2::floats::widened::<f32>),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("f32/neon", Sets::NEON, aarch64::neon::floats::widened::<f32>),
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    floats::dequantize(row, out, f32::from_le_bytes);
}
