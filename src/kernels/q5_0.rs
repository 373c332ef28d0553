//! Q5_0: blocks of 32 elements of 5 bits with an f16 scale, `w = d * (q - 16)`; 22 bytes: d, a double word with the high
//! bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_0.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

#![allow(unsafe_code)]

use super::isa::Sets;
use super::q4_0::{blocks_portable, widen_blocks};
use super::{Entry, Form, Input, Output};
use model_diagnostics::{DType, capability::Tier};

const BYTES: usize = 22;

pub(super) const KERNELS: &[Entry] = &[
    #[cfg(target_arch = "x86_64")]
    Entry {
        name: "q5_0/avx512-vnni",
        dtype: DType::Q5_0,
        tier: Tier::Native,
        form: Form::Q8,
        sets: Sets::AVX512.and(Sets::VNNI),
        matmul: avx512_vnni::matmul,
        widen,
    },
    Entry {
        name: "q5_0/portable",
        dtype: DType::Q5_0,
        tier: Tier::Native,
        form: Form::Q8,
        sets: Sets::PORTABLE,
        matmul: portable,
        widen,
    },
];

/// The high bits of a block.
fn high_bits(block: &[u8; BYTES]) -> u32 {
    u32::from_le_bytes([block[2], block[3], block[4], block[5]])
}

/// The elements of a block, from -16 to 15.
fn elements(block: &[u8; BYTES]) -> [i8; 32] {
    let bits = high_bits(block);
    std::array::from_fn(|i| {
        let low = block[6 + i % 16] >> (4 * (i / 16)) & 15;
        (low | ((bits >> i & 1) as u8) << 4) as i8 - 16
    })
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_blocks(row, out, elements);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    blocks_portable(weight, input, output, elements);
}

#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    use super::{BYTES, high_bits};
    use crate::kernels::avx512::load_words;
    use crate::kernels::panel::{self, SCALES, unpack_blocks};
    use crate::kernels::q4_0::avx512_vnni::{nibbles, nibbles_of, one_token, places};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        if input.tokens() == 1 {
            one_token::<16, BYTES, { 4 * BYTES }, { 16 * BYTES }>(weight, input, output, |first, second| {
                elements(first, second)
            });
        } else {
            panel::matmul::<SCALES>(weight, input, output, |rows, panel| {
                unpack_blocks(rows, input.inputs(), panel, |block: &[u8; BYTES]| {
                    // An offset of 16 becomes one of 128: 112 more, and with the high bit 128, as the byte 0x80.
                    let (without, with) = (_mm256_set1_epi8(112), _mm256_set1_epi8(-128));
                    let offset = _mm256_mask_blend_epi8(high_bits(block), without, with);
                    _mm256_add_epi8(nibbles_of(block), offset)
                });
            });
        }
    }

    /// The elements of four blocks, in the order of `nibbles`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn elements(first: __m512i, second: __m512i) -> (__m512i, __m512i) {
        let (low, high) = nibbles::<BYTES>(first, second);
        // The low words of the bits of the four blocks, then the high ones: a mask for each half.
        let at = const {
            let (all, mut at, mut i) = (places(BYTES, 4 * BYTES, 2, 2), [0; 32], 0);
            while i < 8 {
                at[i] = all[i % 4 * 8 + i / 4];
                i += 1;
            }
            at
        };
        let bits = _mm512_castsi512_si128(_mm512_permutex2var_epi16(first, load_words(&at), second));
        let (mask, high_mask) = (_mm_cvtsi128_si64(bits) as u64, _mm_extract_epi64::<1>(bits) as u64);
        let bit = _mm512_set1_epi8(16);
        (_mm512_mask_add_epi8(low, mask, low, bit), _mm512_mask_add_epi8(high, high_mask, high, bit))
    }
}
