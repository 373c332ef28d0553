//! F4: floats of 4 bits (E2M1) in blocks of 32 whose scales, powers of 2 (E8M0), lie in a tensor of their own: MXFP4 as it is
//! published in safetensors. Byte `i` of a row has element `2 * i` in its low half and `2 * i + 1` in its high half.
//!
//! The numbers are those of GGUF's MXFP4 (`mxfp4.rs`), and so are the sums, bit by bit.

use super::blocks::{Unpacked, product};
use super::mxfp4::{Mxfp4, VALUES, scale};
use crate::isa::Sets;
use crate::order::BLOCK;
use crate::{Form, Input, Output, Product, Registered};
use model_factory_dtypes::DType;
use model_factory_dtypes::Tier;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK / 2;

const PORTABLE: Registered = Registered {
    name: "f4/portable",
    dtype: DType::F4,
    tier: Tier::Native,
    form: Form::Q8,
    sets: Sets::PORTABLE,
    matmul: Product::Scaled(portable),
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    Registered {
        name: "f4/avx512-vnni",
        sets: Sets::AVX512.and(Sets::VNNI),
        matmul: Product::Scaled(simd::avx512_vnni),
        ..PORTABLE
    },
    #[cfg(target_arch = "x86_64")]
    Registered { name: "f4/avx2", sets: Sets::AVX2, matmul: Product::Scaled(simd::avx2), ..PORTABLE },
    #[cfg(target_arch = "aarch64")]
    Registered { name: "f4/i8mm", sets: Sets::I8MM, matmul: Product::Scaled(simd::i8mm), ..PORTABLE },
    #[cfg(target_arch = "aarch64")]
    Registered { name: "f4/dotprod", sets: Sets::DOTPROD, matmul: Product::Scaled(simd::dotprod), ..PORTABLE },
    #[cfg(target_arch = "aarch64")]
    Registered { name: "f4/neon", sets: Sets::NEON, matmul: Product::Scaled(simd::neon), ..PORTABLE },
    PORTABLE,
];

/// Elements without their scales.
fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(row) {
        *out = [byte & 15, byte >> 4].map(|code| f32::from(VALUES[usize::from(code)]) / 2.0);
    }
}

