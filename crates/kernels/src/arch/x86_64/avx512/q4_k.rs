//! Q4_K by AVX-512 VNNI, and code for Q4_K and Q5_K: super-blocks of 256 that begin with 16 bytes of scales and minima.

use super::blocks::{Panel, Step, columns, many_tokens_by};
use super::{columns_of_16, load, load_floats, rows_times_token};
use crate::Call;
use crate::arch::x86_64::avx2::load_16;
use crate::arch::x86_64::avx2::q4_k::sixes;
use crate::dtypes::blocks::Format;
use crate::dtypes::q4_k::{BYTES, Q4K};
use crate::scratch::{Scratch, arranged, arranged_bytes};
use std::arch::x86_64::*;

/// The order in which the product with one token has the blocks of two super-blocks, numbered 0 to 7 and 8 to 15.
const ORDER: [usize; 16] = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let halves = |block: &[u8; BYTES]| match block.last_chunk() {
        Some(bytes) => nibbles(bytes),
        None => [_mm512_setzero_si512(); 4],
    };
    if !one_token::<4, BYTES, { 2 * BYTES }>(call, halves) {
        many_tokens::<Q4K, BYTES>(call, |blocks, i, panel| put(blocks, i, panel));
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
    // In each half are sc of the eight blocks, then m: two words of one super-block, then two of the other are ORDER.
    let bytes = sixes(_mm256_set_m128i(b, a));
    let (of_a, of_b) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
    let sc = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi16(of_a, of_b)));
    let m = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi16(of_a, of_b)));
    let floats = _mm512_broadcast_f32x4(_mm_cvtph_ps(_mm_unpacklo_epi32(a, b))); // d, dmin of a, of b
    let (d, dmin) = (_mm512_permute_ps::<0b10_10_00_00>(floats), _mm512_permute_ps::<0b11_11_01_01>(floats));
    (_mm512_mul_ps(d, sc), _mm512_mul_ps(dmin, m))
}

/// The product with several tokens; `put(blocks, i, panel)` stores the elements of super-block `i` of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn many_tokens<F: Format, const BYTES: usize>(
    call: &mut Call<'_>,
    put: impl Fn(Step<'_, BYTES>, usize, &mut Panel<'_>),
) {
    many_tokens_by::<F, BYTES>(call, 8, |blocks, i, panel| {
        put(blocks, i, panel);
        put_scales_and_mins(blocks, i, panel);
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

/// Stores `d * sc` and `dmin * m` of super-block `i` of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put_scales_and_mins<const BYTES: usize>(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
    let head = |r: usize| load_16(blocks.part(r, 0));
    // Like `scales_and_mins`, with a row in each lane.
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

/// The product with one token, like [`Call::few_tokens`]; `halves` has elements of a super-block like [`nibbles`], of `BITS` bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token<const BITS: u32, const BYTES: usize, const TWO: usize>(
    call: &mut Call<'_>,
    halves: impl Fn(&[u8; BYTES]) -> [__m512i; 4],
) -> bool {
    call.few_tokens(|Scratch { bytes, floats, more_floats, .. }, weight, [x], y| {
        // The activations, padded to a whole number of steps, in the order of elements and scales.
        let blocks = x.scales.len().next_multiple_of(16);
        let halves_at = |i: usize| i / 16 * 16 + 4 * (i % 4) + i / 8 % 2 * 2 + i / 4 % 2;
        let blocks_at = |i: usize| ORDER[i % 16] + i / 16 * 16;
        let x_bytes = arranged_bytes::<64, 1>(bytes, &[x], false, blocks, halves_at)?;
        let x_scales = arranged(floats, [x.scales], blocks, blocks_at)?;
        let x_sums = arranged(more_floats, [x.sums], blocks, blocks_at)?;
        let order = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        rows_times_token!(1, weight, y, order, |[two]: [&[u8; TWO]; 1], _, i, [[sums]]| {
            let [a, b] = two.as_chunks::<BYTES>().0 else { unreachable!("two super-blocks") };
            let dots = dots::<BITS>(halves(a), halves(b), &x_bytes[i]);
            let (scales, mins) = scales_and_mins(a, b);
            let scales = _mm512_mul_ps(scales, load_floats(&x_scales[i]));
            let sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums);
            [[_mm512_fnmadd_ps(mins, load_floats(&x_sums[i]), sums)]]
        });
        Ok(())
    })
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
    // Each 128 bits have four sums of 8 products of one block: at most 31 * 127 * 8, so that they fit 16 bits.
    let of_a = _mm512_packs_epi32(products(a[0], a[1], &x[..2]), products(a[2], a[3], &x[2..4]));
    let of_b = _mm512_packs_epi32(products(b[0], b[1], &x[4..6]), products(b[2], b[3], &x[6..]));
    let (of_a, of_b) = (_mm512_madd_epi16(of_a, ones), _mm512_madd_epi16(of_b, ones));
    if BITS == 4 {
        // Sums of 16 products are at most 15 * 127 * 16, which fits 16 bits again.
        return _mm512_madd_epi16(_mm512_packs_epi32(of_a, of_b), ones);
    }
    let (of_a, of_b) = (_mm512_castsi512_ps(of_a), _mm512_castsi512_ps(of_b));
    let even = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(of_a, of_b));
    let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0b11_01_11_01>(of_a, of_b));
    _mm512_add_epi32(even, odd)
}
