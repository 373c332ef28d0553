//! Q4_K: 256 elements as eight blocks of 32 nibbles, `w = d * sc * q - dmin * m`; 144 bytes.
//!
//! Two f16, d and dmin; 12 bytes with the 6-bit sc and m of the eight blocks; 128 bytes of nibbles: 32 bytes hold one
//! block in their low and the next in their high halves.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * ((d * sc) * scale of x)` to lane
//! `b` modulo 16, and takes away `(dmin * m) * (scale * sum of x)`, both by a fused multiply-add, in order; the lanes
//! are added by `sum_lanes`.

#![allow(unsafe_code)]

use super::blocks::{Format, Unpacked, block_kernels};
use crate::element::f16_at;

const BYTES: usize = 144;

block_kernels!(Q4_K, "q4_k", Q4K, avx2::matmul, avx512_vnni::matmul);

struct Q4K;

impl Format for Q4K {
    const BITS: u32 = 4;
    const MINS: bool = true;
}

/// `d * sc` and `dmin * m` of block `b` of eight.
pub(super) fn scale_and_min(stored: &[u8], b: usize) -> (f32, f32) {
    let s = &stored[4..16];
    let (sc, m) = if b < 4 {
        (s[b] & 63, s[b + 4] & 63)
    } else {
        ((s[b + 4] & 15) | (s[b - 4] >> 6 << 4), (s[b + 4] >> 4) | (s[b] >> 6 << 4))
    };
    (f16_at(stored, 0) * f32::from(sc), f16_at(stored, 2) * f32::from(m))
}

