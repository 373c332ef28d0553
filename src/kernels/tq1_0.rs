//! TQ1_0: 256 elements of one digit to base 3 with one f16 scale, `w = d * (digit - 1)`; 54 bytes: 48 bytes of five
//! digits, 4 bytes of four, d.
//!
//! A byte is a fraction of 256 with its digits after the point: the next digit is the whole part of three times the
//! byte, over 256, and what is left of that product the next byte. Elements `32 * n + i` are digit `n` of bytes 0 to 31,
//! `160 + 16 * n + i` of bytes 32 to 47, and `240 + 4 * n + i` of the last four.
//!
//! The order of sums is TQ2_0's.

use super::blocks::{Format, Unpacked, block_kernels};
use super::element::f16_at;

const BYTES: usize = 54;

block_kernels!(TQ1_0, "tq1_0", Tq10);

struct Tq10;

impl Format for Tq10 {
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
}

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

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, Tq10};
    use crate::kernels::avx2::{Factors, load, load_16};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::element::f16_at;
    use std::arch::x86_64::*;

    simd_products!(Tq10, BYTES);

    /// The five digits of each byte, from 0 to 2.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn digits(mut rest: __m256i) -> [__m256i; 5] {
        let mut digits = [_mm256_setzero_si256(); 5];
        for digit in &mut digits {
            // Three times the byte is 256 or more from 86 on, and 512 or more from 171 on.
            let from = |least: u8| {
                let least = _mm256_set1_epi8(least as i8);
                _mm256_cmpeq_epi8(_mm256_max_epu8(rest, least), rest)
            };
            *digit = _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(from(86), from(171)));
            rest = _mm256_add_epi8(rest, _mm256_add_epi8(rest, rest));
        }
        digits
    }

    /// The elements with their offset of 1: from 0 to 2.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(block: &[u8; BYTES]) -> [__m256i; 8] {
        let [a, b, c, d, e] = digits(block.first_chunk().map_or(_mm256_setzero_si256(), |bytes| load(bytes)));
        let sixteen = block[32..].first_chunk().map_or(_mm_setzero_si128(), |bytes| load_16(bytes));
        let four = _mm_set1_epi32(i32::from_le_bytes([block[48], block[49], block[50], block[51]]));
        let last = digits(_mm256_set_m128i(four, sixteen));
        // Digit n of the last four bytes goes to double word n of the high half.
        let of_four = _mm256_blend_epi32::<0b0010_0000>(last[0], last[1]);
        let of_four = _mm256_blend_epi32::<0b0100_0000>(of_four, last[2]);
        let of_four = _mm256_blend_epi32::<0b1000_0000>(of_four, last[3]);
        [
            a,
            b,
            c,
            d,
            e,
            _mm256_permute2x128_si256::<0x20>(last[0], last[1]),
            _mm256_permute2x128_si256::<0x20>(last[2], last[3]),
            _mm256_permute2x128_si256::<0x30>(last[4], of_four),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factors(block: &[u8; BYTES]) -> Factors {
        Factors::scaled(_mm256_set1_ps(f16_at(block, 52)))
    }
}
