//! AVX-512 pieces that several dtypes share: loads, and sums in the defined order.

pub(crate) mod attention;
pub(crate) mod bf16;
pub(crate) mod blocks;
pub(crate) mod columns;
pub(crate) mod f4;
pub(crate) mod floats;
pub(crate) mod i8;
pub(crate) mod q4_0;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
pub(crate) mod quantize;
pub(crate) mod simd;
pub(crate) mod u4;

use super::avx2::{load as load_32, load_16, sum_eight_lanes};
use super::prefetch::{AHEAD, AHEAD_IN_ONE};
use crate::arch::generic::prefetch::{prefetch, prefetch_near, streams};
use bytemuck::Pod;
use simd::mask_16;
use std::arch::x86_64::*;

/// 64 bytes, at any alignment.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Like [`load`], by an instruction that the compiler cannot see through. With a plain load it takes other loads
/// within these bytes from this register, by many shuffles.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_apart(bytes: &[u8; 64]) -> __m512i {
    let v;
    // SAFETY: the instruction reads the array's 64 bytes, needs no alignment, and changes nothing else.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 {v}, zmmword ptr [{bytes}]",
            v = lateout(zmm_reg) v,
            bytes = in(reg) bytes,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    v
}

/// 32 or 48 bytes, at any alignment, and any after them.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(crate) fn load_less(bytes: &[u8]) -> __m512i {
    let first = _mm512_castsi256_si512(load_32(bytes.first_chunk().unwrap_or(&[0; 32])));
    if bytes.len() <= 32 {
        return first;
    }
    _mm512_inserti32x4::<2>(first, load_16(bytes.last_chunk().unwrap_or(&[0; 16])))
}

/// 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_floats(floats: &[f32; 16]) -> __m512 {
    // SAFETY: the array is 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_ps(floats.as_ptr()) }
}

/// 64 bytes of numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_numbers<T: Pod, const N: usize>(numbers: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: the array is 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

/// Stores 64 bytes of numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store_numbers<T: Pod, const N: usize>(numbers: &mut [T; N], v: __m512i) {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: the array is 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), v) }
}

/// Stores 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store_floats(floats: &mut [f32; 16], v: __m512) {
    // SAFETY: the array is 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_ps(floats.as_mut_ptr(), v) }
}

/// Stores as many of the floats as `to` has, up to 16.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store_some(to: &mut [f32], v: __m512) {
    let mask = mask_16(to.len());
    // SAFETY: the mask keeps the store inside.
    unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, v) };
}

/// The sum of the lanes in the order of `crate::sum_lanes`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(crate) fn sum_lanes(v: __m512) -> f32 {
    sum_eight_lanes(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
}

/// Like [`sum_lanes`], of four vectors at once: the same pairs, side by side.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn sum_lanes_of_four([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
    // The low halves of two vectors plus their high halves, then the same with quarters.
    let halves = |a: __m512, b: __m512| {
        let high = _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b);
        _mm512_add_ps(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), high)
    };
    let (ab, cd) = (halves(a, b), halves(c, d));
    let odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd);
    let four = _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd), odd);
    let two = _mm512_add_ps(four, _mm512_permute_ps::<0b11_10_11_10>(four));
    let one = _mm512_add_ps(two, _mm512_movehdup_ps(two));
    let first = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, one));
    let mut sums = [0.0; 4];
    // SAFETY: the array is 16 bytes; the store needs no alignment.
    unsafe { _mm_storeu_ps(sums.as_mut_ptr(), first) };
    sums
}

/// The sums of each quarter of four vectors, in that quarter.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn sum_quarters_of_four([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// The sums of the lanes of four vectors.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn sum_ints_of_four(v: [__m512i; 4]) -> [i32; 4] {
    let all = sum_quarters_of_four(v);
    let all = _mm512_add_epi32(all, _mm512_shuffle_i32x4::<0b01_00_11_10>(all, all));
    let all = _mm512_add_epi32(all, _mm512_shuffle_i32x4::<0b10_11_00_01>(all, all));
    let mut sums = [0; 4];
    // SAFETY: the array is 16 bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(sums.as_mut_ptr().cast(), _mm512_castsi512_si128(all)) };
    sums
}

