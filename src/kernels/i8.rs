//! I8: signed bytes, of which a layer's scales make weights; the product is `scale of x * sum of (x - zero) * w`.
//!
//! Sums are exact in 32 bits, so every instruction set gives the same bits: a weight of -128 times an activation less
//! its zero point is at most `128 * 255`, which 65793 inputs fit into. The caller multiplies by the weight's scales.

#![allow(unsafe_code)]

use super::input::Int8Row;
use super::int8::Int8Rule;
use super::isa::{Isa, Sets, compiled_for};
use super::vector::Floats;
use super::{Entry, Form, Input, Output};
use model_diagnostics::{DType, capability::Tier};

const FORM: Form = Form::Int8(Int8Rule::Token { symmetric: true });

pub(super) const KERNELS: &[Entry] = &[
    #[cfg(target_arch = "x86_64")]
    Entry {
        name: "i8/avx512-vnni",
        dtype: DType::I8,
        tier: Tier::Native,
        form: FORM,
        sets: Sets::AVX512.and(Sets::VNNI),
        matmul: avx512_vnni::matmul,
        widen,
    },
    #[cfg(target_arch = "x86_64")]
    Entry {
        name: "i8/avx-vnni",
        dtype: DType::I8,
        tier: Tier::Native,
        form: FORM,
        sets: Sets::AVX2.and(Sets::AVX_VNNI),
        matmul: narrow::avx_vnni,
        widen,
    },
    #[cfg(target_arch = "x86_64")]
    Entry {
        name: "i8/avx2",
        dtype: DType::I8,
        tier: Tier::Native,
        form: FORM,
        sets: Sets::AVX2,
        matmul: narrow::avx2,
        widen,
    },
    Entry {
        name: "i8/portable",
        dtype: DType::I8,
        tier: Tier::Native,
        form: FORM,
        sets: Sets::PORTABLE,
        matmul: portable,
        widen,
    },
];

fn widen(row: &[u8], out: &mut [f32]) {
    out.iter_mut().zip(row).for_each(|(out, &q)| *out = f32::from(q as i8));
}

/// `sum of (x - zero) * w` from the sums with and of `w`.
#[inline(always)]
fn without_zero(product: i32, zero: i32, sum_of_weights: i32) -> i32 {
    product.wrapping_sub(zero.wrapping_mul(sum_of_weights))
}

#[inline(always)]
fn dot(w: &[u8], x: &[i8]) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w as i8) * i32::from(x)).sum()
}

#[inline(always)]
fn sum_of(w: &[u8]) -> i32 {
    w.iter().map(|&w| i32::from(w as i8)).sum()
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    for (row, weight) in weight.chunks_exact(input.inputs()).enumerate() {
        let sum = sum_of(weight);
        for token in 0..input.tokens() {
            let Int8Row { bytes, scale, zero, .. } = input.int8(token);
            output.part(token, row, 1)[0] = without_zero(dot(weight, bytes), zero, sum) as f32 * scale;
        }
    }
}

/// As a kernel's product, with a weight scale for each `group` inputs:
/// `y[token][row] = scale of x * sum over groups of scale of the group * sum of (x - zero) * w`. `scales` has those of all
/// rows in order. Panics when lengths do not match.
pub fn int8_groups(isa: Isa, weight: &[u8], scales: Floats<'_>, group: usize, input: &Input, y: &mut [f32]) {
    let inputs = input.inputs();
    assert!(group > 0 && inputs.is_multiple_of(group), "groups of {group} in {inputs} inputs");
    assert!(weight.len().is_multiple_of(inputs), "{} bytes are no rows of {inputs}", weight.len());
    let rows = weight.len() / inputs;
    assert_eq!(scales.len() * group, weight.len(), "scales of {rows} rows");
    let mut wide = vec![0.0; scales.len()];
    super::vector::add_floats(isa, &mut wide, scales);
    let mut output = Output::new(y, input.tokens(), rows);
    groups(isa, weight, &wide, group, input, &mut output);
}

fn groups(isa: Isa, weight: &[u8], scales: &[f32], group: usize, input: &Input, output: &mut Output<'_>) {
    compiled_for!(isa, groups_body, (
        weight: &[u8], scales: &[f32], group: usize, input: &Input, output: &mut Output<'_>
    ));
}

