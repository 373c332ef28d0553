//! U2, U3, U5 and U6: integers of so many bits, unsigned, one after the other from the lowest bits on, with a scale and a bias for each
//! group of inputs in tensors of their own: MLX's weights. Kernels have them less the middle of their range, as those of U4 and U8.

use crate::order::BLOCK;

/// The fields of a block, whose bits are a quarter of its bytes.
fn unpack<const BYTES: usize>(block: &[u8; BYTES]) -> [i8; BLOCK] {
    let bits = BYTES / 4;
    std::array::from_fn(|i| {
        let (byte, shift) = (i * bits / 8, i * bits % 8);
        let two = u16::from_le_bytes([block[byte], block.get(byte + 1).copied().unwrap_or_default()]);
        (two >> shift & ((1 << bits) - 1)) as i8 - (1 << (bits - 1))
    })
}

/// Where the two bytes are in which the fields at even places of the two halves of a block begin, or those at odd places, whose last
/// bytes are vectors of `len`; and the factors that bring the beginning of each to the high one.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn windows(bits: usize, len: usize, odd: usize) -> ([u8; BLOCK], [u16; BLOCK / 2]) {
    let (mut places, mut factors, mut i) = ([128; BLOCK], [0; BLOCK / 2], 0);
    while i < BLOCK / 2 {
        // The second half ends with its vector.
        let skipped = if i < 8 { 0 } else { len - 2 * bits };
        let bit = (2 * (i % 8) + odd) * bits;
        places[2 * i] = (skipped + bit / 8) as u8;
        if skipped + bit / 8 + 1 < len {
            places[2 * i + 1] = (skipped + bit / 8 + 1) as u8;
        }
        factors[i] = 1 << (8 - bit % 8);
        i += 1;
    }
    (places, factors)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::windows;
    use crate::arch::generic::wide::*;

    for_vectors! {
        /// The fields of a block.
        pub(super) fn fields<const BYTES: usize>(block: &[u8; BYTES]) -> Bytes {
            let bits = BYTES / 4;
            let [first, last] = if BYTES < 16 {
                [block.first_chunk(), block.last_chunk()].map(|eight| eight.map_or(all_16(0), |eight| load_8(eight)))
            } else {
                [block.first_chunk(), block.last_chunk()].map(|bytes| bytes.map_or(all_16(0), |bytes| load_16(bytes)))
            };
            let halves = pair(first, last);
            let (places, factors) = &const { windows(BYTES / 4, if BYTES < 16 { 8 } else { 16 }, 0) };
            let evens = high_bytes(mul_words(shuffled(halves, places), factors));
            let (places, factors) = &const { windows(BYTES / 4, if BYTES < 16 { 8 } else { 16 }, 1) };
            let odds = mul_words(shuffled(halves, places), factors);
            let high = load_numbers(&[0xff00_u16; 16]);
            and(or(and(odds, high), evens), all((1 << bits) - 1))
        }
    }
}

/// A module for each dtype.
macro_rules! fields {
    ($($module:ident: $dtype:ident, $name:literal, $bits:literal, $offset:literal, $avx512:ident;)*) => {$(
        pub(super) mod $module {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            use super::simd::fields;
            use super::unpack;
            use crate::dtypes::scaled::scaled_kernels;
            use crate::order::BLOCK;

            /// Bytes of a block without its scale.
            const BYTES: usize = BLOCK * $bits / 8;

            scaled_kernels!(
                $dtype, $name, Q16 or Q8;
                affine: Affine { bits: $bits, offset: $offset, mins: true }, |block| fields(block), avx512: $avx512;
            );

            fn value(element: i8) -> f32 {
                f32::from(element)
            }
        }
    )*};
}

fields! {
    u2: U2, "u2", 2, 2, u4;
    u3: U3, "u3", 3, 4, u4;
    u5: U5, "u5", 5, 16, u4;
    u6: U6, "u6", 6, 32, blocks;
}
