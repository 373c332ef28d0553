//! Q5_0: blocks of 32 elements of 5 bits with an f16 scale, `w = d * (q - 16)`; 22 bytes: d, a double word with the high
//! bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_0.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

#![allow(unsafe_code)]

use super::blocks::{Format, Unpacked, block_kernels, nibbles};
use crate::element::f16_at;

const BYTES: usize = 22;

block_kernels!(Q5_0, "q5_0", Q50, simd::avx2, avx512_vnni::matmul);

struct Q50;

impl Format for Q50 {
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;
}

/// The high bits of a block.
fn high_bits(block: &[u8; BYTES]) -> u32 {
    u32::from_le_bytes([block[2], block[3], block[4], block[5]])
}

/// Nibbles with the bits of `high` above them, from 0 to 31.
pub(super) fn with_high(nibbles: [u8; 32], high: u32) -> [i8; 32] {
    std::array::from_fn(|i| (nibbles[i] | ((high >> i & 1) as u8) << 4) as i8)
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    let quants = with_high(nibbles(&stored[6..]), high_bits(stored));
    Unpacked::scaled(f16_at(stored, 0), quants.map(|q| q - 16))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::{BYTES, Q50, high_bits};
    use crate::arch::generic::wide::{Bytes, five_bits, for_vectors, scales_of};
    use crate::dtypes::blocks::{eight_blocks, wide_products};

    wide_products!(Q50, 8 * BYTES);
    eight_blocks!(scales_of);

    for_vectors! {
        fn block_elements(block: &[u8; BYTES]) -> Bytes {
            five_bits(block, high_bits(block))
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    use super::{BYTES, Q50, high_bits};
    use crate::arch::generic::wide::nibbles as nibbles_of;
    use crate::arch::x86_64::avx512::blocks::{Panel, ROWS, Step, many_tokens, put as put_rows, unpack_blocks};
    use crate::arch::x86_64::avx512::load_numbers;
    use crate::dtypes::q4_0::avx512_vnni::{nibbles, one_token, places};
    use crate::order::TOKENS_WITHOUT_PANELS;
    use crate::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        if input.tokens() <= TOKENS_WITHOUT_PANELS {
            for token in 0..input.tokens() {
                one_token::<16, BYTES, { 4 * BYTES }, { 16 * BYTES }>(weight, input, token, output, |first, second| {
                    elements(first, second)
                });
            }
        } else {
            many_tokens::<Q50>(weight, input, output, |rows, panel| {
                unpack_blocks::<BYTES, { 4 * BYTES }>(rows, panel, |fours, i, panel| put(fours, i, panel));
            });
        }
    }

    /// Puts the elements of four blocks of 16 rows into a panel.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn put(fours: Step<'_, { 4 * BYTES }>, i: usize, panel: &mut Panel<'_>) {
        // An offset of 16 becomes one of 128: 112 more, and with the high bit 128, as the byte 0x80.
        let (without, with) = (_mm512_set1_epi8(112), _mm512_set1_epi8(-128));
        for half in 0..2 {
            let mut rows = [_mm512_setzero_si512(); ROWS];
            for (r, row) in rows.iter_mut().enumerate() {
                let four = fours.row(r);
                let [a, b] = [0, 1].map(|b| &four.as_chunks::<BYTES>().0[2 * half + b]);
                let bits = u64::from(high_bits(a)) | u64::from(high_bits(b)) << 32;
                let two = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(nibbles_of(a)), nibbles_of(b));
                *row = _mm512_add_epi8(two, _mm512_mask_blend_epi8(bits, without, with));
            }
            put_rows(panel, 2 * i + half, &rows);
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
        let bits = _mm512_castsi512_si128(_mm512_permutex2var_epi16(first, load_numbers(&at), second));
        let (mask, high_mask) = (_mm_cvtsi128_si64(bits) as u64, _mm_extract_epi64::<1>(bits) as u64);
        let bit = _mm512_set1_epi8(16);
        (_mm512_mask_add_epi8(low, mask, low, bit), _mm512_mask_add_epi8(high, high_mask, high, bit))
    }
}