/// Element `i` of block `b` of the eight whose nibbles `bytes` begin with.
pub(super) fn nibble(bytes: &[u8], b: usize, i: usize) -> u8 {
    bytes[32 * (b / 2) + i] >> (4 * (b % 2)) & 15
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (scale, min) = scale_and_min(stored, b);
    Unpacked::with_min(scale, min, std::array::from_fn(|i| nibble(&stored[16..], b, i) as i8))
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use super::BYTES;
    use super::simd::sixes;
    use crate::arch::x86_64::avx2::{
        load, load_16, load_floats, rows_times_token, store, store_floats, sum_four_words,
    };
    use crate::order::TOKENS_WITHOUT_PANELS;
    use crate::scratch::{Scratch, arranged_bytes, with_scratch};
    use crate::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        if input.tokens() > TOKENS_WITHOUT_PANELS {
            return super::simd::avx2(weight, input, output);
        }
        for token in 0..input.tokens() {
            one_token(weight, input, token, output);
        }
    }

    /// The product with one token. A vector has 16 elements of block `b` and of `b + 4`, so that what belongs together is
    /// added without shuffles; the scales of four rows are put together at once.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn one_token(weight: &[u8], input: &Input, token: usize, output: &mut Output<'_>) {
        let x = input.q8(token);
        let done = with_scratch(|Scratch { bytes, .. }| {
            let order = |i: usize| i / 16 * 16 + 2 * (i % 16 / 4 + 4 * (i % 2)) + i / 2 % 2;
            let x_bytes = arranged_bytes::<32>(bytes, &x, x.scales.len(), order)?;
            let (x_scales, x_sums) = (x.scales.as_chunks::<8>().0, x.sums.as_chunks::<8>().0);
            let rows = output.rows();
            rows_times_token(weight, output.part(token, 0, rows), |blocks: [&[u8; BYTES]; 4], _, i, sums| {
                let (factors, bytes) = heads(blocks);
                let mut dots = [_mm256_setzero_si256(); 4];
                for (dots, block) in dots.iter_mut().zip(blocks) {
                    *dots = products(block, &x_bytes[i]);
                }
                let (x_scales, x_sums) = (load_floats(&x_scales[i]), load_floats(&x_sums[i]));
                for r in 0..4 {
                    let wide = |bytes: __m128i| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
                    let bytes = load_16(&bytes.as_chunks::<16>().0[r]);
                    let scales = _mm256_mul_ps(_mm256_set1_ps(factors[2 * r]), wide(bytes));
                    let mins = _mm256_mul_ps(_mm256_set1_ps(factors[2 * r + 1]), wide(_mm_srli_si128::<8>(bytes)));
                    let added = _mm256_mul_ps(scales, x_scales);
                    sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), added, sums[r]);
                    sums[r] = _mm256_fnmadd_ps(mins, x_sums, sums[r]);
                }
            });
            Ok(())
        });
        output.note(done);
    }

    /// The products of a super-block, added up for each block.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products(block: &[u8; BYTES], x: &[[u8; 32]; 8]) -> __m256i {
        let zero = _mm_setzero_si128();
        let low = _mm256_set1_epi8(15);
        let mut sums = [_mm256_setzero_si256(); 4];
        for (j, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let both = |at: usize| {
                let half = |at: usize| block[at..].first_chunk().map_or(zero, |bytes| load_16(bytes));
                _mm256_set_m128i(half(at + 64), half(at))
            };
            let (first, second) = (both(16 + 32 * j), both(32 + 32 * j));
            let words = |first: __m256i, second: __m256i, x: &[[u8; 32]]| {
                let first = _mm256_maddubs_epi16(_mm256_and_si256(first, low), load(&x[0]));
                _mm256_add_epi16(first, _mm256_maddubs_epi16(_mm256_and_si256(second, low), load(&x[1])))
            };
            sums[0] = words(first, second, &x[4 * j..]);
            sums[1] = words(_mm256_srli_epi16::<4>(first), _mm256_srli_epi16::<4>(second), &x[4 * j + 2..]);
        }
        sum_four_words(sums)
    }

    /// d and dmin of four super-blocks in turns, and for each the eight sc and the eight m.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn heads(blocks: [&[u8; BYTES]; 4]) -> ([f32; 8], [u8; 64]) {
        let heads = blocks.map(|block| block.first_chunk::<16>().map_or(_mm_setzero_si128(), |bytes| load_16(bytes)));
        let two = |i: usize| _mm_unpacklo_epi32(heads[i], heads[i + 1]);
        let (mut factors, mut bytes) = ([0.0; 8], [0; 64]);
        store_floats(&mut factors, _mm256_cvtph_ps(_mm_unpacklo_epi64(two(0), two(2))));
        for (bytes, heads) in bytes.as_chunks_mut::<32>().0.iter_mut().zip(heads.as_chunks::<2>().0) {
            store(bytes, sixes(_mm256_set_m128i(heads[1], heads[0])));
        }
        (factors, bytes)
    }
}

