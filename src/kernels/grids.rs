//! The codebooks of the IQ types, and what these types share: elements in words of eight bytes, from a codebook by index,
//! with signs.

mod numbers;

use super::isa::Sets;
use super::{Input, LANES, Output, sum_lanes};
use crate::memory;

/// Eight codes of 2 bits a word -> eight signed bytes.
const fn eight<const N: usize>(words: [u16; N], values: [i8; 3]) -> [u64; N] {
    let mut entries = [0; N];
    let mut n = 0;
    while n < N {
        let mut i = 0;
        while i < 8 {
            let value = values[(words[n] >> (2 * i) & 3) as usize];
            entries[n] |= (value as u8 as u64) << (8 * i);
            i += 1;
        }
        n += 1;
    }
    entries
}

/// Four codes of 3 bits a word -> four bytes.
const fn four<const N: usize>(words: [u16; N], values: [u8; 8]) -> [u32; N] {
    let mut entries = [0; N];
    let mut n = 0;
    while n < N {
        let mut i = 0;
        while i < 4 {
            entries[n] |= (values[(words[n] >> (3 * i) & 7) as usize] as u32) << (8 * i);
            i += 1;
        }
        n += 1;
    }
    entries
}

pub(super) static IQ2_XXS: [u64; 256] = eight(numbers::IQ2_XXS, [8, 25, 43]);
pub(super) static IQ2_XS: [u64; 512] = eight(numbers::IQ2_XS, [8, 25, 43]);
pub(super) static IQ2_S: [u64; 1024] = eight(numbers::IQ2_S, [8, 25, 43]);
pub(super) static IQ3_XXS: [u32; 256] = four(numbers::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
pub(super) static IQ3_S: [u32; 512] = four(numbers::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);
/// Of IQ1_S and IQ1_M, eight times as large, so that a shift by an eighth is one by 1.
pub(super) static IQ1: [u64; 2048] = eight(numbers::IQ1, [-8, 0, 8]);

/// `1` in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Turns the signs of those of eight bytes, none of which is 0, whose bit is set.
#[inline(always)]
pub(super) fn signed(bytes: u64, signs: u8) -> u64 {
    let bits = (u64::from(signs) * ONES) & 0x8040_2010_0804_0201;
    let turned = ((bits + 0x7f * ONES) >> 7) & ONES;
    (bytes ^ (turned * 0xff)) + turned
}

/// Seven signs, and an eighth that makes the number of set bits even.
#[inline(always)]
pub(super) fn even(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Eight bytes, each 1 more or 1 less.
#[inline(always)]
pub(super) fn shifted(bytes: u64, down: bool) -> u64 {
    let by = if down { 0xff * ONES } else { ONES };
    // Byte by byte: the high bits are added apart, so that nothing carries.
    const LOW: u64 = 0x7f * ONES;
    ((bytes & LOW) + (by & LOW)) ^ ((bytes ^ by) & !LOW)
}

/// The bytes of a block in order.
#[inline(always)]
pub(super) fn bytes(words: [u64; 4]) -> [i8; 32] {
    let mut all = [0; 32];
    for (all, word) in all.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *all = word.to_le_bytes().map(|byte| byte as i8);
    }
    all
}

/// A block of 32 elements with one scale for all of it, `block(stored, b) -> (scale, elements)`, as kernels.
macro_rules! grid_kernels {
    ($dtype:ident, $name:literal) => {
        $crate::kernels::blocks::block_kernels!($dtype, $name);

        fn widen(row: &[u8], out: &mut [f32]) {
            $crate::kernels::blocks::widen_scaled(row, out, |stored: &[u8; BYTES], b| {
                let (scale, words) = block(stored, b);
                (scale, $crate::kernels::grids::bytes(words))
            });
        }

        fn portable(weight: &[u8], input: &$crate::kernels::Input, output: &mut $crate::kernels::Output<'_>) {
            $crate::kernels::blocks::portable_scaled(weight, input, output, |stored: &[u8; BYTES], b| {
                let (scale, words) = block(stored, b);
                (scale, $crate::kernels::grids::bytes(words))
            });
        }

        #[cfg(target_arch = "x86_64")]
        mod simd {
            use super::{BYTES, block};
            use crate::kernels::avx2::{Factors, Format, load_floats, load_words};
            use crate::kernels::blocks::simd_products;
            use std::arch::x86_64::*;

            struct Grid;

            impl Format for Grid {
                const BITS: u32 = 8;
                const OFFSET: i32 = 0;
                const MINS: bool = false;
                const HALVES: bool = false;
            }

            simd_products!(Grid, BYTES);

            #[inline]
            #[target_feature(enable = "avx2")]
            fn elements(stored: &[u8; BYTES]) -> [__m256i; 8] {
                let mut all = [_mm256_setzero_si256(); 8];
                for (b, all) in all.iter_mut().enumerate() {
                    *all = load_words(&block(stored, b).1);
                }
                all
            }

            #[inline]
            #[target_feature(enable = "avx2")]
            fn factors(stored: &[u8; BYTES]) -> Factors {
                let scales: [f32; 8] = std::array::from_fn(|b| block(stored, b).0);
                Factors { scales: load_floats(&scales), mins: _mm256_setzero_ps(), halves: _mm_setzero_si128() }
            }
        }
    };
}
pub(super) use grid_kernels;

/// Half blocks of 16 with an integer scale each: `block(stored, b) -> (factor, scales, elements)`.
pub(super) fn widen_halves<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], usize) -> (f32, [i32; 2], [u64; 4]),
) {
    for (stored, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        for (b, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (factor, scales, words) = block(stored, b);
            for (i, (out, q)) in out.iter_mut().zip(bytes(words)).enumerate() {
                *out = factor * (scales[i / 16] * i32::from(q)) as f32;
            }
        }
    }
}

