//! Code that the float dtypes share: elements that are widened in a register, and the product in plain Rust.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are
//! added by `sum_lanes`.

use crate::memory;
use crate::{Call, LANES, sum_lanes};

/// Rows, widened by `dequantize(row, bytes, out)` one after the other, times all tokens. Lane `i` of 16 adds up the products whose index is `i` modulo 16, in
/// order, by a multiplication and an addition.
pub(super) fn portable(call: &mut Call<'_>, dequantize: impl Fn(usize, &[u8], &mut [f32])) {
    let (weight, input) = (call.weight, call.input);
    let mut wide = match memory::zeros(input.inputs(), "a widened row") {
        Ok(wide) => wide,
        Err(refused) => return call.note(Err(refused)),
    };
    for (row, bytes) in weight.chunks_exact(weight.len() / call.rows()).enumerate() {
        dequantize(row, bytes, &mut wide);
        for token in 0..input.tokens() {
            call.part(token, row, 1)[0] = dot(&wide, input.floats(token));
        }
    }
}

/// The values of a row; `wide` widens an element.
pub(super) fn dequantize<const BYTES: usize>(row: &[u8], out: &mut [f32], wide: impl Fn([u8; BYTES]) -> f32) {
    out.iter_mut().zip(row.as_chunks().0).for_each(|(out, bytes)| *out = wide(*bytes));
}

/// The registry's entries of a float dtype that is stored as `$element`s, which `$wide` makes of bytes. `$first` are entries that
/// come before the others.
macro_rules! float_kernels {
    ($dtype:ident, $name:literal, $tier:ident, $element:ty, $wide:expr $(, $(#[$cfg:meta] $first:expr),*)?) => {
        const PORTABLE: $crate::Registered = $crate::Registered {
            name: concat!($name, "/portable"),
            dtype: model_factory_dtypes::DType::$dtype,
            tier: model_factory_dtypes::Tier::$tier,
            form: $crate::Form::F32,
            sets: $crate::isa::Sets::PORTABLE,
            scaled: false,
            matmul: |call| $crate::dtypes::floats::portable(call, |_, row, out| dequantize(row, out)),
            dequantize,
        };

        pub(crate) const KERNELS: &[$crate::Registered] = {
            use $crate::isa::Sets;
            #[cfg(target_arch = "aarch64")]
            use $crate::arch::aarch64::neon;
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports)] // tiles multiply one of the dtypes
            use $crate::arch::x86_64::{amx, avx2, avx512};
            &[
                $($(#[$cfg] $first,)*)?
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/avx512"), Sets::AVX512, avx512::floats::widened::<$element>),
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/avx2"), Sets::AVX2, avx2::widened::<$element>),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/neon"), Sets::NEON, neon::widened::<$element>),
                PORTABLE,
            ]
        };

        fn dequantize(row: &[u8], out: &mut [f32]) {
            $crate::dtypes::floats::dequantize(row, out, $wide);
        }
    };
}
pub(super) use float_kernels;

fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (w, x) in w.chunks(LANES).zip(x.chunks(LANES)) {
        for ((lane, w), x) in lanes.iter_mut().zip(w).zip(x) {
            *lane += w * x;
        }
    }
    sum_lanes(lanes)
}
