//! Vectors in two registers of NEON.

use super::simd::last_words_to_floats;
use crate::arch::generic::prefetch::four_words;
use crate::arch::generic::wide::operations;
use bytemuck::Pod;
use std::arch::aarch64::*;

/// 32 bytes.
pub(crate) type Bytes = uint8x16x2_t;
/// 16 bytes.
pub(crate) type Bytes16 = uint8x16_t;
/// 8 floats.
pub(crate) type Floats = float32x4x2_t;

operations! {
    /// 32 bytes, at any alignment.
    load(bytes: &[u8; 32]) -> Bytes = load_numbers(bytes);
    /// The 32 bytes.
    stored(bytes: Bytes) -> [u8; 32] = {
        // SAFETY: both are 32 bytes without padding.
        unsafe { std::mem::transmute::<Bytes, [u8; 32]>(bytes) }
    };
    /// 16 bytes, at any alignment.
    load_16(bytes: &[u8; 16]) -> Bytes16 = {
        // SAFETY: the array is 16 bytes; the load needs no alignment.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    };
    /// 8 bytes, with any after them.
    load_8(bytes: &[u8; 8]) -> Bytes16 = vcombine_u8(vcreate_u8(u64::from_le_bytes(*bytes)), vdup_n_u8(0));
    /// Bytes of each 16, by their places in these; 0 for places of 128 and more.
    shuffled(bytes: Bytes, places: &[u8; 32]) -> Bytes = {
        let places = load(places);
        pair(vqtbl1q_u8(bytes.0, places.0), vqtbl1q_u8(bytes.1, places.1))
    };
    /// Each two bytes by a factor, the low 16 bits.
    mul_words(words: Bytes, factors: &[u16; 16]) -> Bytes = {
        let factors = load_numbers(factors);
        let product = |words: Bytes16, factors: Bytes16| {
            vreinterpretq_u8_u16(vmulq_u16(vreinterpretq_u16_u8(words), vreinterpretq_u16_u8(factors)))
        };
        pair(product(words.0, factors.0), product(words.1, factors.1))
    };
    /// The high byte of each two, in their low one.
    high_bytes(words: Bytes) -> Bytes = {
        let high = |words: Bytes16| vreinterpretq_u8_u16(vshrq_n_u16::<8>(vreinterpretq_u16_u8(words)));
        pair(high(words.0), high(words.1))
    };
    /// 8 floats.
    load_floats(floats: &[f32; 8]) -> Floats = as_floats(load_numbers(floats));
    /// 8 BF16, widened.
    widened_bf16(halves: &[u8; 16]) -> Floats = {
        let halves = vreinterpretq_u16_u8(load_16(halves));
        let (low, high) = (vshll_n_u16::<16>(vget_low_u16(halves)), vshll_high_n_u16::<16>(halves));
        float32x4x2_t(vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high))
    };
    /// 8 F16, widened.
    widened_f16(halves: &[u8; 16]) -> Floats = {
        let wide = |four: uint8x8_t| vcvt_f32_f16(vreinterpret_f16_u8(four));
        let halves = load_16(halves);
        float32x4x2_t(wide(vget_low_u8(halves)), wide(vget_high_u8(halves)))
    };
    /// Float `skipped + (i >> shift)` in lane `i`; any float where there is none.
    repeated(floats: Floats, shift: u32, skipped: u32) -> Floats = {
        let lanes = load_numbers(&[0u32, 1, 2, 3, 4, 5, 6, 7]);
        let of_lanes = |lanes: Bytes16| {
            let numbers = vshlq_u32(vreinterpretq_u32_u8(lanes), vdupq_n_s32(-(shift as i32)));
            let numbers = vaddq_u32(numbers, vdupq_n_u32(skipped));
            // The four bytes of each float.
            let bytes = vmlaq_u32(vdupq_n_u32(0x0302_0100), numbers, vdupq_n_u32(0x0404_0404));
            vreinterpretq_f32_u8(vqtbl2q_u8(as_bytes(floats), vreinterpretq_u8_u32(bytes)))
        };
        float32x4x2_t(of_lanes(lanes.0), of_lanes(lanes.1))
    };
    /// The value `byte` in all bytes.
    all(byte: u8) -> Bytes = pair(vdupq_n_u8(byte), vdupq_n_u8(byte));
    /// The value `byte` in all bytes.
    all_16(byte: u8) -> Bytes16 = vdupq_n_u8(byte);
    /// `x` in all lanes.
    all_floats(x: f32) -> Floats = float32x4x2_t(vdupq_n_f32(x), vdupq_n_f32(x));
    /// The F16 of two bytes in all lanes, widened.
    all_f16(bytes: [u8; 2]) -> Floats = {
        let x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(u16::from_le_bytes(bytes))));
        float32x4x2_t(x, x)
    };
    /// The negative of each.
    negated(floats: Floats) -> Floats = float32x4x2_t(vnegq_f32(floats.0), vnegq_f32(floats.1));
    /// The bits that both have.
    and(a: Bytes, b: Bytes) -> Bytes = pair(vandq_u8(a.0, b.0), vandq_u8(a.1, b.1));
    /// The bits that either has.
    or(a: Bytes, b: Bytes) -> Bytes = pair(vorrq_u8(a.0, b.0), vorrq_u8(a.1, b.1));
    /// Bytes less 128, as signed ones.
    with_signs_turned(bytes: Bytes) -> Bytes =
        pair(veorq_u8(bytes.0, vdupq_n_u8(128)), veorq_u8(bytes.1, vdupq_n_u8(128)));
    /// Both, side by side.
    pair(low: Bytes16, high: Bytes16) -> Bytes = uint8x16x2_t(low, high);
    /// Bytes of a table of 16, by numbers below 16.
    look_up(table: &[u8; 16], codes: Bytes) -> Bytes = {
        let table = load_16(table);
        pair(vqtbl1q_u8(table, codes.0), vqtbl1q_u8(table, codes.1))
    };
    /// The nibbles of bytes in order, low before high.
    nibbles_in_turns(bytes: Bytes16) -> Bytes = {
        let [even, odd] = nibbles_of_16(bytes);
        pair(vzip1q_u8(even, odd), vzip2q_u8(even, odd))
    };
    /// The low nibbles, then the high ones.
    both_nibbles(bytes: Bytes16) -> Bytes = {
        let [low, high] = nibbles_of_16(bytes);
        pair(low, high)
    };
    /// The low nibbles and the high ones.
    nibbles_of_16(bytes: Bytes16) -> [Bytes16; 2] = [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)];
    /// All bits of byte `i` as bit `i`.
    mask_of_bits(bits: u32) -> Bytes = {
        // Copies each bit's byte to its place, then keeps only the bit.
        let (first, bit) = (vcombine_u8(vdup_n_u8(0), vdup_n_u8(1)), vcreate_u8(0x8040_2010_0804_0201));
        let (bits, bit) = (vreinterpretq_u8_u32(vdupq_n_u32(bits)), vcombine_u8(bit, bit));
        let second = vaddq_u8(first, vdupq_n_u8(2));
        pair(vtstq_u8(vqtbl1q_u8(bits, first), bit), vtstq_u8(vqtbl1q_u8(bits, second), bit))
    };
    /// 16 signed bytes as two vectors of floats.
    floats_of_bytes(bytes: Bytes16) -> [Floats; 2] = {
        let bytes = vreinterpretq_s8_u8(bytes);
        [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)].map(|words| {
            float32x4x2_t(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words)))
        })
    };
    /// Two times eight unsigned bytes, the least significant first: the first eight times the low F16 of `two`, others by the high.
    bytes_by_f16s(bytes: [u64; 2], two: u32) -> [Floats; 2] = {
        let both = vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(u64::from(two))));
        let [a, b] = bytes.map(|bytes| {
            let words = vmovl_u8(vcreate_u8(bytes));
            // With additions only, no register would be left for the addend: it would be loaded each time.
            [vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), last_words_to_floats(words)]
        });
        let by_low = |floats: float32x4_t| vmulq_laneq_f32::<0>(floats, both);
        let by_high = |floats: float32x4_t| vmulq_laneq_f32::<1>(floats, both);
        [float32x4x2_t(by_low(a[0]), by_low(a[1])), float32x4x2_t(by_high(b[0]), by_high(b[1]))]
    };
    /// The scales of the first and of the second halves of eight blocks, E4M3 without a sign, times 2^-8; 0x7f is 0.
    scales_of_halves(bytes: Bytes16) -> [Floats; 2] = {
        let ([a, b], [c, d]) = (scales_of_four(vget_low_u8(bytes)), scales_of_four(vget_high_u8(bytes)));
        [float32x4x2_t(a, c), float32x4x2_t(b, d)]
    };
    /// The same of four blocks.
    scales_of_four(bytes: uint8x8_t) -> [float32x4_t; 2] = {
        let numbers = vreinterpret_u16_u8(vbic_u8(bytes, vceq_u8(bytes, vdup_n_u8(0x7f))));
        [vshl_n_u16::<7>(numbers), vshr_n_u16::<1>(numbers)]
            .map(|halves| vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(halves, vdup_n_u16(0x3f80)))))
    };
    /// Bytes 0 to 7 and 16 to 23, then the others.
    in_quarters(bytes: Bytes) -> Bytes = {
        let (low, high) = (vreinterpretq_u64_u8(bytes.0), vreinterpretq_u64_u8(bytes.1));
        pair(vreinterpretq_u8_u64(vzip1q_u64(low, high)), vreinterpretq_u8_u64(vzip2q_u64(low, high)))
    };
    /// `a * b`.
    mul(a: Floats, b: Floats) -> Floats = float32x4x2_t(vmulq_f32(a.0, b.0), vmulq_f32(a.1, b.1));
    /// `a + b`.
    add(a: Floats, b: Floats) -> Floats = float32x4x2_t(vaddq_f32(a.0, b.0), vaddq_f32(a.1, b.1));
    /// Three times each byte, in 8 bits.
    three_times(bytes: Bytes) -> Bytes =
        pair(vaddq_u8(bytes.0, vaddq_u8(bytes.0, bytes.0)), vaddq_u8(bytes.1, vaddq_u8(bytes.1, bytes.1)));
    /// Counts how many of two numbers each byte reaches.
    count_of_both(bytes: Bytes, least: [u8; 2]) -> Bytes = {
        let count = |bytes: Bytes16| {
            let reaches = |least: u8| vcgeq_u8(bytes, vdupq_n_u8(least));
            vsubq_u8(vdupq_n_u8(0), vaddq_u8(reaches(least[0]), reaches(least[1])))
        };
        pair(count(bytes.0), count(bytes.1))
    };
    /// The low half and the high one.
    halves_of(bytes: Bytes) -> [Bytes16; 2] = [bytes.0, bytes.1];
    /// Double word `i` of vector `i`.
    words_in_turns(v: [Bytes16; 4]) -> Bytes16 = {
        let v = v.map(|v| vreinterpretq_u32_u8(v));
        let v = vcopyq_laneq_u32::<3, 3>(vcopyq_laneq_u32::<2, 2>(vcopyq_laneq_u32::<1, 1>(v[0], v[1]), v[2]), v[3]);
        vreinterpretq_u8_u32(v)
    };
    /// `2^(exponent - 128)`; the two least are subnormal.
    halved_powers(exponents: [u8; 8]) -> Floats = {
        let words = vmovl_u8(vcreate_u8(u64::from_le_bytes(exponents)));
        let power = |exponents: uint32x4_t| {
            let normal = vshlq_n_u32::<23>(vsubq_u32(exponents, vdupq_n_u32(1)));
            let least = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(exponents));
            vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(exponents, vdupq_n_u32(2)), least, normal))
        };
        float32x4x2_t(power(vmovl_u16(vget_low_u16(words))), power(vmovl_high_u16(words)))
    };
    /// The bits as floats.
    as_floats(bits: Bytes) -> Floats = float32x4x2_t(vreinterpretq_f32_u8(bits.0), vreinterpretq_f32_u8(bits.1));
    /// Floats as bits.
    as_bytes(floats: Floats) -> Bytes = pair(vreinterpretq_u8_f32(floats.0), vreinterpretq_u8_f32(floats.1));
    /// Transposes 8 rows of 8 double words.
    transpose(rows: [Bytes; 8]) -> [Bytes; 8] = {
        let [a, b, c, d, e, f, g, h] = rows;
        let [low, high] = [transpose_four([a.0, b.0, c.0, d.0]), transpose_four([a.1, b.1, c.1, d.1])];
        let [more_low, more_high] = [transpose_four([e.0, f.0, g.0, h.0]), transpose_four([e.1, f.1, g.1, h.1])];
        let mut out = [all(0); 8];
        let mut i = 0;
        while i < 4 {
            (out[i], out[4 + i]) = (pair(low[i], more_low[i]), pair(high[i], more_high[i]));
            i += 1;
        }
        out
    };
    /// Transposes 4 rows of 4 double words.
    transpose_four(rows: [Bytes16; 4]) -> [Bytes16; 4] = {
        let [a, b] = [vreinterpretq_u32_u8(rows[0]), vreinterpretq_u32_u8(rows[1])];
        let [c, d] = [vreinterpretq_u32_u8(rows[2]), vreinterpretq_u32_u8(rows[3])];
        let (ab, cd) = ([vtrn1q_u32(a, b), vtrn2q_u32(a, b)], [vtrn1q_u32(c, d), vtrn2q_u32(c, d)]);
        let first = |i: usize| vreinterpretq_u8_u64(vtrn1q_u64(vreinterpretq_u64_u32(ab[i]), vreinterpretq_u64_u32(cd[i])));
        let second = |i: usize| vreinterpretq_u8_u64(vtrn2q_u64(vreinterpretq_u64_u32(ab[i]), vreinterpretq_u64_u32(cd[i])));
        [first(0), first(1), second(0), second(1)]
    };
}

