//! Q6_K: 256 elements of 6 bits with a signed scale each 16, `w = d * sc * (q - 32)`; 210 bytes.
//!
//! 128 bytes of low nibbles, 64 bytes of high pairs, 16 scales, d in f16. Each half of 128 elements has 64 of the low
//! bytes and 32 of the high: element `32 * j + i` has its nibble in byte `32 * (j % 2) + i`, low for `j < 2`, and its
//! pair in byte `i`, at bit `2 * j`.

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 210;

block_kernels!(Q6_K, "q6_k", Q6K { bits: 6, offset: 32, halves: true }, BYTES, avx512: q6_k);

/// Elements from -32 to 31.
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (half, j) = (b / 4, b % 4);
    let element = |i: usize| {
        let low = stored[64 * half + 32 * (j % 2) + i] >> (4 * (j / 2)) & 15;
        let high = stored[128 + 32 * half + i] >> (2 * j) & 3;
        (low | high << 4) as i8 - 32
    };
    let scales = [stored[192 + 2 * b], stored[193 + 2 * b]].map(|scale| i32::from(scale as i8));
    Unpacked::halves(f16_at(stored, 208), scales, std::array::from_fn(element))
}

eights! {
    Q6K, BYTES;

    /// The elements of a super-block with their offset of 32: from 0 to 63.
    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        let (nibble, pair) = (all(0x0f), all(0x30));
        let mut elements = [all(0); 8];
        for (half, four) in elements.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let bytes = |at: usize| block[at..].first_chunk().map_or(all(0), |bytes| load(bytes));
            let (low, later) = (bytes(64 * half), bytes(64 * half + 32));
            let high = bytes(128 + 32 * half);
            let lows = [low, later, right::<4>(low), right::<4>(later)];
            let highs = [left::<4>(high), left::<2>(high), high, right::<2>(high)];
            for ((element, low), high) in four.iter_mut().zip(lows).zip(highs) {
                *element = or(and(low, nibble), and(high, pair));
            }
        }
        elements
    }

    /// d and the 16 scales.
    fn factors(block: &[u8; BYTES]) -> Factors {
        let halves = block[192..].first_chunk().map_or(all_16(0), |bytes| load_16(bytes));
        Factors { halves, ..Factors::scaled(all_f16([block[208], block[209]])) }
    }
}