/// What Q4_K and Q5_K share.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) mod simd {
    use super::{BYTES, Q4K};
    #[cfg(target_arch = "x86_64")]
    use crate::arch::generic::wide::load_16;
    use crate::arch::generic::wide::{Bytes, Factors, all, and, for_vectors, load, right};
    #[cfg(target_arch = "aarch64")]
    use crate::arch::generic::wide::{all_16, bytes_by_f16s};
    use crate::dtypes::blocks::wide_products;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::*;

    wide_products!(Q4K, BYTES);

    for_vectors! {
        fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
            block.last_chunk().map_or([all(0); 8], |bytes| nibbles(bytes))
        }

        /// The nibbles of eight blocks.
        pub(crate) fn nibbles(bytes: &[u8; 128]) -> [Bytes; 8] {
            let mut elements = [all(0); 8];
            let pairs = bytes.as_chunks::<32>().0;
            for i in 0..4 {
                let bytes = load(&pairs[i]);
                (elements[2 * i], elements[2 * i + 1]) = (and(bytes, all(15)), and(right::<4>(bytes), all(15)));
            }
            elements
        }
    }

    /// The eight sc and the eight m of the heads of two super-blocks.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn sixes(heads: __m256i) -> __m256i {
        // d and dmin, then the twelve bytes as three double words x, y, z. The low four sc are in x and the low four m
        // in y, by their low 6 bits; the high four have their low 4 bits in the low and high nibbles of z, and their
        // high 2 bits at the top of x and y.
        let twice = |a, b, c, d| _mm256_setr_epi32(a, b, c, d, a, b, c, d);
        let low = _mm256_srlv_epi32(_mm256_shuffle_epi32::<0b11_10_11_01>(heads), twice(0, 0, 0, 4)); // x z y z
        let low = _mm256_and_si256(low, twice(0x3f3f_3f3f, 0x0f0f_0f0f, 0x3f3f_3f3f, 0x0f0f_0f0f));
        let high = _mm256_srli_epi32::<2>(_mm256_shuffle_epi32::<0b10_10_01_01>(heads)); // x x y y
        _mm256_or_si256(low, _mm256_and_si256(high, twice(0, 0x3030_3030, 0, 0x3030_3030)))
    }

    /// `d * sc` and `dmin * m` of the eight blocks of a super-block of Q4_K or Q5_K.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn factors<const BYTES: usize>(block: &[u8; BYTES]) -> Factors {
        let head = block.first_chunk::<16>().map_or(_mm_setzero_si128(), |bytes| load_16(bytes));
        let bytes = _mm256_castsi256_si128(sixes(_mm256_castsi128_si256(head)));
        let wide = |bytes: __m128i| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        let d = _mm_cvtph_ps(head);
        Factors {
            scales: _mm256_mul_ps(_mm256_broadcastss_ps(d), wide(bytes)),
            mins: _mm256_mul_ps(_mm256_broadcastss_ps(_mm_movehdup_ps(d)), wide(_mm_srli_si128::<8>(bytes))),
            halves: _mm_setzero_si128(),
        }
    }

    #[cfg(target_arch = "aarch64")]
    for_vectors! {
        /// `d * sc` and `dmin * m` of the eight blocks of a super-block of Q4_K or Q5_K.
        pub(crate) fn factors<const BYTES: usize>(block: &[u8; BYTES]) -> Factors {
            let (sixes, fours, twos) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
            let word = |at: usize| block[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            // The low four sc and m by their low 6 bits; the high four have their high 2 bits above these, and their low 4
            // bits in the low and high nibbles of `both`.
            let (sc, m, both) = (word(4), word(8), word(12));
            let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
            let scales = join(sc & sixes, both & fours | sc >> 2 & twos);
            let mins = join(m & sixes, both >> 4 & fours | m >> 2 & twos);
            let [scales, mins] = bytes_by_f16s([scales, mins], word(0));
            Factors { scales, mins, halves: all_16(0) }
        }
    }
}

