//! I8 in vectors of 32 bytes: AVX2 and AVX-VNNI.

use super::{load, load_numbers};
use crate::Call;
use crate::arch::generic::prefetch::{NEAR, prefetch_near, streams};
use crate::dtypes::i8::{sum_of, without_zero};
use std::arch::x86_64::*;

/// Defines a matrix product in vectors of 32 bytes, several rows and tokens at once. `$product` adds the products of
/// 32 weights, to each of which `$flip` was added as an unsigned byte, and 32 activations, both as `$operand` makes them.
macro_rules! kernel {
    ($name:ident, $features:literal, $flip:literal, $operand:ident, $product:ident) => {
        #[target_feature(enable = $features)]
        pub(crate) fn $name(call: &mut Call<'_>) {
            let input = call.input;
            #[inline]
            #[target_feature(enable = $features)]
            fn tile<const R: usize, const T: usize>(call: &mut Call<'_>, rows: [usize; R], token: usize) {
                let (weight, input) = (call.weight, call.input);
                let inputs = input.inputs();
                let flip = _mm256_set1_epi8(-$flip);
                let w = rows.map(|row| &weight[row * inputs..][..inputs]);
                let x: [_; T] = std::array::from_fn(|t| input.int8(token + t));
                let x_bytes: [&[[i8; 32]]; T] = std::array::from_fn(|t| x[t].padded.as_flattened().as_chunks().0);
                let (steps, rest) = (inputs / 32, inputs % 32);
                // The padding is zero after the flip: activations there are unspecified.
                let mut padded = [[$flip as u8; 32]; R];
                padded.iter_mut().zip(w).for_each(|(to, w)| to[..rest].copy_from_slice(&w[inputs - rest..]));
                let mut sums = [[_mm256_setzero_si256(); T]; R];
                for i in 0..steps + usize::from(rest > 0) {
                    let mut operands = [$operand(_mm256_setzero_si256()); R];
                    for r in 0..R {
                        let bytes = match i < steps {
                            // SAFETY: the row has `steps` times 32 bytes.
                            true => unsafe { &*w[r].as_ptr().add(32 * i).cast() },
                            false => &padded[r],
                        };
                        if T == 1 && i % 2 == 0 {
                            prefetch_near(bytes.as_ptr().wrapping_add(NEAR), 64);
                        }
                        operands[r] = $operand(_mm256_xor_si256(load(bytes), flip));
                    }
                    for t in 0..T {
                        let x = $operand(load_numbers(&x_bytes[t][i]));
                        for r in 0..R {
                            sums[r][t] = $product(sums[r][t], operands[r], x);
                        }
                    }
                }
                for r in 0..R {
                    let sum = if x.iter().any(|x| x.zero != 0) { sum_of(w[r]) } else { 0 };
                    for t in 0..T {
                        let product = add_lanes(sums[r][t]).wrapping_sub($flip * x[t].sum);
                        call.part(token + t, rows[r], 1)[0] = without_zero(product, x[t].zero, sum) as f32 * x[t].scale;
                    }
                }
            }

            for token in (0..input.tokens()).step_by(4) {
                match input.tokens() - token {
                    1 => streams(call.rows()).for_each(|rows| tile::<4, 1>(call, rows, token)),
                    2 => streams(call.rows()).for_each(|rows| tile::<2, 2>(call, rows, token)),
                    3 => streams(call.rows()).for_each(|rows| tile::<2, 3>(call, rows, token)),
                    _ => streams(call.rows()).for_each(|rows| tile::<2, 4>(call, rows, token)),
                }
            }
        }
    };
}

kernel!(avx2, "avx2,fma,f16c", 0, words, madd);
kernel!(avx_vnni, "avx2,fma,f16c,avxvnni", 128, bytes, dpbusd_avx);
// The same kernel by the instruction of AVX-512, for a test: machines that have it may lack the other.
#[cfg(test)]
kernel!(avx_vnni_by_avx512, "avx2,fma,f16c,avx512vl,avx512vnni", 128, bytes, dpbusd);

/// The bytes as words, whose products and sums of pairs are exact.
#[inline]
#[target_feature(enable = "avx2")]
fn words(v: __m256i) -> [__m256i; 2] {
    let halves = [_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)];
    [_mm256_cvtepi8_epi16(halves[0]), _mm256_cvtepi8_epi16(halves[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn madd(sum: __m256i, w: [__m256i; 2], x: [__m256i; 2]) -> __m256i {
    let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w[0], x[0]));
    _mm256_add_epi32(sum, _mm256_madd_epi16(w[1], x[1]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes(v: __m256i) -> __m256i {
    v
}

#[inline]
#[target_feature(enable = "avxvnni")]
fn dpbusd_avx(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sum, w, x)
}

#[cfg(test)]
#[inline]
#[target_feature(enable = "avx512vl,avx512vnni")]
fn dpbusd(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_epi32(sum, w, x)
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_lanes(v: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b00_00_00_01>(two)))
}
