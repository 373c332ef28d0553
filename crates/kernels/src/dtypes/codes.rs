//! Codes that are widened to floats in registers, where they are scaled: F8_E4M3, and the tables of 4 bits.
//!
//! A part of a row has a scale, which lies apart. A weight is rounded once, when it is scaled; the rest is F32's product, in the same
//! order of sums (`floats.rs`).

use super::floats;
use super::scaled::{CallScales, Parts};
use crate::Call;
use crate::arch::generic::simd::Simd;

/// How codes become weights.
pub(crate) trait Codes {
    /// Codes of a byte.
    const EACH: usize;
    /// The scales of a call's rows.
    type Scales<'a>: Parts;
    /// What makes weights of the codes of a part.
    type Factor<S: Simd>: Copy;

    /// Panics for other scales.
    fn scales(scales: CallScales<'_>) -> Self::Scales<'_>;

    /// The values of a row without scales.
    fn dequantize(row: &[u8], out: &mut [f32]);

    /// Whether the bytes that are no numbers are those with all bits but the first; a byte is a code then.
    const NAN: bool = false;

    /// Whether a code of `rows`, which have one length, is no number.
    fn has_nan<const N: usize>(rows: [&[u8]; N]) -> bool;

    /// The factor for a scale of 1.
    fn one<S: Simd>(simd: S) -> Self::Factor<S>;

    /// The factor for this `scale`.
    fn scaled<S: Simd>(simd: S, one: Self::Factor<S>, scale: f32) -> Self::Factor<S>;

    /// The lanes of a vector in the order of loaded weights.
    #[inline(always)]
    fn as_loaded<S: Simd>(_: S, v: S::Floats) -> S::Floats {
        v
    }

    /// What [`as_loaded`](Self::as_loaded) has put in its order.
    #[inline(always)]
    fn in_order<S: Simd>(_: S, v: S::Floats) -> S::Floats {
        v
    }

    /// A vector of weights, or those before the end with any numbers after them.
    ///
    /// # Safety
    /// A vector of codes can be read if `WHOLE`, else `left` codes, but no more than a vector has.
    unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const u8, left: usize, by: Self::Factor<S>) -> S::Floats;
}

/// The product in plain Rust.
pub(super) fn portable<C: Codes>(call: &mut Call<'_>) {
    let scales = C::scales(call.scales);
    floats::portable(call, |row, bytes, out| {
        C::dequantize(bytes, out);
        for (part, out) in out.chunks_mut(scales.part()).enumerate() {
            let scale = scales.at(row, part);
            out.iter_mut().for_each(|weight| *weight *= scale);
        }
    });
}

/// The registry's entries of a dtype of these `$codes`.
macro_rules! code_kernels {
    ($dtype:ident, $name:literal, $codes:ty) => {{
        use $crate::isa::Sets;
        const PORTABLE: $crate::Registered = $crate::Registered {
            name: concat!($name, "/portable"),
            dtype: model_factory_dtypes::DType::$dtype,
            tier: model_factory_dtypes::Tier::Widened,
            form: $crate::Form::F32,
            sets: Sets::PORTABLE,
            scaled: true,
            matmul: $crate::dtypes::codes::portable::<$codes>,
            dequantize: <$codes as $crate::dtypes::codes::Codes>::dequantize,
        };
        &[
            #[cfg(target_arch = "x86_64")]
            PORTABLE.by(concat!($name, "/avx512"), Sets::AVX512, $crate::arch::x86_64::avx512::floats::codes::<$codes>),
            #[cfg(target_arch = "x86_64")]
            PORTABLE.by(concat!($name, "/avx2"), Sets::AVX2, $crate::arch::x86_64::avx2::codes::<$codes>),
            #[cfg(target_arch = "aarch64")]
            PORTABLE.by(concat!($name, "/neon"), Sets::NEON, $crate::arch::aarch64::neon::codes::<$codes>),
            PORTABLE,
        ]
    }};
}
pub(super) use code_kernels;