/// Rows times all tokens; `block` as in [`widen_halves`]. The products of a block are exact integers; block `b` then adds
/// `sum * (factor * scale of x)` to lane `b` modulo 16 by a fused multiply-add, in order.
#[inline(always)]
pub(super) fn halves<const BYTES: usize>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    block: impl Fn(&[u8; BYTES], usize) -> (f32, [i32; 2], [u64; 4]),
) {
    let blocks = input.inputs() / 32;
    /// Factor, the scales of its halves, and elements.
    type Block = (f32, [i32; 2], [i8; 32]);
    let room = || -> memory::Result<(Vec<_>, Vec<Block>)> {
        let tokens = memory::collected((0..input.tokens()).map(|token| input.blocks(token)), "the rows of an input")?;
        Ok((tokens, memory::reserved(blocks, "an unpacked row")?))
    };
    let (tokens, mut unpacked) = match room() {
        Ok(room) => room,
        Err(refused) => return output.note(Err(refused)),
    };
    for (row, stored) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        unpacked.clear();
        for stored in stored.as_chunks::<BYTES>().0 {
            unpacked.extend((0..8).map(|b| {
                let (factor, scales, words) = block(stored, b);
                (factor, scales, bytes(words))
            }));
        }
        for (token, x) in tokens.iter().enumerate() {
            let mut lanes = [0.0f32; LANES];
            for (b, (factor, scales, q)) in unpacked.iter().enumerate() {
                let (x, x_scale) = x(b);
                let dot = |half: usize| -> i32 {
                    let pairs = q[16 * half..][..16].iter().zip(&x[16 * half..][..16]);
                    pairs.map(|(&q, &x)| i32::from(q) * i32::from(x)).sum()
                };
                let sum = scales[0] * dot(0) + scales[1] * dot(1);
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(factor * x_scale, *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}

/// A dtype of half blocks whose sums are too wide for the shared vector products: the same code, compiled for each level.
macro_rules! half_kernels {
    ($dtype:ident, $name:literal) => {
        pub(super) const KERNELS: &[$crate::kernels::Entry] = &[
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::grids::entry(
                model_diagnostics::DType::$dtype,
                concat!($name, "/avx512"),
                $crate::kernels::isa::Sets::AVX512,
                avx512,
                widen,
            ),
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::grids::entry(
                model_diagnostics::DType::$dtype,
                concat!($name, "/avx2"),
                $crate::kernels::isa::Sets::AVX2,
                avx2,
                widen,
            ),
            $crate::kernels::grids::entry(
                model_diagnostics::DType::$dtype,
                concat!($name, "/portable"),
                $crate::kernels::isa::Sets::PORTABLE,
                portable,
                widen,
            ),
        ];

        fn widen(row: &[u8], out: &mut [f32]) {
            $crate::kernels::grids::widen_halves(row, out, block);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn avx512(weight: &[u8], input: &$crate::kernels::Input, output: &mut $crate::kernels::Output<'_>) {
            $crate::kernels::grids::halves(weight, input, output, block);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2(weight: &[u8], input: &$crate::kernels::Input, output: &mut $crate::kernels::Output<'_>) {
            $crate::kernels::grids::halves(weight, input, output, block);
        }

        fn portable(weight: &[u8], input: &$crate::kernels::Input, output: &mut $crate::kernels::Output<'_>) {
            $crate::kernels::grids::halves(weight, input, output, block);
        }
    };
}
pub(super) use half_kernels;

/// A line of [`half_kernels`].
pub(super) const fn entry(
    dtype: model_diagnostics::DType,
    name: &'static str,
    sets: Sets,
    matmul: super::Matmul,
    widen: fn(&[u8], &mut [f32]),
) -> super::Entry {
    let tier = model_diagnostics::capability::Tier::Native;
    super::Entry { name, dtype, tier, form: super::Form::Q8, sets, matmul, widen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_shifts_bytes_one_by_one() {
        let word = u64::from_le_bytes([8, 25, 43, 1, 62, 15, 8, 43]);
        for signs in 0..=255u8 {
            let turned = signed(word, signs).to_le_bytes();
            for (i, (turned, byte)) in turned.into_iter().zip(word.to_le_bytes()).enumerate() {
                let expected = if signs >> i & 1 == 1 { -(byte as i8) } else { byte as i8 };
                assert_eq!(turned as i8, expected, "{signs:#x} {i}");
            }
            assert!(even(u32::from(signs)).count_ones().is_multiple_of(2));
        }
        for entry in &IQ1 {
            for (down, by) in [(false, 1), (true, -1)] {
                let expected = entry.to_le_bytes().map(|byte| byte as i8 + by);
                assert_eq!(shifted(*entry, down).to_le_bytes().map(|byte| byte as i8), expected);
            }
        }
    }
}
