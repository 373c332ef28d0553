//! TQ1_0: 256 elements of one digit to base 3 with one f16 scale, `w = d * (digit - 1)`; 54 bytes: 48 bytes of five
//! digits, 4 bytes of four, d.
//!
//! A byte is a fraction of 256 with its digits after the point: the next digit is the whole part of three times the
//! byte, over 256, and what is left of that product the next byte. Elements `32 * n + i` are digit `n` of bytes 0 to 31,
//! `160 + 16 * n + i` of bytes 32 to 47, and `240 + 4 * n + i` of the last four.

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

const BYTES: usize = 54;

block_kernels!(TQ1_0, "tq1_0", Tq10 { bits: 2, offset: 1 }, BYTES);

/// Element `i` of 256, from -1 to 1.
fn element(bytes: &[u8; BYTES], i: usize) -> i8 {
    let (byte, digit) = match i {
        0..160 => (bytes[i % 32], i / 32),
        160..240 => (bytes[32 + i % 16], (i - 160) / 16),
        _ => (bytes[48 + i % 4], (i - 240) / 4),
    };
    let rest = (0..digit).fold(byte, |rest, _| rest.wrapping_mul(3));
    ((u16::from(rest) * 3) >> 8) as i8 - 1
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 52), std::array::from_fn(|i| element(stored, 32 * b + i)))
}

eights! {
    Tq10, BYTES;

    /// The five digits of each byte, from 0 to 2.
    fn digits(bytes: Bytes) -> [Bytes; 5] {
        let mut rest = bytes;
        let mut digits = [all(0); 5];
        for digit in &mut digits {
            // Three times the byte is 256 or more from 86 on, and 512 or more from 171 on.
            *digit = count_of_both(rest, [86, 171]);
            rest = three_times(rest);
        }
        digits
    }

    /// The elements with their offset of 1: from 0 to 2.
    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        let [a, b, c, d, e] = digits(block.first_chunk().map_or(all(0), |bytes| load(bytes)));
        let sixteen = block[32..].first_chunk().map_or(all_16(0), |bytes| load_16(bytes));
        let four = [block[48], block[49], block[50], block[51]];
        let four = load_16(bytemuck::cast_ref(&[four; 4]));
        // In the high half double word n of digit n is that of the last four bytes.
        let [[v, v4], [w, w4], [x, x4], [y, y4], [z, _]] = digits(pair(sixteen, four)).map(|digit| halves_of(digit));
        [a, b, c, d, e, pair(v, w), pair(x, y), pair(z, words_in_turns([v4, w4, x4, y4]))]
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        Factors::scaled(all_f16([block[52], block[53]]))
    }
}
