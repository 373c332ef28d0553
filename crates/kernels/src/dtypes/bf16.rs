//! BF16: by the processor's BF16 dot product where it has one, else widened by a shift.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16 (with the BF16 dot product: whose
//! index halved is `i` modulo 16), in order; the lanes are added by `sum_lanes`.

use super::floats;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
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
        matmul: Product::Rows(x86_64::avx512::bf16::matmul),
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
        matmul: Product::Rows(x86_64::avx2::floats::widened::<half::bf16>),
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
        matmul: Product::Rows(aarch64::neon::floats::widened::<half::bf16>),
        ..PORTABLE
    },
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}