/// Transposes 16 rows of 16 double words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn transpose(rows: &[__m512i; 16]) -> [__m512i; 16] {
    let zero = _mm512_setzero_si512();
    let (mut a, mut b) = ([zero; 16], [zero; 16]);
    for i in 0..8 {
        a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // b[4 * i + j]: columns j, j + 4, j + 8, j + 12 of rows 4 * i ..
    for i in 0..4 {
        b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    let mut out = [zero; 16];
    for j in 0..4 {
        let low = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[j], b[4 + j]); // columns j, j + 8 of rows 0..8
        let low_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[j], b[4 + j]); // j + 4, j + 12
        let high = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[8 + j], b[12 + j]);
        let high_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[8 + j], b[12 + j]);
        out[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, high);
        out[j + 8] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, high);
        out[j + 4] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low_odd, high_odd);
        out[j + 12] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low_odd, high_odd);
    }
    out
}

/// The four double words of 16 rows of 16 bytes, a vector for each double word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn columns_of_16(row: impl Fn(usize) -> __m128i) -> [__m512i; 4] {
    let zero = _mm512_setzero_si512();
    let (mut rows, mut a) = ([zero; 4], [zero; 4]);
    for (i, rows) in rows.iter_mut().enumerate() {
        // Rows i, i + 4, i + 8, i + 12.
        *rows = _mm512_castsi128_si512(row(i));
        *rows = _mm512_inserti32x4::<1>(*rows, row(i + 4));
        *rows = _mm512_inserti32x4::<2>(*rows, row(i + 8));
        *rows = _mm512_inserti32x4::<3>(*rows, row(i + 12));
    }
    for i in 0..2 {
        a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    [
        _mm512_unpacklo_epi64(a[0], a[2]),
        _mm512_unpackhi_epi64(a[0], a[2]),
        _mm512_unpacklo_epi64(a[1], a[3]),
        _mm512_unpackhi_epi64(a[1], a[3]),
    ]
}

/// Block dtypes times one token: for each `$together` rows of `weight`, one or two, `step(bytes, rows, i, sums)` adds step `i` to their
/// lanes, of which each row has some for each row of the input; `order` brings the lanes into the order of the blocks. A row's end is
/// padded with zeros.
///
/// A macro, because a closure that is called in two places becomes a function, and its vectors go through memory: each place has
/// `step` of its own.
macro_rules! rows_times_token {
    ($together:expr, $weight:expr, $y:expr, $order:expr, $step:expr $(,)?) => {{
        use $crate::arch::x86_64::{avx512::in_streams, prefetch::Reading};
        match Reading::of_this_processor() {
            Reading::OneStream => in_streams::<_, $together, $together, _>($weight, $y, $order, $step, $step),
            Reading::FourStreams => in_streams::<_, 4, $together, _>($weight, $y, $order, $step, $step),
        }
    }};
}
pub(crate) use rows_times_token;

