//! IQ4_NL: blocks of 32 codes of 4 bits with an f16 scale, `w = d * VALUES[code]`; 18 bytes: d, then 16 bytes with the
//! code of element `i` in the low and that of element `i + 16` in the high half of byte `i`.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};
use crate::element::f16_at;

const BYTES: usize = 18;

block_kernels!(IQ4_NL, "iq4_nl", Iq4Nl { bits: 8 }, 8 * BYTES);

/// The values of the codes, in IQ4_XS too (ggml-common.h, `kvalues_iq4nl`).
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 0), nibbles(&stored[2..]).map(|code| VALUES[usize::from(code)]))
}

eight_blocks!(Iq4Nl, wide::scales_of, |block| wide::look_up(&VALUES.map(|value| value as u8), wide::nibbles(block)));
