//! Q1_0: 128 elements of 1 bit with one f16 scale, `w = d` or `w = -d`; 18 bytes: d, then the bits, the lowest of a byte first
//! (ggml `dequantize_row_q1_0`).

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

const BYTES: usize = 18;

block_kernels!(Q1_0, "q1_0", Q10 { bits: 2, offset: 1 }, 2 * BYTES);

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let bit = |i: usize| stored[2 + 4 * b + i / 8] >> (i % 8) & 1;
    Unpacked::scaled(f16_at(stored, 0), std::array::from_fn(|i| 2 * bit(i) as i8 - 1))
}

eights! {
    Q10, 2 * BYTES;

    /// The elements with their offset of 1: 0 or 2.
    fn elements(stored: &[u8; 2 * BYTES]) -> [Bytes; 8] {
        let mut elements = [all(0); 8];
        for b in 0..8 {
            let bits = stored[b / 4 * BYTES + 2 + b % 4 * 4..].first_chunk().copied().unwrap_or_default();
            elements[b] = and(mask_of_bits(u32::from_le_bytes(bits)), all(2));
        }
        elements
    }

    fn factors(stored: &[u8; 2 * BYTES]) -> Factors {
        scales_of(&std::array::from_fn::<_, 8, _>(|b| [stored[b / 4 * BYTES], stored[b / 4 * BYTES + 1]]))
    }
}
