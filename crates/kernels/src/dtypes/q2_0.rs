//! Q2_0: 64 elements of 2 bits with one f16 scale, `w = d * (q - 1)`; 18 bytes: d, then four elements a byte, the first in the lowest
//! bits (ggml `dequantize_row_q2_0`).

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

const BYTES: usize = 18;

block_kernels!(Q2_0, "q2_0", Q20 { bits: 2, offset: 1 }, 4 * BYTES);

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let pair = |i: usize| stored[2 + 8 * b + i / 4] >> (2 * (i % 4)) & 3;
    Unpacked::scaled(f16_at(stored, 0), std::array::from_fn(|i| pair(i) as i8 - 1))
}

eights! {
    Q20, 4 * BYTES;

    /// The elements with their offset of 1: from 0 to 3.
    fn elements(stored: &[u8; 4 * BYTES]) -> [Bytes; 8] {
        /// The pairs of bits of nibbles as nibbles of bytes.
        const APART: [u8; 16] = [0, 1, 2, 3, 16, 17, 18, 19, 32, 33, 34, 35, 48, 49, 50, 51];
        let mut elements = [all(0); 8];
        let stored = stored.as_chunks::<BYTES>().0;
        for i in 0..4 {
            let bytes = stored[i].last_chunk().map_or(all_16(0), |bytes| load_16(bytes));
            let [first, second] = halves_of(look_up(&APART, nibbles_in_turns(bytes)));
            (elements[2 * i], elements[2 * i + 1]) = (nibbles_in_turns(first), nibbles_in_turns(second));
        }
        elements
    }

    fn factors(stored: &[u8; 4 * BYTES]) -> Factors {
        scales_of(&std::array::from_fn::<_, 8, _>(|b| [stored[b / 2 * BYTES], stored[b / 2 * BYTES + 1]]))
    }
}
