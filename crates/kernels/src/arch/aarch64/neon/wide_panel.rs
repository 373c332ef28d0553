//! Products by NEON: by `sdot` or its replacement, which adds four products in a lane, a row each; or by `smmla`, which multiplies
//! two rows with two tokens.

#![allow(clippy::needless_range_loop)] // tokens are indices of several arrays

use super::each;
use super::simd::{FLOAT_BITS, I8MM, Neon, four_smmla, load_about, load_four, load_unpaired, to_floats};
use crate::arch::generic::panel::Multiply;
use crate::arch::generic::simd::Simd;
use crate::arch::generic::wide::transpose;
use crate::arch::generic::wide_panel::{Columns, ROWS};
use crate::dtypes::blocks::Format;
use std::arch::aarch64::*;
use std::mem::transmute;
use std::ops::Range;

const _: () = assert!(ROWS == <Neon>::LANES);

impl<const LEVEL: u8> Multiply for Neon<LEVEL> {
    const TOKENS: usize = if Self::PAIRS { 6 } else { 4 };
    const ASKS: bool = false;
    const PAIRS: bool = LEVEL >= I8MM;
    const BEGINS: bool = true;

    #[inline(always)]
    unsafe fn products<F: Format, const T: usize>(
        self,
        w: *const u8,
        x: &[[[i8; 4]; 8]; T],
        groups: Range<usize>,
        _offsets: &[i32; T],
    ) -> [float32x4x2_t; T] {
        // SAFETY: the caller guarantees it; the value proves the instruction sets.
        unsafe {
            if Self::PAIRS {
                self.products_of_pairs::<T>(w, x.as_ptr().cast(), groups)
            } else {
                self.products_of_rows::<T>(w, x.as_ptr().cast(), groups)
            }
        }
    }

    #[inline(always)]
    fn of_rows(self, rows: float32x4x2_t, v: usize) -> float32x4x2_t {
        if !Self::PAIRS {
            return rows;
        }
        let four = if v == 0 { rows.0 } else { rows.1 };
        // SAFETY: the value proves the instruction sets.
        unsafe { float32x4x2_t(vzip1q_f32(four, four), vzip2q_f32(four, four)) }
    }

    #[inline(always)]
    unsafe fn of_tokens<const T: usize>(self, tokens: *const f32, v: usize, unpaired: bool) -> float32x4x2_t {
        // SAFETY: the caller guarantees it.
        unsafe {
            if !Self::PAIRS {
                // One load serves four tokens: a multiplication takes a lane of a register directly.
                let token = if T == 4 {
                    transmute::<uint8x16_t, [f32; 4]>(load_about::<2, 0>(tokens.cast()))[v]
                } else {
                    *tokens.add(v)
                };
                return self.all(token);
            }
            let tokens = tokens.add(v / 2 * 4);
            let both = if unpaired { load_unpaired(tokens) } else { vld1q_f32(tokens) };
            float32x4x2_t(both, both)
        }
    }

    #[inline(always)]
    fn of_offsets<const T: usize>(self, offsets: &[i32; T], v: usize) -> float32x4x2_t {
        if !Self::PAIRS {
            return self.all_int(offsets[v] >> 7);
        }
        // SAFETY: the value proves the instruction sets.
        unsafe {
            let both = vcvtq_f32_s32(vshrq_n_s32::<7>(two_in_turns::<T>(offsets, v / 2)));
            float32x4x2_t(both, both)
        }
    }

    #[inline(always)]
    fn by_token<const T: usize>(self, sums: [float32x4x2_t; T]) -> [float32x4x2_t; T] {
        if !Self::PAIRS {
            return sums;
        }
        let mut tokens = sums;
        for t in 0..T / 2 {
            let (low, high) = (sums[2 * t], sums[2 * t + 1]);
            // SAFETY: the value proves the instruction sets.
            unsafe {
                tokens[2 * t] = float32x4x2_t(vuzp1q_f32(low.0, low.1), vuzp1q_f32(high.0, high.1));
                tokens[2 * t + 1] = float32x4x2_t(vuzp2q_f32(low.0, low.1), vuzp2q_f32(high.0, high.1));
            }
        }
        tokens
    }
}

/// Numbers of the tokens `2 * pair` and the next, each twice.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn two_in_turns<const T: usize>(numbers: &[i32; T], pair: usize) -> int32x4_t {
    let two = &numbers[2 * pair..][..2];
    // SAFETY: two numbers are there; the caller guarantees it.
    unsafe {
        let two = vld1_s32(two.as_ptr());
        vcombine_s32(two, two)
    }
}

