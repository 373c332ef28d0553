//! F4: floats of 4 bits (E2M1) in blocks of 32 whose scales, powers of 2 (E8M0), lie in a tensor of their own: MXFP4 as it is
//! published in safetensors. Byte `i` of a row has element `2 * i` in its low half and `2 * i + 1` in its high half.
//!
//! The numbers are those of GGUF's MXFP4 (`mxfp4.rs`), and so are the sums, bit by bit.

use super::mxfp4::{self, VALUES};
use super::scaled::scaled_kernels;
use super::u4;
use crate::order::BLOCK;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK / 2;

scaled_kernels!(
    F4, "f4", Q8, |block| look_up(&mxfp4::simd::RAISED, pairs_of_nibbles::<PLACE>(block)),
    powers: Powers { bits: 5, offset: 16, evens_first: true }, avx512: blocks
);

/// Twice what the codes stand for.
fn unpack(block: &[u8; BYTES]) -> [i8; BLOCK] {
    u4::nibbles(block).map(|code| VALUES[usize::from(code)])
}

fn value(twice: i8) -> f32 {
    f32::from(twice) / 2.0
}

#[cfg(test)]
mod tests {
    use crate::dtypes::scaled::BlockScales;
    use crate::testing::{Random, each_isa, lengths, product};
    use crate::{Input, Kernel};
    use model_factory_dtypes::DType;

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
                        kernel.matmul_scaled(&elements, BlockScales::Powers(&scales), &input, &mut y).unwrap();
                        let expected = product(&gguf, isa, &stored, &x, inputs);
                        assert_eq!(y, expected, "{isa}: {rows} rows of {inputs}, {tokens} tokens");
                    }
                }
            }
        }
    }
}
