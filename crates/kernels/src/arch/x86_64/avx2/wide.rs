//! Vectors in one register of AVX2.

use crate::arch::generic::prefetch::four_words;
use crate::arch::generic::wide::operations;
use bytemuck::Pod;
use std::arch::x86_64::*;

/// 32 bytes.
pub(crate) type Bytes = __m256i;
/// 16 bytes.
pub(crate) type Bytes16 = __m128i;
/// 8 floats.
pub(crate) type Floats = __m256;

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
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    };
    /// 8 bytes, with any after them.
    load_8(bytes: &[u8; 8]) -> Bytes16 = _mm_cvtsi64_si128(i64::from_le_bytes(*bytes));
    /// Bytes of each 16, by their places in these; 0 for places of 128 and more.
    shuffled(bytes: Bytes, places: &[u8; 32]) -> Bytes = _mm256_shuffle_epi8(bytes, load(places));
    /// Each two bytes by a factor, the low 16 bits.
    mul_words(words: Bytes, factors: &[u16; 16]) -> Bytes = _mm256_mullo_epi16(words, load_numbers(factors));
    /// The high byte of each two, in their low one.
    high_bytes(words: Bytes) -> Bytes = _mm256_srli_epi16::<8>(words);
    /// 8 floats.
    load_floats(floats: &[f32; 8]) -> Floats = as_floats(load_numbers(floats));
    /// 8 BF16, widened.
    widened_bf16(halves: &[u8; 16]) -> Floats =
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_16(halves))));
    /// 8 F16, widened.
    widened_f16(halves: &[u8; 16]) -> Floats = _mm256_cvtph_ps(load_16(halves));
    /// Float `skipped + (i >> shift)` in lane `i`; any float where there is none.
    repeated(floats: Floats, shift: u32, skipped: u32) -> Floats = {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let numbers = _mm256_srl_epi32(lanes, _mm_cvtsi32_si128(shift as i32));
        _mm256_permutevar8x32_ps(floats, _mm256_add_epi32(numbers, _mm256_set1_epi32(skipped as i32)))
    };
    /// The value `byte` in all bytes.
    all(byte: u8) -> Bytes = _mm256_set1_epi8(byte as i8);
    /// The value `byte` in all bytes.
    all_16(byte: u8) -> Bytes16 = _mm_set1_epi8(byte as i8);
    /// `x` in all lanes.
    all_floats(x: f32) -> Floats = _mm256_set1_ps(x);
    /// The F16 of two bytes in all lanes, widened.
    all_f16(bytes: [u8; 2]) -> Floats =
        _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(bytes)))));
    /// The negative of each.
    negated(floats: Floats) -> Floats = _mm256_xor_ps(floats, _mm256_set1_ps(-0.0));
    /// The bits that both have.
    and(a: Bytes, b: Bytes) -> Bytes = _mm256_and_si256(a, b);
    /// The bits that either has.
    or(a: Bytes, b: Bytes) -> Bytes = _mm256_or_si256(a, b);
    /// Bytes less 128, as signed ones.
    with_signs_turned(bytes: Bytes) -> Bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
    /// Both, side by side.
    pair(low: Bytes16, high: Bytes16) -> Bytes = _mm256_set_m128i(high, low);
    /// Bytes of a table of 16, by numbers below 16.
    look_up(table: &[u8; 16], codes: Bytes) -> Bytes =
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(table)), codes);
    /// The nibbles of bytes in order, low before high.
    nibbles_in_turns(bytes: Bytes16) -> Bytes = {
        let [even, odd] = nibbles_of_16(bytes);
        _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd))
    };
    /// The low nibbles, then the high ones.
    both_nibbles(bytes: Bytes16) -> Bytes = {
        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    };
    /// The low nibbles and the high ones.
    nibbles_of_16(bytes: Bytes16) -> [Bytes16; 2] = {
        let low = _mm_set1_epi8(15);
        [_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16::<4>(bytes), low)]
    };
    /// All bits of byte `i` as bit `i`.
    mask_of_bits(bits: u32) -> Bytes = {
        // Copies each bit's byte to its place, then keeps only the bit.
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let bits = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), places);
        _mm256_cmpeq_epi8(_mm256_and_si256(bits, bit), bit)
    };
    /// 16 signed bytes as two vectors of floats.
    floats_of_bytes(bytes: Bytes16) -> [Floats; 2] =
        [bytes, _mm_srli_si128::<8>(bytes)].map(|bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    /// The scales of the first and of the second halves of eight blocks, E4M3 without a sign, times 2^-8; 0x7f is 0.
    scales_of_halves(bytes: Bytes16) -> [Floats; 2] = {
        let numbers = _mm_andnot_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)), bytes);
        [_mm_slli_epi16::<7>(numbers), _mm_srli_epi16::<1>(numbers)]
            .map(|halves| _mm256_cvtph_ps(_mm_and_si128(halves, _mm_set1_epi16(0x3f80))))
    };
    /// Bytes 0 to 7 and 16 to 23, then the others.
    in_quarters(bytes: Bytes) -> Bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
    /// `a * b`.
    mul(a: Floats, b: Floats) -> Floats = _mm256_mul_ps(a, b);
    /// `a + b`.
    add(a: Floats, b: Floats) -> Floats = _mm256_add_ps(a, b);
    /// Three times each byte, in 8 bits.
    three_times(bytes: Bytes) -> Bytes = _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
    /// Counts how many of two numbers each byte reaches.
    count_of_both(bytes: Bytes, least: [u8; 2]) -> Bytes = {
        let reaches = |least: u8| {
            let least = _mm256_set1_epi8(least as i8);
            _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, least), bytes)
        };
        _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(reaches(least[0]), reaches(least[1])))
    };
    /// The low half and the high one.
    halves_of(bytes: Bytes) -> [Bytes16; 2] = [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)];
    /// Double word `i` of vector `i`.
    words_in_turns(v: [Bytes16; 4]) -> Bytes16 =
        _mm_blend_epi32::<0b1100>(_mm_blend_epi32::<0b0010>(v[0], v[1]), _mm_blend_epi32::<0b1000>(v[2], v[3]));
    /// `2^(exponent - 128)`; the two least are subnormal.
    halved_powers(exponents: [u8; 8]) -> Floats = {
        let exponents = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(exponents)));
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)));
        let least = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), exponents);
        let is_least = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents);
        _mm256_castsi256_ps(_mm256_blendv_epi8(normal, least, is_least))
    };
    /// The bits as floats.
    as_floats(bits: Bytes) -> Floats = _mm256_castsi256_ps(bits);
    /// Floats as bits.
    as_bytes(floats: Floats) -> Bytes = _mm256_castps_si256(floats);
}