impl<const LEVEL: u8> Neon<LEVEL> {
    /// Products with a row in each lane and a token in each vector.
    ///
    /// # Safety
    /// The conditions of [`Multiply::products`]; `x` has `T` tokens, at most four, of a block.
    #[inline(always)]
    unsafe fn products_of_rows<const T: usize>(
        self,
        w: *const u8,
        x: *const u8,
        groups: Range<usize>,
    ) -> [float32x4x2_t; T] {
        const { assert!(Self::PAIRS || Self::TOKENS <= 4) };
        // SAFETY: the caller guarantees it. Loads count from 256 bytes before: eight number 2 begins at the pointer.
        unsafe {
            let from = const { &[FLOAT_BITS; 4] };
            let mut dots = [[vdupq_n_s32(0); 2]; T];
            each!(FOUR in 0 1, {
                if groups.contains(&(4 * FOUR)) {
                    let mut fours = [vdupq_n_u8(0); T];
                    each!(TOKEN in 0 1 2 3, {
                        if TOKEN < T {
                            fours[TOKEN] = load_about::<2, { 2 * TOKEN + FOUR }>(x);
                        }
                    });
                    each!(LANE in 0 1 2 3, {
                        let low = load_about::<{ 2 + FOUR }, { 2 * LANE }>(w);
                        let w = [low, load_about::<{ 2 + FOUR }, { 2 * LANE + 1 }>(w)];
                        for t in 0..T {
                            for half in 0..2 {
                                dots[t][half] = if LANE == 0 && 4 * FOUR == groups.start {
                                    self.dot_lane_from(from, w[half], fours[t])
                                } else {
                                    self.dot_lane::<{ LANE as i32 }>(dots[t][half], w[half], fours[t])
                                };
                            }
                        }
                    });
                }
            });
            let mut sums = [self.all(0.0); T];
            for t in 0..T {
                sums[t] = float32x4x2_t(to_floats(dots[t][0]), to_floats(dots[t][1]));
            }
            sums
        }
    }

    /// Products with a row of two and a token of two in each lane; vectors `2 * t` and `2 * t + 1` have tokens `2 * t` and the next
    /// of the first and of the second four rows.
    ///
    /// # Safety
    /// The conditions of [`Multiply::products`], and `i8mm`; `x` has `T` tokens of a block in pairs.
    #[inline(always)]
    unsafe fn products_of_pairs<const T: usize>(
        self,
        w: *const u8,
        x: *const u8,
        groups: Range<usize>,
    ) -> [float32x4x2_t; T] {
        // SAFETY: the caller guarantees it.
        unsafe {
            let from = const { &[FLOAT_BITS; 4] }.as_ptr();
            let mut dots = [[vdupq_n_s32(0); 4]; 3];
            each!(EIGHT in 0 1 2 3, {
                if groups.contains(&(2 * EIGHT)) {
                    let rows = load_four(w.add(64 * EIGHT));
                    each!(PAIR in 0 1 2, {
                        if PAIR < T / 2 && 2 * EIGHT == groups.start {
                            four_smmla::<true, { 64 * PAIR + 16 * EIGHT }>(&mut dots[PAIR], from, &rows, x);
                        } else if PAIR < T / 2 {
                            four_smmla::<false, { 64 * PAIR + 16 * EIGHT }>(&mut dots[PAIR], from, &rows, x);
                        }
                    });
                }
            });
            let mut sums = [self.all(0.0); T];
            for v in 0..T {
                let dots = &dots[v / 2][v % 2 * 2..];
                sums[v] = float32x4x2_t(to_floats(dots[0]), to_floats(dots[1]));
            }
            sums
        }
    }
}

/// The first eight bytes of both, and the last eight of both.
#[inline]
#[target_feature(enable = "neon")]
fn eights_in_turns(a: uint8x16_t, b: uint8x16_t) -> uint8x16x2_t {
    let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
    uint8x16x2_t(vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b)))
}

impl<const LEVEL: u8> Neon<LEVEL> {
    /// Elements as signed bytes.
    #[inline(always)]
    fn without_offset<F: Format>(self, bytes: uint8x16x2_t) -> uint8x16x2_t {
        // SAFETY: the value proves the instruction sets.
        let less = |bytes: uint8x16_t| unsafe { vsubq_u8(bytes, vdupq_n_u8(F::OFFSET as u8)) };
        if F::OFFSET > 0 { uint8x16x2_t(less(bytes.0), less(bytes.1)) } else { bytes }
    }
}

impl<const LEVEL: u8> Columns for Neon<LEVEL> {
    #[inline(always)]
    fn columns<F: Format>(self, mut rows: [uint8x16x2_t; ROWS]) -> [uint8x16x2_t; 8] {
        for row in &mut rows {
            *row = self.without_offset::<F>(*row);
        }
        if !Self::PAIRS {
            // SAFETY: the value proves the instruction sets.
            return unsafe { transpose(rows) };
        }
        // Eight elements of each row, two rows a register.
        let mut columns = rows;
        for r in 0..4 {
            let (a, b) = (rows[2 * r], rows[2 * r + 1]);
            // SAFETY: the value proves the instruction sets.
            let [first, second] = unsafe { [eights_in_turns(a.0, b.0), eights_in_turns(a.1, b.1)] };
            for (i, eight) in [first.0, first.1, second.0, second.1].into_iter().enumerate() {
                let to = &mut columns[2 * i + r / 2];
                if r % 2 == 0 { to.0 = eight } else { to.1 = eight }
            }
        }
        columns
    }
}
