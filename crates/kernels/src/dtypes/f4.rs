//! F4: floats of 4 bits (E2M1) in blocks of 32 whose scales, powers of 2 (E8M0), lie in a tensor of their own: MXFP4 as it is
//! published in safetensors. Byte `i` of a row has element `2 * i` in its low half and `2 * i + 1` in its high half.
//!
//! The numbers are those of GGUF's MXFP4 (`mxfp4.rs`), and so are the sums, bit by bit.

use super::blocks::{Elements, Format, Unpacked, product};
use super::mxfp4::{Mxfp4, VALUES, scale};
use crate::isa::Sets;
use crate::order::BLOCK;
use crate::{Call, Form, Registered};
use model_factory_dtypes::{DType, Tier};

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK / 2;

const PORTABLE: Registered = Registered {
    name: "f4/portable",
    dtype: DType::F4,
    tier: Tier::Native,
    form: Form::Q8,
    sets: Sets::PORTABLE,
    scaled: true,
    matmul: portable,
    dequantize,
};

pub(super) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f4/avx512-vnni", Sets::AVX512.and(Sets::VNNI), simd::avx512_vnni),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("f4/avx2", Sets::AVX2, simd::avx2),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("f4/i8mm", Sets::I8MM, simd::i8mm),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("f4/dotprod", Sets::DOTPROD, simd::dotprod),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("f4/neon", Sets::NEON, simd::neon),
    PORTABLE,
];

/// Elements without their scales.
fn dequantize(row: &[u8], out: &mut [f32]) {
    for (out, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(row) {
        *out = [byte & 15, byte >> 4].map(|code| f32::from(VALUES[usize::from(code)]) / 2.0);
    }
}

fn portable(call: &mut Call<'_>) {
    let scales = call.scales;
    product::<Mxfp4, BYTES>(call, |stored, _, block| {
        let code = |i: usize| stored[i / 2] >> (4 * (i % 2)) & 15;
        Unpacked::scaled(scale(scales[block]), std::array::from_fn(|i| VALUES[usize::from(code(i))]))
    });
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::{BYTES, Elements, Format, Mxfp4};
    use crate::Call;
    #[cfg(target_arch = "aarch64")]
    use crate::arch::aarch64::neon;
    use crate::arch::generic::wide::{
        Bytes, EightBlocks, Factors, all, for_vectors, load_16, look_up, nibbles_in_turns,
    };
    #[cfg(target_arch = "x86_64")]
    use crate::arch::x86_64;
    use crate::dtypes::mxfp4;
    use crate::order::BLOCK;

    const EIGHT: usize = 8 * BYTES;

    /// The scales of rows of so many blocks.
    struct Scaled<'a> {
        scales: &'a [u8],
        blocks: usize,
    }

    impl Format for Scaled<'_> {
        const ELEMENTS: Elements = Mxfp4::ELEMENTS;
    }

    impl EightBlocks<EIGHT> for Scaled<'_> {
        #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
        #[cfg_attr(target_arch = "aarch64", inline(always))]
        unsafe fn elements<const PLACE: u8>(&self, eight: &[u8; EIGHT]) -> [Bytes; 8] {
            elements(eight)
        }

        #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
        #[cfg_attr(target_arch = "aarch64", inline(always))]
        unsafe fn factors<const PLACE: u8>(&self, _: &[u8; EIGHT], place: [usize; 2]) -> Factors {
            factors(self.scales, self.blocks, place)
        }
    }

    /// Defines the product of a level.
    macro_rules! product {
        ($name:ident, $arch:literal, $features:literal, $multiply:expr) => {
            #[cfg(target_arch = $arch)]
            #[target_feature(enable = $features)]
            pub(super) fn $name(call: &mut Call<'_>) {
                let scaled = Scaled { scales: call.scales, blocks: call.input.inputs() / BLOCK };
                $multiply(call, &scaled);
            }
        };
    }
    product!(avx2, "x86_64", "avx2,fma,f16c", x86_64::avx2::multiply);
    product!(
        avx512_vnni,
        "x86_64",
        "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
        x86_64::avx512::blocks::multiply::<_, EIGHT, { 2 * EIGHT }>
    );
    product!(neon, "aarch64", "neon", neon::plain::multiply);
    product!(dotprod, "aarch64", "neon,dotprod", neon::dotprod::multiply);
    product!(i8mm, "aarch64", "neon,dotprod,i8mm", neon::i8mm::multiply);

    for_vectors! {
        /// The elements with their offset of 16: from 4 to 28.
        fn elements(eight: &[u8; EIGHT]) -> [Bytes; 8] {
            let mut elements = [all(0); 8];
            for (element, block) in elements.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
                *element = look_up(&mxfp4::simd::RAISED, nibbles_in_turns(load_16(block)));
            }
            elements
        }

        /// The scales of eight blocks of a row of `blocks`, zeros past its end and after the last row.
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
    use crate::testing::{Random, each_isa, lengths, product};
    use crate::{Input, Kernel};

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
