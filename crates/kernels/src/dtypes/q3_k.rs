//! Q3_K: 256 elements of 3 bits with a 6-bit scale each 16, `w = d * (sc - 32) * (q - 4)`; 110 bytes.
//!
//! 32 bytes with the high bits: bit `b` of byte `i` belongs to element `i` of block `b` of 32. 64 bytes of pairs of bits
//! as in Q2_K. 12 bytes of scales: the low four bits of scale `s` are in byte `s % 8`, low for `s < 8`, and its high two
//! in byte `8 + s % 4` at bit `2 * (s / 4)`. d in f16.

use super::blocks::{Unpacked, block_kernels, eights};
use super::q2_k::pair_of_bits;
use crate::element::f16_at;

const BYTES: usize = 110;

block_kernels!(Q3_K, "q3_k", Q3K { bits: 3, offset: 4, halves: true }, BYTES);

/// The scale of elements `16 * s ..`, from -32 to 31.
fn scale(stored: &[u8; BYTES], s: usize) -> i32 {
    let low = stored[96 + s % 8] >> (4 * (s / 8)) & 15;
    let high = stored[104 + s % 4] >> (2 * (s / 4)) & 3;
    i32::from(low | high << 4) - 32
}

/// Elements from -4 to 3.
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let element = |i: usize| (pair_of_bits(&stored[32..], b, i) | (stored[i] >> b & 1) << 2) as i8 - 4;
    let scales = [scale(stored, 2 * b), scale(stored, 2 * b + 1)];
    Unpacked::halves(f16_at(stored, 108), scales, std::array::from_fn(element))
}

eights! {
    Q3K, BYTES;

    /// The elements with their offset of 4: from 0 to 7.
    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        let mut elements = block[32..].first_chunk().map_or([all(0); 8], |bytes| two_bits(bytes));
        let bits = block.first_chunk().map_or(all(0), |bytes| load(bytes));
        // The bits of each block are brought to bit 2.
        let bits = [
            left::<2>(bits),
            left::<1>(bits),
            bits,
            right::<1>(bits),
            right::<2>(bits),
            right::<3>(bits),
            right::<4>(bits),
            right::<5>(bits),
        ];
        for (element, bits) in elements.iter_mut().zip(bits) {
            *element = or(*element, and(bits, all(4)));
        }
        elements
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        /// The low two bits of each byte.
        const TWO: u64 = 0x0303_0303_0303_0303;
        const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        let low = block[96..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let high = block[104..].first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        // Scales 4 * k .. have their high bits in pair k of each byte.
        let high = high | high << 30;
        let scales = [low & LOW | (high & TWO) << 4, low >> 4 & LOW | (high >> 4 & TWO) << 4];
        // 32 is subtracted in 8 bits: bit 5 is flipped, and the bits above it become copies of the new bit 5.
        let halves = scales.map(|scales| {
            let turned = scales ^ 0x2020_2020_2020_2020;
            turned | (turned & 0x2020_2020_2020_2020) << 1 | (turned & 0x2020_2020_2020_2020) << 2
        });
        let halves = load_16(bytemuck::cast_ref(&halves));
        Factors { halves, ..Factors::scaled(all_f16([block[108], block[109]])) }
    }
}