fn portable(weight: &[u8], scales: &[u8], input: &Input, output: &mut Output<'_>) {
    product::<Mxfp4, BYTES>(weight, input, output, |stored, _, block| {
        let code = |i: usize| stored[i / 2] >> (4 * (i % 2)) & 15;
        Unpacked::scaled(scale(scales[block]), std::array::from_fn(|i| VALUES[usize::from(code(i))]))
    });
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::{BYTES, Mxfp4};
    use crate::arch::generic::wide::{Bytes, Factors, all, for_vectors, load_16, look_up, nibbles_in_turns};
    use crate::dtypes::mxfp4;
    use crate::order::{BLOCK, TOKENS_WITHOUT_PANELS};
    use crate::{Input, Output};

    const EIGHT: usize = 8 * BYTES;

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2(weight: &[u8], scales: &[u8], input: &Input, output: &mut Output<'_>) {
        let blocks = input.inputs() / BLOCK;
        if input.tokens() <= TOKENS_WITHOUT_PANELS {
            for token in 0..input.tokens() {
                crate::arch::x86_64::avx2::one_token::<Mxfp4, EIGHT>(
                    weight,
                    input,
                    token,
                    output,
                    |eight| elements(eight),
                    |_, place| factors(scales, blocks, place),
                );
            }
        } else {
            crate::arch::x86_64::avx2::wide_panel::matmul::<Mxfp4, EIGHT>(
                weight,
                input,
                output,
                |eight| elements(eight),
                |_, place| factors(scales, blocks, place),
            );
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn avx512_vnni(weight: &[u8], scales: &[u8], input: &Input, output: &mut Output<'_>) {
        let blocks = input.inputs() / BLOCK;
        crate::arch::x86_64::avx512::blocks::matmul::<Mxfp4, EIGHT, { 2 * EIGHT }>(
            weight,
            input,
            output,
            |eight| elements(eight),
            |_, place| factors(scales, blocks, place),
        );
    }

    /// The scales of rows of so many blocks.
    #[cfg(target_arch = "aarch64")]
    struct Own<'a> {
        scales: &'a [u8],
        blocks: usize,
    }

    #[cfg(target_arch = "aarch64")]
    impl crate::arch::generic::wide::Eights<EIGHT> for Own<'_> {
        #[inline(always)]
        unsafe fn elements(&self, eight: &[u8; EIGHT]) -> [Bytes; 8] {
            elements(eight)
        }

        #[inline(always)]
        unsafe fn factors(&self, _: &[u8; EIGHT], place: [usize; 2]) -> Factors {
            factors(self.scales, self.blocks, place)
        }
    }

    /// Defines the product of a level.
    #[cfg(target_arch = "aarch64")]
    macro_rules! product {
        ($name:ident, $level:ident, $features:literal) => {
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = $features)]
            pub(super) fn $name(weight: &[u8], scales: &[u8], input: &Input, output: &mut Output<'_>) {
                use crate::arch::aarch64::neon::$level;
                let own = Own { scales, blocks: input.inputs() / BLOCK };
                if input.tokens() <= TOKENS_WITHOUT_PANELS {
                    for token in 0..input.tokens() {
                        $level::one_token::<Mxfp4, EIGHT>(weight, input, token, output, &own);
                    }
                } else {
                    $level::panels::<Mxfp4, EIGHT>(weight, input, output, &own);
                }
            }
        };
    }
    #[cfg(target_arch = "aarch64")]
    product!(neon, plain, "neon");
    #[cfg(target_arch = "aarch64")]
    product!(dotprod, dotprod, "neon,dotprod");
    #[cfg(target_arch = "aarch64")]
    product!(i8mm, i8mm, "neon,dotprod,i8mm");

    for_vectors! {
        /// The elements with their offset of 16: from 4 to 28.
        fn elements(eight: &[u8; EIGHT]) -> [Bytes; 8] {
            let mut elements = [all(0); 8];
            for (element, block) in elements.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
                *element = look_up(&mxfp4::simd::RAISED, nibbles_in_turns(load_16(block)));
            }
            elements
        }

        /// The scales of eight blocks of a row of `blocks`, zeros past its end and behind the last row.
        fn factors(scales: &[u8], blocks: usize, place: [usize; 2]) -> Factors {
            let [row, eight] = place;
            let row = scales.get(row * blocks..).unwrap_or_default();
            let row = &row[..blocks.min(row.len())];
            let rest = row.get(8 * eight..).unwrap_or_default();
            mxfp4::simd::scales(rest.first_chunk().copied().unwrap_or_else(|| {
                let mut exponents = [0; 8];
                exponents.iter_mut().zip(rest).for_each(|(to, exponent)| *to = *exponent);
                exponents
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;
    use crate::testing::{Random, each_isa, lengths, product};

    /// Rows in GGUF's layout, in both halves of this one.
    fn split(blocks: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut elements, mut scales) = (Vec::new(), Vec::new());
        for block in blocks.chunks_exact(17) {
            scales.push(block[0]);
            let code = |i: usize| block[1 + i % 16] >> (4 * (i / 16)) & 15;
            elements.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
        }
        (elements, scales)
    }

    #[test]
    fn has_the_bits_of_ggufs_layout_of_the_same_numbers() {
        let mut random = Random::new(41);
        for isa in each_isa() {
            let (gguf, kernel) = (Kernel::select(DType::MXFP4, isa).unwrap(), Kernel::select(DType::F4, isa).unwrap());
            for inputs in lengths(DType::MXFP4) {
                for rows in [1, 2, 7, 16, 19, 33] {
                    let mut stored = random.stored(DType::MXFP4, rows * inputs);
                    // Exponents beyond those of ordinary weights: the least, which are subnormal, and the largest.
                    for (i, block) in stored.chunks_exact_mut(17).enumerate().filter(|(i, _)| i % 3 == 0) {
                        block[0] = [0, 1, 2, 117, 190][i / 3 % 5];
                    }
                    let (elements, scales) = split(&stored);
                    for tokens in [1, 2, 3, 8, 11] {
                        let x = random.floats(tokens * inputs);
                        let input = Input::prepare(isa, kernel.form, &x, inputs);
                        let mut y = vec![f32::NAN; tokens * rows];
                        kernel.matmul_scaled(&elements, &scales, &input, &mut y).unwrap();
                        let expected = product(&gguf, isa, &stored, &x, inputs);
                        assert_eq!(y, expected, "{isa}: {rows} rows of {inputs}, {tokens} tokens");
                    }
                }
            }
        }
    }
}
