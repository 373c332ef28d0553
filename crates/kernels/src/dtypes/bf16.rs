//! BF16: by the processor's BF16 dot product where it has one, else widened by a shift; summed in the order of `floats.rs` (with
//! the BF16 dot product of AVX-512, lane `i` has the products whose index halved is `i` modulo 16).

use crate::element::bf16_to_f32;
use crate::isa::Sets;
use crate::{Form, Matmul, Registered};
use model_factory_dtypes::Tier;

super::floats::float_kernels!(
    BF16,
    "bf16",
    Widened,
    half::bf16,
    bf16_to_f32,
    #[cfg(target_arch = "x86_64")]
    native("bf16/amx", Sets::AMX, amx::bf16),
    #[cfg(target_arch = "x86_64")]
    native("bf16/avx512-bf16", Sets::AVX512.and(Sets::BF16), avx512::bf16::matmul),
    #[cfg(target_arch = "aarch64")]
    native("bf16/neon-bf16", Sets::ARM_BF16, neon::bf16::matmul)
);

/// A product of stored elements and activations of the same dtype.
const fn native(name: &'static str, sets: Sets, matmul: Matmul) -> Registered {
    Registered { tier: Tier::Native, form: Form::Bf16, ..PORTABLE.by(name, sets, matmul) }
}