/// What Q4_K and Q5_K share: super-blocks of 256 that begin with 16 bytes of scales and minima.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512_vnni {
    use super::simd::sixes;
    use super::{BYTES, Q4K};
    use crate::arch::x86_64::avx2::load_16;
    use crate::arch::x86_64::avx512::blocks::{self as avx512_blocks, Panel, ROWS, Step, columns};
    use crate::arch::x86_64::avx512::{columns_of_16, load, load_floats, rows_times_token};
    use crate::dtypes::blocks::Format;
    use crate::order::TOKENS_WITHOUT_PANELS;
    use crate::scratch::{Scratch, arranged, arranged_bytes, with_scratch};
    use crate::{Input, Output};
    use std::arch::x86_64::*;

    /// Where the product with one token has the blocks of two super-blocks, numbered 0 to 7 and 8 to 15.
    const ORDER: [usize; 16] = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        let halves = |block: &[u8; BYTES]| match block.last_chunk() {
            Some(bytes) => nibbles(bytes),
            None => [_mm512_setzero_si512(); 4],
        };
        if input.tokens() <= TOKENS_WITHOUT_PANELS {
            for token in 0..input.tokens() {
                one_token::<4, BYTES, { 2 * BYTES }>(weight, input, token, output, halves);
            }
        } else {
            many_tokens::<Q4K, BYTES>(weight, input, output, |blocks, i, panel| put(blocks, i, panel));
        }
    }

    /// The nibbles of eight blocks, 16 a quarter of a vector: the first halves of blocks 0, 2, 4 and 6, the second
    /// halves, then both halves of blocks 1, 3, 5 and 7.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn nibbles(bytes: &[u8; 128]) -> [__m512i; 4] {
        let [first, second] = bytes.as_chunks::<64>().0 else { unreachable!("two times 64 bytes") };
        let (a, b) = (load(first), load(second));
        let low = _mm512_set1_epi8(15);
        let first = _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
        let second = _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b);
        [
            _mm512_and_si512(first, low),
            _mm512_and_si512(second, low),
            _mm512_and_si512(_mm512_srli_epi16::<4>(first), low),
            _mm512_and_si512(_mm512_srli_epi16::<4>(second), low),
        ]
    }

    /// `d * sc` and `dmin * m` of the blocks of two super-blocks in ORDER.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn scales_and_mins<const BYTES: usize>(a: &[u8; BYTES], b: &[u8; BYTES]) -> (__m512, __m512) {
        let zero = _mm_setzero_si128();
        let a = a.first_chunk::<16>().map_or(zero, |bytes| load_16(bytes));
        let b = b.first_chunk::<16>().map_or(zero, |bytes| load_16(bytes));
        // In each half sc of the eight blocks, then m: two words of the one, two of the other are ORDER.
        let bytes = sixes(_mm256_set_m128i(b, a));
        let (of_a, of_b) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        let sc = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi16(of_a, of_b)));
        let m = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi16(of_a, of_b)));
        let floats = _mm512_broadcast_f32x4(_mm_cvtph_ps(_mm_unpacklo_epi32(a, b))); // d, dmin of a, of b
        let (d, dmin) = (_mm512_permute_ps::<0b10_10_00_00>(floats), _mm512_permute_ps::<0b11_11_01_01>(floats));
        (_mm512_mul_ps(d, sc), _mm512_mul_ps(dmin, m))
    }

    /// The product with several tokens; `put(blocks, i, panel)` puts in the elements of super-block `i` of 16 rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn many_tokens<F: Format, const BYTES: usize>(
        weight: &[u8],
        input: &Input,
        output: &mut Output<'_>,
        put: impl Fn(Step<'_, BYTES>, usize, &mut Panel<'_>),
    ) {
        avx512_blocks::many_tokens::<F>(weight, input, output, |rows, panel| {
            for i in panel.steps(8) {
                panel.ask_ahead(i, ROWS * BYTES);
                let mut padding = None;
                let blocks = rows.step(i, &mut padding);
                put(blocks, i, panel);
                put_scales_and_mins(blocks, i, panel);
            }
        });
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn put(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
        let low = _mm512_set1_epi8(15);
        for half in 0..2 {
            for (pair, bytes) in columns(blocks, 16 + 64 * half).as_chunks::<8>().0.iter().enumerate() {
                let b = 8 * i + 4 * half + 2 * pair;
                panel.put_columns(b, &bytes.map(|bytes| _mm512_and_si512(bytes, low)));
                panel.put_columns(b + 1, &bytes.map(|bytes| _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low)));
            }
        }
    }

    /// Puts in `d * sc` and `dmin * m` of super-block `i` of 16 rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn put_scales_and_mins<const BYTES: usize>(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
        let head = |r: usize| load_16(blocks.part(r, 0));
        // As in `scales_and_mins`, a row a lane.
        let [factors, x, y, z] = columns_of_16(head);
        let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(factors));
        let dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(factors)));
        let bits = |v: __m512i, from: usize, count: u32| {
            let v = _mm512_srlv_epi32(v, _mm512_set1_epi32(from as i32));
            _mm512_and_si512(v, _mm512_set1_epi32((1 << count) - 1))
        };
        let with = |low: __m512i, high: __m512i| _mm512_or_si512(low, _mm512_slli_epi32::<4>(high));
        for j in 0..4 {
            let at = 8 * j;
            let sixes = [bits(x, at, 6), bits(y, at, 6)];
            let split = [with(bits(z, at, 4), bits(x, at + 6, 2)), with(bits(z, at + 4, 4), bits(y, at + 6, 2))];
            for (b, [sc, m]) in [(j, sixes), (4 + j, split)] {
                let scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sc));
                panel.put_floats(8 * i + b, [scale, _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(m))]);
            }
        }
    }

    /// The product with one token; `halves` has the elements of a super-block as [`nibbles`] does, of `BITS` bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn one_token<const BITS: u32, const BYTES: usize, const TWO: usize>(
        weight: &[u8],
        input: &Input,
        token: usize,
        output: &mut Output<'_>,
        halves: impl Fn(&[u8; BYTES]) -> [__m512i; 4],
    ) {
        let blocks = input.inputs() / 32;
        let steps = blocks.div_ceil(16);
        let x = input.q8(token);
        let done = with_scratch(|Scratch { bytes, floats, more_floats, .. }| {
            // Activations up to a whole number of steps, in the order in which elements and scales come.
            let halves_at = |i: usize| i / 16 * 16 + 4 * (i % 4) + i / 8 % 2 * 2 + i / 4 % 2;
            let blocks_at = |i: usize| ORDER[i % 16] + i / 16 * 16;
            let x_bytes = arranged_bytes::<64>(bytes, &x, steps * 16, halves_at)?;
            let x_scales = arranged(floats, x.scales, steps * 16, blocks_at)?;
            let x_sums = arranged(more_floats, x.sums, steps * 16, blocks_at)?;
            let rows = output.rows();
            let order = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
            rows_times_token!(weight, output.part(token, 0, rows), order, |two: &[u8; TWO], [_, i], sums| {
                let [a, b] = two.as_chunks::<BYTES>().0 else { unreachable!("two super-blocks") };
                let dots = dots::<BITS>(halves(a), halves(b), &x_bytes[i]);
                let (scales, mins) = scales_and_mins(a, b);
                let scales = _mm512_mul_ps(scales, load_floats(&x_scales[i]));
                let sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums);
                _mm512_fnmadd_ps(mins, load_floats(&x_sums[i]), sums)
            });
            Ok(())
        });
        output.note(done);
    }

    /// The products of two super-blocks, added up for each block, in ORDER.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn dots<const BITS: u32>(a: [__m512i; 4], b: [__m512i; 4], x: &[[u8; 64]; 8]) -> __m512i {
        const { assert!(BITS <= 5) };
        let ones = _mm512_set1_epi16(1);
        let products = |a: __m512i, b: __m512i, x: &[[u8; 64]]| {
            _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), a, load(&x[0])), b, load(&x[1]))
        };
        // In each 128 bits, four sums of 8 products of one block: at most 31 * 127 * 8, so that they fit 16 bits.
        let of_a = _mm512_packs_epi32(products(a[0], a[1], &x[..2]), products(a[2], a[3], &x[2..4]));
        let of_b = _mm512_packs_epi32(products(b[0], b[1], &x[4..6]), products(b[2], b[3], &x[6..]));
        let (of_a, of_b) = (_mm512_madd_epi16(of_a, ones), _mm512_madd_epi16(of_b, ones));
        if BITS == 4 {
            // 16 products are at most 15 * 127 * 16: 16 bits once more.
            return _mm512_madd_epi16(_mm512_packs_epi32(of_a, of_b), ones);
        }
        let (of_a, of_b) = (_mm512_castsi512_ps(of_a), _mm512_castsi512_ps(of_b));
        let even = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(of_a, of_b));
        let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0b11_01_11_01>(of_a, of_b));
        _mm512_add_epi32(even, odd)
    }
}
