//! What block dtypes share whose files say only what a block holds: registration, widening, and products in plain Rust.

use super::{Input, LANES, Output, sum_lanes};

/// The registry's entries of a block dtype; beside it stand `widen`, `portable` and, for x86, `simd` with what
/// [`simd_products`] makes.
macro_rules! block_kernels {
    ($dtype:ident, $name:literal) => {
        pub(super) const KERNELS: &[$crate::kernels::Entry] = &[
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::Entry {
                name: concat!($name, "/avx512-vnni"),
                dtype: model_diagnostics::DType::$dtype,
                tier: model_diagnostics::capability::Tier::Native,
                form: $crate::kernels::Form::Q8,
                sets: $crate::kernels::isa::Sets::AVX512.and($crate::kernels::isa::Sets::VNNI),
                matmul: simd::avx512_vnni,
                widen,
            },
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::Entry {
                name: concat!($name, "/avx2"),
                dtype: model_diagnostics::DType::$dtype,
                tier: model_diagnostics::capability::Tier::Native,
                form: $crate::kernels::Form::Q8,
                sets: $crate::kernels::isa::Sets::AVX2,
                matmul: simd::avx2,
                widen,
            },
            $crate::kernels::Entry {
                name: concat!($name, "/portable"),
                dtype: model_diagnostics::DType::$dtype,
                tier: model_diagnostics::capability::Tier::Native,
                form: $crate::kernels::Form::Q8,
                sets: $crate::kernels::isa::Sets::PORTABLE,
                matmul: portable,
                widen,
            },
        ];
    };
}
pub(super) use block_kernels;

/// The products by AVX2 and by AVX-512 VNNI of a format of which eight blocks are `$eight` bytes; beside it stand
/// `elements` and `factors` of eight blocks.
#[cfg(target_arch = "x86_64")]
macro_rules! simd_products {
    ($format:ident, $eight:expr) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn avx2(weight: &[u8], input: &$crate::kernels::Input, output: &mut $crate::kernels::Output<'_>) {
            $crate::kernels::avx2::block_product!(
                $format,
                $eight,
                weight,
                input,
                output,
                |eight| elements(eight),
                |eight| factors(eight),
            );
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn avx512_vnni(
            weight: &[u8],
            input: &$crate::kernels::Input,
            output: &mut $crate::kernels::Output<'_>,
        ) {
            $crate::kernels::avx512_blocks::matmul::<$format, { $eight }, { 2 * $eight }>(
                weight,
                input,
                output,
                |eight| elements(eight),
                |eight| factors(eight),
            );
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use simd_products;

/// Rows widened. `block(bytes, b)` has the scale and the elements of the `b`-th 32 elements of a stored block.
pub(super) fn widen_scaled<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], usize) -> (f32, [i8; 32]),
) {
    let (stored, _) = row.as_chunks::<BYTES>();
    let each = out.len() / 32 / stored.len().max(1);
    for (b, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, elements) = block(&stored[b / each], b % each);
        for (out, q) in out.iter_mut().zip(elements) {
            *out = scale * f32::from(q);
        }
    }
}

/// Rows times all tokens; `block` as in [`widen_scaled`].
pub(super) fn portable_scaled<const BYTES: usize>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    block: impl Fn(&[u8; BYTES], usize) -> (f32, [i8; 32]),
) {
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        let (stored, _) = bytes.as_chunks::<BYTES>();
        let each = input.inputs() / 32 / stored.len();
        for token in 0..input.tokens() {
            let x = input.q8(token);
            let mut lanes = [0.0; LANES];
            for (b, x_bytes) in x.bytes.as_chunks::<32>().0.iter().enumerate() {
                let (scale, elements) = block(&stored[b / each], b % each);
                let products = elements.into_iter().zip(x_bytes).map(|(q, &x)| i32::from(q) * i32::from(x));
                let sum: i32 = products.sum();
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(scale * x.scales[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}
