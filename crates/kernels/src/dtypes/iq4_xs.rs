//! IQ4_XS: 256 codes of 4 bits as eight blocks of 32 with a 6-bit scale each, `w = d * (sc - 32) * VALUES[code]` with
//! IQ4_NL's values; 136 bytes.
//!
//! d in f16; a word with the high two bits of scale `b` at bit `2 * b`; 4 bytes with the low four bits of scale `b` in
//! byte `b / 2`, low for even `b`; then 16 bytes of codes a block as in IQ4_NL.

use super::blocks::{Unpacked, block_kernels, eights, nibbles};
use super::iq4_nl::VALUES;
use crate::element::f16_at;

const BYTES: usize = 136;

block_kernels!(IQ4_XS, "iq4_xs", Iq4Xs { bits: 8 }, BYTES);

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let high = u16::from_le_bytes([stored[2], stored[3]]) >> (2 * b) & 3;
    let low = stored[4 + b / 2] >> (4 * (b % 2)) & 15;
    let scale = f32::from(low) + 16.0 * f32::from(high) - 32.0;
    let codes = nibbles(&stored[8 + 16 * b..]);
    Unpacked::scaled(f16_at(stored, 0) * scale, codes.map(|code| VALUES[usize::from(code)]))
}

eights! {
    Iq4Xs, BYTES;

    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        let mut elements = [all(0); 8];
        let codes = block[8..].as_chunks::<16>().0;
        for b in 0..8 {
            elements[b] = look_up(&VALUES.map(|value| value as u8), wide::nibbles(&codes[b]));
        }
        elements
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        let word = |at: usize| block[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (high, low) = (word(0) >> 16, word(4));
        let mut bytes = [0; 16];
        for (b, byte) in bytes.iter_mut().take(8).enumerate() {
            *byte = ((low >> (4 * b) & 15 | (high >> (2 * b) & 3) << 4) as u8).wrapping_sub(32);
        }
        let [scales, _] = floats_of_bytes(load_16(&bytes));
        Factors::scaled(mul(all_f16([block[0], block[1]]), scales))
    }
}