/// 32 bytes of numbers.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_numbers<T: Pod, const N: usize>(numbers: &[T; N]) -> Bytes {
    const { assert!(size_of::<[T; N]>() == 32) };
    let at = numbers.as_ptr().cast::<u8>();
    // SAFETY: the array is 32 bytes; the loads need no alignment.
    unsafe { pair(vld1q_u8(at), vld1q_u8(at.add(16))) }
}

/// Bytes shifted to less significant bits; bits that come from the next byte must be masked.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn right<const BITS: i32>(bytes: Bytes) -> Bytes {
    pair(vshrq_n_u8::<BITS>(bytes.0), vshrq_n_u8::<BITS>(bytes.1))
}

/// Bytes shifted to more significant bits; bits that come from the byte before must be masked.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn left<const BITS: i32>(bytes: Bytes) -> Bytes {
    pair(vshlq_n_u8::<BITS>(bytes.0), vshlq_n_u8::<BITS>(bytes.1))
}

/// The F16 at byte `at` of each of eight blocks, widened.
#[inline(always)]
pub(crate) fn halves_at<const BYTES: usize>(blocks: &[[u8; BYTES]], at: usize) -> Floats {
    float32x4x2_t(four_halves_at::<0, BYTES>(blocks, at), four_halves_at::<4, BYTES>(blocks, at))
}

/// The F16 at byte `at` of each of four blocks, widened.
#[inline(always)]
fn four_halves_at<const FIRST: usize, const BYTES: usize>(blocks: &[[u8; BYTES]], at: usize) -> float32x4_t {
    let words = four_words(|i| blocks[FIRST + i][at..].first_chunk().copied().unwrap_or_default());
    // SAFETY: every aarch64 has NEON.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vcreate_u16(words as u64))) }
}
