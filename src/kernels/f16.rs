//! F16: widened in a register.
//!
//! Lane `i` of 16 (by AVX2, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

use super::isa::Sets;
use super::{Form, Registered, floats};
use model_diagnostics::{DType, capability::Tier};

const PORTABLE: Registered = Registered {
    name: "f16/portable",
    dtype: DType::F16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: |weight, input, output| floats::portable(weight, input, output, dequantize),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f16/avx512", sets: Sets::AVX512, matmul: floats::avx512::widened::<half::f16>, ..PORTABLE },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f16/avx2", sets: Sets::AVX2, matmul: floats::avx2::widened::<half::f16>, ..PORTABLE },
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

fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f16_to_f32(*bytes);
    }
}