/// Bytes shifted to less significant bits; bits that come from the next byte must be masked.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn right<const BITS: i32>(bytes: Bytes) -> Bytes {
    _mm256_srli_epi16::<BITS>(bytes)
}

/// Bytes shifted to more significant bits; bits that come from the byte before must be masked.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn left<const BITS: i32>(bytes: Bytes) -> Bytes {
    _mm256_slli_epi16::<BITS>(bytes)
}

/// The F16 at byte `at` of each of eight blocks, widened.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn halves_at<const BYTES: usize>(blocks: &[[u8; BYTES]], at: usize) -> Floats {
    let four = |first: usize| four_words(|b| [blocks[first + b][at], blocks[first + b][at + 1]]);
    _mm256_cvtph_ps(_mm_set_epi64x(four(4), four(0)))
}

/// 32 bytes of numbers.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_numbers<T: Pod, const N: usize>(numbers: &[T; N]) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 32) };
    // SAFETY: the array is 32 bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) }
}

/// Transposes 8 rows of 8 double words.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let zero = _mm256_setzero_si256();
    let (mut a, mut b, mut out) = ([zero; 8], [zero; 8], [zero; 8]);
    for i in 0..4 {
        a[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // b[4 * i + j]: columns j and j + 4 of rows 4 * i ..
    for i in 0..2 {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for j in 0..4 {
        out[j] = _mm256_permute2x128_si256::<0x20>(b[j], b[4 + j]);
        out[j + 4] = _mm256_permute2x128_si256::<0x31>(b[j], b[4 + j]);
    }
    out
}