#[inline(always)]
fn groups_body(weight: &[u8], scales: &[f32], group: usize, input: &Input, output: &mut Output<'_>) {
    let each = input.inputs() / group;
    for (row, (weight, scales)) in weight.chunks_exact(input.inputs()).zip(scales.chunks_exact(each)).enumerate() {
        for token in 0..input.tokens() {
            let x = input.int8(token);
            let mut sum = 0.0;
            for ((w, x_group), scale) in weight.chunks_exact(group).zip(x.bytes.chunks_exact(group)).zip(scales) {
                let product = if x.zero == 0 { dot(w, x_group) } else { dot_less(w, x_group, x.zero) };
                sum += product as f32 * scale;
            }
            output.part(token, row, 1)[0] = sum * x.scale;
        }
    }
}

#[inline(always)]
fn dot_less(w: &[u8], x: &[i8], zero: i32) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w as i8) * (i32::from(x) - zero)).sum()
}

#[cfg(target_arch = "x86_64")]
mod narrow {
    use super::{sum_of, without_zero};
    use crate::kernels::avx2::load;
    use crate::kernels::x86::{AHEAD, prefetch, streams};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    /// Defines a matrix product in vectors of 32 bytes, several rows and tokens at once. `$product` adds the products of
    /// 32 weights, of which `$flip` was added to each as an unsigned byte, and 32 activations.
    macro_rules! kernel {
        ($name:ident, $features:literal, $flip:literal, $product:ident) => {
            #[target_feature(enable = $features)]
            pub(in super::super) fn $name(weight: &[u8], input: &Input, output: &mut Output<'_>) {
                #[inline]
                #[target_feature(enable = $features)]
                fn tile<const R: usize, const T: usize>(
                    weight: &[u8],
                    rows: [usize; R],
                    input: &Input,
                    token: usize,
                    output: &mut Output<'_>,
                ) {
                    let inputs = input.inputs();
                    let flip = _mm256_set1_epi8(-$flip);
                    let w = rows.map(|row| &weight[row * inputs..][..inputs]);
                    let x: [_; T] = std::array::from_fn(|t| input.int8(token + t));
                    let x_bytes: [&[[i8; 32]]; T] = std::array::from_fn(|t| x[t].padded.as_flattened().as_chunks().0);
                    let (steps, rest) = (inputs / 32, inputs % 32);
                    let mut padded = [[0; 32]; R];
                    padded.iter_mut().zip(w).for_each(|(to, w)| to[..rest].copy_from_slice(&w[inputs - rest..]));
                    let mut sums = [[_mm256_setzero_si256(); T]; R];
                    for i in 0..steps + usize::from(rest > 0) {
                        let mut w_bytes = [_mm256_setzero_si256(); R];
                        for r in 0..R {
                            let bytes = match i < steps {
                                // SAFETY: the row has `steps` times 32 bytes.
                                true => unsafe { &*w[r].as_ptr().add(32 * i).cast() },
                                false => &padded[r],
                            };
                            if T == 1 && i % 2 == 0 {
                                prefetch::<64>(bytes.as_ptr().wrapping_add(AHEAD));
                            }
                            w_bytes[r] = _mm256_xor_si256(load(bytes), flip);
                        }
                        for t in 0..T {
                            let x = load_signed(&x_bytes[t][i]);
                            for r in 0..R {
                                sums[r][t] = $product(sums[r][t], w_bytes[r], x);
                            }
                        }
                    }
                    for r in 0..R {
                        let sum = if x.iter().any(|x| x.zero != 0) { sum_of(w[r]) } else { 0 };
                        for t in 0..T {
                            let product = add_lanes(sums[r][t]).wrapping_sub($flip * x[t].sum);
                            output.part(token + t, rows[r], 1)[0] =
                                without_zero(product, x[t].zero, sum) as f32 * x[t].scale;
                        }
                    }
                }

                for token in (0..input.tokens()).step_by(4) {
                    match input.tokens() - token {
                        1 => streams(output.rows()).for_each(|rows| tile::<4, 1>(weight, rows, input, token, output)),
                        2 => streams(output.rows()).for_each(|rows| tile::<2, 2>(weight, rows, input, token, output)),
                        3 => streams(output.rows()).for_each(|rows| tile::<2, 3>(weight, rows, input, token, output)),
                        _ => streams(output.rows()).for_each(|rows| tile::<2, 4>(weight, rows, input, token, output)),
                    }
                }
            }
        };
    }