/// Like [`rows_times_token`], for `N` rows in turns, `R` of them together. `last` is `step`, for the end of a row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(clippy::needless_range_loop)] // steps and rows are indices of several arrays
pub(crate) fn in_streams<const STEP: usize, const N: usize, const R: usize, const P: usize>(
    weight: &[u8],
    y: &mut [f32],
    order: __m512i,
    step: impl Fn([&[u8; STEP]; R], [usize; R], usize, [[__m512; P]; R]) -> [[__m512; P]; R],
    last: impl Fn([&[u8; STEP]; R], [usize; R], usize, [[__m512; P]; R]) -> [[__m512; P]; R],
) {
    const { assert!(N.is_multiple_of(R) && R * P <= 4) };
    let row_bytes = weight.len() / y.len();
    let (steps, rest) = (row_bytes / STEP, row_bytes % STEP);
    // A last step that is not whole reads on in the rows after it; the lanes of their blocks do not count.
    let mut lane_of = [0i32; 16];
    store_numbers(&mut lane_of, order);
    let counted = lane_of[..16 * rest / STEP].iter().fold(0u16, |counted, lane| counted | 1 << lane);
    for indices in streams::<N>(y.len()) {
        let mut stored = [&[[0; STEP]; 0][..]; N];
        for r in 0..N {
            stored[r] = &weight[indices[r] * row_bytes..][..row_bytes].as_chunks().0[..steps];
        }
        let (rows, stored) = (indices.as_chunks::<R>().0, stored.as_chunks::<R>().0);
        let mut sums = [[_mm512_setzero_ps(); P]; N];
        for i in 0..steps {
            for (together, sums) in sums.as_chunks_mut().0.iter_mut().enumerate() {
                let mut bytes = [&[0; STEP]; R];
                for r in 0..R {
                    bytes[r] = &stored[together][r][i];
                    if N == R {
                        prefetch_near(bytes[r].as_ptr().wrapping_add(AHEAD_IN_ONE / R), STEP);
                    } else {
                        prefetch(bytes[r].as_ptr().wrapping_add(AHEAD), STEP);
                    }
                }
                *sums = step(bytes, rows[together], i, *sums);
            }
        }
        for (rows, sums) in rows.iter().zip(sums.as_chunks_mut::<R>().0) {
            if rest > 0 {
                let mut padded = [[0; STEP]; R];
                let mut bytes = [&[0; STEP]; R];
                for ((bytes, padded), row) in bytes.iter_mut().zip(&mut padded).zip(rows) {
                    let left = &weight[row * row_bytes + steps * STEP..];
                    *bytes = left.first_chunk().unwrap_or_else(|| {
                        padded[..left.len()].copy_from_slice(left);
                        padded
                    });
                }
                let added = last(bytes, *rows, steps, *sums);
                for (sums, added) in sums.as_flattened_mut().iter_mut().zip(added.as_flattened()) {
                    *sums = _mm512_mask_mov_ps(*sums, counted, *added);
                }
            }
            let mut in_order = [_mm512_setzero_ps(); 4];
            for (to, sums) in in_order.iter_mut().zip(sums.as_flattened()) {
                *to = _mm512_permutexvar_ps(order, *sums);
            }
            let totals = sum_lanes_of_four(in_order);
            for (row, totals) in rows.iter().zip(totals.as_chunks::<P>().0) {
                y[*row] = totals[0];
                for total in &totals[1..] {
                    y[*row] += total;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Sets};
    use crate::testing::Random;

    #[test]
    fn transposes() {
        #[target_feature(enable = "avx512f")]
        fn transposed(numbers: &[[i32; 16]; 16]) -> [[i32; 16]; 16] {
            let mut rows = [_mm512_setzero_si512(); 16];
            rows.iter_mut().zip(numbers).for_each(|(row, numbers)| *row = load_numbers(numbers));
            let mut out = [[0; 16]; 16];
            out.iter_mut().zip(transpose(&rows)).for_each(|(out, column)| store_numbers(out, column));
            out
        }
        if Isa::detect().has(Sets::AVX512) {
            let numbers: [[i32; 16]; 16] = std::array::from_fn(|r| std::array::from_fn(|c| (100 * r + c) as i32));
            // SAFETY: the token proves the instruction sets.
            let out = unsafe { transposed(&numbers) };
            assert!((0..16).all(|r| (0..16).all(|c| out[c][r] == numbers[r][c])));
        }
    }

    #[test]
    fn sums_ints() {
        #[target_feature(enable = "avx512f")]
        fn sums(numbers: &[[i32; 16]; 4]) -> [i32; 4] {
            sum_ints_of_four(numbers.each_ref().map(|numbers| load_numbers(numbers)))
        }
        if Isa::detect().has(Sets::AVX512) {
            let numbers: [[i32; 16]; 4] =
                std::array::from_fn(|v| std::array::from_fn(|i| i32::MAX / (i as i32 + 1) - 1000 * v as i32));
            let expected = numbers.map(|numbers| numbers.into_iter().fold(0, i32::wrapping_add));
            // SAFETY: the token proves the instruction sets.
            assert_eq!(unsafe { sums(&numbers) }, expected);
        }
    }

    #[test]
    fn sums_lanes_in_the_defined_order() {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn sums(numbers: &[[f32; 16]; 4]) -> ([f32; 4], [f32; 4]) {
            let mut lanes = [_mm512_setzero_ps(); 4];
            lanes.iter_mut().zip(numbers).for_each(|(lanes, numbers)| *lanes = load_floats(numbers));
            (
                sum_lanes_of_four(lanes),
                [sum_lanes(lanes[0]), sum_lanes(lanes[1]), sum_lanes(lanes[2]), sum_lanes(lanes[3])],
            )
        }
        if Isa::detect().has(Sets::AVX512) {
            let mut random = Random::new(14);
            for _ in 0..100 {
                let numbers: [[f32; 16]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| random.float()));
                let expected = numbers.map(crate::sum_lanes);
                // SAFETY: the token proves the instruction sets.
                assert_eq!(unsafe { sums(&numbers) }, (expected, expected));
            }
        }
    }
}