    kernel!(avx2, "avx2,fma,f16c", 0, words);
    kernel!(avx_vnni, "avx2,fma,f16c,avxvnni", 128, dpbusd_avx);
    // The same by the instruction of AVX-512, for a test: machines that have it need not have the other.
    #[cfg(test)]
    kernel!(avx_vnni_by_avx512, "avx2,fma,f16c,avx512vl,avx512vnni", 128, dpbusd);

    /// Bytes are widened to words, whose products and the sums of pairs are exact.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        let low = |v| _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v));
        let high = |v| _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(v));
        let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low(w), low(x)));
        _mm256_add_epi32(sum, _mm256_madd_epi16(high(w), high(x)))
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
    fn load_signed(bytes: &[i8; 32]) -> __m256i {
        // SAFETY: the array is 32 bytes; the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_lanes(v: __m256i) -> i32 {
        let four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b00_00_00_01>(two)))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    use super::without_zero;
    use crate::kernels::avx512::{load, store, store_floats, transpose};
    use crate::kernels::input::Int8Row;
    use crate::kernels::order::{FEW, GROUP};
    use crate::kernels::x86::{AHEAD, prefetch, room, streams, with_scratch};
    use crate::kernels::{Input, Output};
    use std::arch::x86_64::*;

    /// Rows of a panel.
    const ROWS: usize = 16;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        if input.tokens() <= FEW {
            for token in 0..input.tokens() {
                one_token(weight, input, token, output);
            }
        } else {
            many_tokens(weight, input, output);
        }
    }

    /// The bytes from `64 * i` on with an offset of 128, as the unsigned factor of `vpdpbusd`; 0 past the end of the row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn flipped(row: &[u8], i: usize) -> __m512i {
        let flip = _mm512_set1_epi8(-128);
        let rest = &row[64 * i..];
        match rest.first_chunk() {
            Some(bytes) => _mm512_xor_si512(load(bytes), flip),
            None => {
                let mask = (1u64 << rest.len()) - 1;
                // SAFETY: what the mask leaves out is not read.
                let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) };
                _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(bytes, flip))
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn one_token(weight: &[u8], input: &Input, token: usize, output: &mut Output<'_>) {
        let inputs = input.inputs();
        let x = input.int8(token);
        let (rows, ones) = (output.rows(), _mm512_set1_epi8(1));
        let y = output.part(token, 0, rows);
        for indices in streams::<4>(rows) {
            let rows = indices.map(|row| &weight[row * inputs..][..inputs]);
            let (mut products, mut sums) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
            for (i, x_bytes) in x.padded.iter().enumerate() {
                let x_bytes = load_signed(x_bytes);
                for r in 0..4 {
                    prefetch::<64>(rows[r].as_ptr().wrapping_add(64 * i + AHEAD));
                    let w = flipped(rows[r], i);
                    products[r] = _mm512_dpbusd_epi32(products[r], w, x_bytes);
                    if x.zero != 0 {
                        sums[r] = _mm512_dpbusd_epi32(sums[r], w, ones);
                    }
                }
            }
            for (r, row) in indices.into_iter().enumerate() {
                let product = _mm512_reduce_add_epi32(products[r]).wrapping_sub(128 * x.sum);
                let sum = _mm512_reduce_add_epi32(sums[r]) - 128 * inputs as i32;
                y[row] = without_zero(product, x.zero, sum) as f32 * x.scale;
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_signed(bytes: &[i8; 64]) -> __m512i {
        // SAFETY: the array is 64 bytes; the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// Rows are brought into panels of 16, in which one vector has four consecutive elements of each row; a `vpdpbusd`
    /// with four activations of a token, repeated in all lanes, advances 16 outputs. Two panels share the activations.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn many_tokens(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        let inputs = input.inputs();
        let each = inputs.div_ceil(64) * 16;
        let panels = output.rows().div_ceil(ROWS).next_multiple_of(2);
        with_scratch(|scratch| {
            let bytes = room(&mut scratch.bytes, panels * each * 64).as_chunks_mut::<64>().0;
            let sums = room(&mut scratch.ints, panels * ROWS);
            let rows_of = |i: usize| weight.get(i * ROWS * inputs..).unwrap_or_default();
            for (i, (panel, sums)) in bytes.chunks_exact_mut(each).zip(sums.as_chunks_mut::<ROWS>().0).enumerate() {
                unpack(rows_of(i), inputs, panel, sums);
            }
            for token in (0..input.tokens()).step_by(GROUP) {
                let pairs = bytes.chunks_exact(2 * each).zip(sums.as_chunks::<{ 2 * ROWS }>().0);
                for (i, (pair, sums)) in pairs.enumerate() {
                    let pair = Pair { bytes: pair, sums, first_row: i * 2 * ROWS };
                    match input.tokens() - token {
                        1 => pair.multiply::<1>(input, token, output),
                        2 => pair.multiply::<2>(input, token, output),
                        3 => pair.multiply::<3>(input, token, output),
                        4 => pair.multiply::<4>(input, token, output),
                        5 => pair.multiply::<5>(input, token, output),
                        6 => pair.multiply::<6>(input, token, output),
                        7 => pair.multiply::<7>(input, token, output),
                        _ => pair.multiply::<GROUP>(input, token, output),
                    }
                }
            }
        });
    }

    /// Fills a panel with up to 16 rows, and their sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack(rows: &[u8], inputs: usize, panel: &mut [[u8; 64]], sums: &mut [i32; ROWS]) {
        let ones = _mm512_set1_epi8(1);
        let mut total = _mm512_set1_epi32(-128 * inputs as i32);
        for (i, columns) in panel.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
            let mut bytes = [_mm512_setzero_si512(); ROWS];
            for (bytes, row) in bytes.iter_mut().zip(rows.chunks_exact(inputs)) {
                *bytes = flipped(row, i);
            }
            for (column, bytes) in columns.iter_mut().zip(transpose(bytes)) {
                total = _mm512_dpbusd_epi32(total, bytes, ones);
                store(column, bytes);
            }
        }
        // SAFETY: the array is 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), total) };
    }

    /// Two panels, one after the other.
    struct Pair<'a> {
        bytes: &'a [[u8; 64]],
        sums: &'a [i32; 2 * ROWS],
        first_row: usize,
    }

    impl Pair<'_> {
        /// Both panels times the `T` tokens from `token` on.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        fn multiply<const T: usize>(&self, input: &Input, token: usize, output: &mut Output<'_>) {
            let x: [Int8Row<'_>; T] = std::array::from_fn(|t| input.int8(token + t));
            let columns: [&[[i8; 4]]; T] = std::array::from_fn(|t| x[t].padded.as_flattened().as_chunks().0);
            let (first, second) = self.bytes.split_at(self.bytes.len() / 2);
            assert!(columns.iter().all(|columns| columns.len() == first.len()) && second.len() == first.len());
            let start = |t: usize| _mm512_set1_epi32((-128i32).wrapping_mul(x[t].sum));
            let mut low: [__m512i; T] = std::array::from_fn(start);
            let mut high = low;
            for (i, (first, second)) in first.iter().zip(second).enumerate() {
                let (first, second) = (load(first), load(second));
                for t in 0..T {
                    // SAFETY: all have one length, as asserted.
                    let four = unsafe { columns[t].get_unchecked(i) };
                    let four = _mm512_set1_epi32(i32::from_le_bytes(four.map(|x| x as u8)));
                    low[t] = _mm512_dpbusd_epi32(low[t], first, four);
                    high[t] = _mm512_dpbusd_epi32(high[t], second, four);
                }
            }
            for t in 0..T {
                for (half, products) in [low[t], high[t]].into_iter().enumerate() {
                    let row = self.first_row + half * ROWS;
                    let rows = ROWS.min(output.rows().saturating_sub(row));
                    if rows == 0 {
                        continue;
                    }
                    // SAFETY: half of the sums are 64 bytes; the load needs no alignment.
                    let sums = unsafe { _mm512_loadu_si512(self.sums[half * ROWS..].as_ptr().cast()) };
                    let zero = _mm512_mullo_epi32(sums, _mm512_set1_epi32(x[t].zero));
                    let products = _mm512_cvtepi32_ps(_mm512_sub_epi32(products, zero));
                    let mut y = [0.0; ROWS];
                    store_floats(&mut y, _mm512_mul_ps(products, _mm512_set1_ps(x[t].scale)));
                    output.part(token + t, row, rows).copy_from_slice(&y[..rows]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Kernel;
    use crate::kernels::testing::{Random, each_isa};

    const RULES: [Int8Rule; 4] = [
        Int8Rule::Token { symmetric: true },
        Int8Rule::Token { symmetric: false },
        Int8Rule::Tensor { symmetric: false },
        Int8Rule::Static { scale_bits: 0x3c00_0000, zero: -77 },
    ];

    /// Weights with -128 and 127 among them.
    fn weights(random: &mut Random, len: usize) -> Vec<u8> {
        random.bytes(len).iter().enumerate().map(|(i, &b)| [0x80, 0x7f, b, b, b][i % 5]).collect()
    }

    /// Activations whose integers reach both ends.
    fn activations(random: &mut Random, len: usize) -> Vec<f32> {
        random.floats(len).iter().enumerate().map(|(i, &x)| [-2.0, 2.0, x, x * 0.1, x][i % 5]).collect()
    }

    /// The exact sums, in 64 bits.
    fn exact(weight: &[u8], input: &Input) -> Vec<i64> {
        let inputs = input.inputs();
        let sum = |x: Int8Row<'_>, w: &[u8]| {
            let products =
                w.iter().zip(x.bytes).map(|(&w, &q)| i64::from(w as i8) * (i64::from(q) - i64::from(x.zero)));
            products.sum::<i64>()
        };
        let rows = |token| weight.chunks_exact(inputs).map(move |w| sum(input.int8(token), w));
        (0..input.tokens()).flat_map(rows).collect()
    }

    #[test]
    fn sums_are_exact_on_every_instruction_set() {
        let mut random = Random::new(41);
        let mut compared = 0;
        for inputs in [1, 3, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 200, 576, 5632] {
            for rows in [1, 4, 15, 16, 17, 31, 32, 33, 50] {
                let weight = weights(&mut random, rows * inputs);
                for tokens in [1, 2, 3, 8, 9, 21] {
                    let x = activations(&mut random, tokens * inputs);
                    let rule = RULES[compared % RULES.len()];
                    for isa in each_isa() {
                        let kernel = Kernel::select(DType::I8, isa).unwrap();
                        let input = Input::prepare(isa, Form::Int8(rule), &x, inputs);
                        let mut y = vec![f32::NAN; rows * tokens];
                        kernel.matmul(&weight, &input, &mut y);
                        for (i, (&y, sum)) in y.iter().zip(exact(&weight, &input)).enumerate() {
                            let scale = input.int8(i / rows).scale;
                            let sum = i32::try_from(sum).unwrap();
                            assert_eq!(y, sum as f32 * scale, "{} {rule:?} {tokens} x {rows} x {inputs}", kernel.name);
                        }
                    }
                    compared += 1;
                }
            }
        }
    }

    /// The body of the AVX-VNNI kernel, which this machine may lack, by the instruction of AVX-512.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn sums_of_narrow_vectors_are_exact() {
        if !Isa::detect().has(Sets::AVX512.and(Sets::VNNI)) {
            println!("skipped: this machine has no AVX-512 VNNI");
            return;
        }
        let mut random = Random::new(43);
        for inputs in [1, 31, 32, 33, 64, 95, 200, 576, 5632] {
            for (rows, tokens) in [(1, 1), (2, 2), (3, 3), (5, 4), (7, 9), (16, 1)] {
                let (weight, x) = (weights(&mut random, rows * inputs), activations(&mut random, tokens * inputs));
                for rule in RULES {
                    let input = Input::prepare(Isa::portable(), Form::Int8(rule), &x, inputs);
                    let (mut y, mut expected) = (vec![f32::NAN; rows * tokens], vec![f32::NAN; rows * tokens]);
                    // SAFETY: the machine has the instructions.
                    unsafe { narrow::avx_vnni_by_avx512(&weight, &input, &mut Output::new(&mut y, tokens, rows)) };
                    portable(&weight, &input, &mut Output::new(&mut expected, tokens, rows));
                    assert_eq!(y, expected, "{rule:?} {tokens} x {rows} x {inputs}");
                }
            }
        }
    }

    /// What numpy makes of the same rule, in `fixtures/int8/linear.safetensors`: one layer for each scheme.
    #[test]
    fn a_layer_is_what_the_rule_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/int8/linear.safetensors");
        let file = std::fs::read(path).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
        let names: Vec<&str> = tensors.names().into_iter().filter_map(|name| name.strip_suffix("/y")).collect();
        assert!(names.len() >= 9, "only {} layers", names.len());
        for name in names {
            let bytes = |part: &str| tensors.tensor(&format!("{name}/{part}")).unwrap().data().to_vec();
            let floats = |part: &str| -> Vec<f32> {
                bytes(part).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            };
            let (x, weight, scale, zero) = (floats("x"), bytes("weight"), floats("scale"), bytes("zero"));
            let y: Vec<f64> = bytes("y").as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
            let (tokens, rows) = (5, y.len() / 5);
            let inputs = x.len() / tokens;
            let symmetric = !name.ends_with("asymmetric");
            let rule = match name {
                name if name.contains("static") => {
                    Int8Rule::Static { scale_bits: scale[0].to_bits(), zero: zero[0] as i8 }
                }
                "llama-dynamic-tensor" => Int8Rule::Tensor { symmetric },
                _ => Int8Rule::Token { symmetric },
            };
            let stored = bytes("weight_scale");
            let scales = Floats::new(DType::F32, &stored).unwrap();
            for isa in each_isa() {
                let input = Input::prepare(isa, Form::Int8(rule), &x, inputs);
                for token in 0..tokens {
                    let row = input.int8(token);
                    let expected: Vec<i8> = bytes("q")[token * inputs..][..inputs].iter().map(|&q| q as i8).collect();
                    assert_eq!(row.bytes, expected, "{isa} {name} token {token}");
                    let of = token % scale.len();
                    assert_eq!(
                        (row.scale.to_bits(), row.zero),
                        (scale[of].to_bits(), i32::from(zero[of] as i8)),
                        "{name}"
                    );
                }
                let mut out = vec![0.0; tokens * rows];
                if scales.len() > rows {
                    int8_groups(isa, &weight, scales, weight.len() / scales.len(), &input, &mut out);
                } else {
                    Kernel::select(DType::I8, isa).unwrap().matmul(&weight, &input, &mut out);
                    out.chunks_exact_mut(rows).for_each(|y| crate::kernels::scale_floats(isa, y, scales));
                }
                let square = |x: f64| x * x;
                let apart: f64 = out.iter().zip(&y).map(|(&out, &y)| square(f64::from(out) - y)).sum();
                let norm: f64 = y.iter().map(|&y| square(y)).sum();
                assert!((apart / norm).sqrt() < 1e-6, "{isa} {name}: {}", (apart / norm).sqrt());
            }
        }
    }

    #[test]
    fn groups_are_summed_by_their_scales_alike_everywhere() {
        let mut random = Random::new(42);
        for (inputs, group) in [(128, 32), (192, 64), (256, 128), (60, 20)] {
            let (rows, tokens) = (7, 3);
            let weight = weights(&mut random, rows * inputs);
            let scales = random.floats(rows * inputs / group);
            let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            let floats = Floats::new(DType::F32, &bytes).unwrap();
            for rule in RULES {
                let x = activations(&mut random, tokens * inputs);
                let by = |isa| {
                    let input = Input::prepare(isa, Form::Int8(rule), &x, inputs);
                    let mut y = vec![f32::NAN; rows * tokens];
                    int8_groups(isa, &weight, floats, group, &input, &mut y);
                    y
                };
                let portable = by(Isa::portable());
                let input = Input::prepare(Isa::portable(), Form::Int8(rule), &x, inputs);
                for (i, &y) in portable.iter().enumerate() {
                    let (x, row) = (input.int8(i / rows), i % rows);
                    let term = |k: usize| {
                        let product = i32::from(weight[row * inputs + k] as i8) * (i32::from(x.bytes[k]) - x.zero);
                        f64::from(product) * f64::from(scales[(row * inputs + k) / group])
                    };
                    let truth = (0..inputs).map(term).sum::<f64>() * f64::from(x.scale);
                    let size = (0..inputs).map(|k| term(k).abs()).sum::<f64>() * f64::from(x.scale);
                    // A rounding for each group's product and sum, and of the last product.
                    assert!((f64::from(y) - truth).abs() <= 20.0 * 6e-8 * size, "{rule:?} {inputs} {i}");
                }
                each_isa().into_iter().for_each(|isa| assert_eq!(by(isa), portable, "{isa} {rule:?}"));
            }
        }
    }
}
