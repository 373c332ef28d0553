//! Products with integers that are stored by columns: words `[inputs, outputs]`, where packed dtypes have rows of words.
//!
//! The words of some outputs are turned into rows, which the kernels of the packed dtype multiply: the bits are those of the same
//! matrix in rows.

use super::vector::{Floats, add_scaled, for_each_float};
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::avx512;
use crate::input::{Input, Lines};
#[cfg(target_arch = "x86_64")]
use crate::isa::Sets;
use crate::isa::{Isa, compiled_for};
use crate::memory;
use crate::order::BLOCK;
use crate::scratch::{Scratch, room, with_scratch};
use crate::{BlockScales, Kernel};
use model_factory_dtypes::DType;
use std::ops::Range;

/// What a word of 32 bits holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Consecutive inputs of an output, the first in the lowest bits: `[inputs * bits / 32, outputs]` (GPTQ).
    OfInputs,
    /// Eight consecutive outputs of an input, of 4 bits in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest: `[inputs, outputs / 8]`
    /// (AWQ).
    OfOutputs,
}

/// The outputs in a word of [`Words::OfOutputs`], from the lowest bits on.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Where in such a word each output is.
const PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Outputs of such a word.
const OUTPUTS: usize = PLACES.len();

/// A matrix of integers stored by columns. A weight is `scale * (integer - zero point)`.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The bytes of the words.
    pub words: &'a [u8],
    /// What a word holds.
    pub of: Words,
    /// Stored outputs.
    pub width: usize,
    /// Consecutive inputs that share a scale, a multiple of 32.
    pub group: usize,
    /// Scales `[groups, width]`.
    pub scales: Floats<'a>,
    /// Zero points, where they are not the middle of the integers.
    pub zero_points: Option<ColumnZeros<'a>>,
}

/// Zero points by columns: integers in words `[groups, width]`, those of consecutive outputs one after the other, or in the order of
/// [`Words::OfOutputs`].
#[derive(Clone, Copy, Debug)]
pub struct ColumnZeros<'a> {
    /// The bytes of the words.
    pub words: &'a [u8],
    /// What is missing from a stored one.
    pub add: i32,
}

impl Words {
    /// The stored integer of `output` in a row of `words` of `bits` bits each.
    pub fn integer(self, words: &[u8], bits: usize, output: usize) -> u32 {
        let place = match self {
            Words::OfInputs => output,
            Words::OfOutputs => output / OUTPUTS * OUTPUTS + PLACES[output % OUTPUTS],
        };
        let (byte, shift) = (place * bits / 8, place * bits % 8);
        let next = words.get(byte + 1).copied().unwrap_or_default();
        (u32::from(u16::from_le_bytes([words[byte], next])) >> shift) & ((1 << bits) - 1)
    }
}

/// Outputs of a tile of the product with one token.
pub(crate) const TILE: usize = 128;

/// What the product of whole tiles with one token reads next to words and activations.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) struct Token<'a> {
    /// The first output.
    pub(crate) first: usize,
    /// Blocks of a group.
    pub(crate) each: usize,
    /// `[groups, outputs]`, those of a tile in its order.
    pub(crate) scales: &'a [f32],
}

impl Words {
    /// The output of a tile that is at `place` in the order of tiles.
    fn in_tile(self, place: usize) -> usize {
        match self {
            Words::OfInputs => place,
            // Vector `2 * r + h` has the low or the high nibbles of words `4 * q + r`, a byte of each after the other.
            Words::OfOutputs => {
                let (v, lane) = (place / 16, place % 16);
                let (word, nibble) = (lane / 4 * 4 + v / 2, lane % 4 * 2 + v % 2);
                OUTPUTS * word + ORDER[nibble]
            }
        }
    }
}

impl Columns<'_> {
    /// The products of one token with whole tiles of `outputs`, of which it returns the number; 0 where another way is faster.
    #[allow(unused_variables, clippy::ptr_arg)]
    fn one_token(&self, isa: Isa, bits: usize, scales: &[f32], outputs: &Range<usize>, input: &Input, y: &mut [f32]) -> memory::Result<usize> {
        #[cfg(target_arch = "x86_64")]
        if isa.has(Sets::AVX512.and(Sets::VNNI)) && input.tokens() == 2 && (bits == 4 || bits == 8) {
            let count = outputs.len() / TILE * TILE;
            if count == 0 || self.of == Words::OfOutputs && !outputs.start.is_multiple_of(OUTPUTS) {
                return Ok(0);
            }
            let groups = input.inputs() / self.group;
            let mut ordered: Vec<f32> = memory::zeros(groups * count, "the scales of weights")?;
            for (to, from) in ordered.chunks_exact_mut(count).zip(scales.chunks_exact(outputs.len())) {
                for (to, from) in to.chunks_exact_mut(TILE).zip(from.chunks_exact(TILE)) {
                    to.iter_mut().enumerate().for_each(|(place, to)| *to = from[self.of.in_tile(place)]);
                }
            }
            let token = Token { first: outputs.start, each: self.group / BLOCK, scales: &ordered };
            let x = [input.q8(0), input.q8(1)];
            // SAFETY: the token proves the instruction sets.
            with_scratch(|scratch| unsafe { avx512::columns::one_token(scratch, self, bits, x, token, &mut y[..count]) })?;
            for y in y[..count].as_chunks_mut::<TILE>().0 {
                let ordered = *y;
                ordered.iter().enumerate().for_each(|(place, from)| y[self.of.in_tile(place)] = *from);
            }
            return Ok(count);
        }
        Ok(0)
    }

    /// The products by the kernel of rows.
    fn by_rows(
        &self,
        kernel: &Kernel,
        isa: Isa,
        (rows, by_rows): (&mut Lines<u8>, &mut Lines<u8>),
        scales: [&[f32]; 1],
        outputs: Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let (count, groups) = (outputs.len(), input.inputs() / self.group);
        let rows = room(rows, count * kernel.row_bytes(input.inputs()))?;
        let words = self.words.as_chunks().0;
        match self.of {
            Words::OfInputs => turn(isa, words, self.width, outputs, rows.as_chunks_mut().0),
            Words::OfOutputs => turn_nibbles(isa, words, self.width, outputs, rows.as_chunks_mut().0),
        }
        let stored = room(by_rows, 4 * count * groups)?;
        let all = scales[0].len() / groups;
        for (r, to) in stored.as_chunks_mut::<4>().0.chunks_exact_mut(groups).enumerate() {
            to.iter_mut().enumerate().for_each(|(g, to)| *to = scales[0][g * all + all - count + r].to_le_bytes());
        }
        let Some(scales) = Floats::new(DType::F32, stored) else { unreachable!("four bytes each") };
        kernel.matmul_scaled(rows, BlockScales::Floats { group: self.group, scales }, input, y)
    }
}

/// `y[token][j] = sum over i of weight[outputs.start + j][i] * x[token][i]`, by the `kernel` of the packed dtype. `y` is
/// `[tokens, outputs]`, overwritten. Panics when lengths do not match, for a dtype without a scale for each group, and for words of
/// outputs unless they are whole and of U4.
///
/// # Errors
/// When there is no memory for the rows of the outputs.
pub fn multiply_columns(
    kernel: &Kernel,
    isa: Isa,
    columns: &Columns<'_>,
    outputs: Range<usize>,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    let (inputs, count) = (input.inputs(), outputs.len());
    let Columns { words, width, group, .. } = *columns;
    let (row_bytes, groups) = (kernel.row_bytes(inputs), inputs / group);
    let bits = row_bytes * 8 / inputs;
    assert!(inputs.is_multiple_of(BLOCK) && group.is_multiple_of(BLOCK), "groups of {group} in rows of {inputs}");
    assert!(groups * group == inputs && outputs.end <= width && y.len() == input.tokens() / 2 * count);
    assert!(words.len() == width * row_bytes && columns.scales.len() == groups * width);
    let (mut rows, mut by_rows, mut factors) = with_scratch(|Scratch { columns, .. }| Ok(std::mem::take(columns)))?;
    let mut multiply = || {
        let (scales, zeros) = room(&mut factors, 2 * count * groups)?.split_at_mut(count * groups);
        for (g, (scales, zeros)) in scales.chunks_exact_mut(count).zip(zeros.chunks_exact_mut(count)).enumerate() {
            widen(isa, columns.scales.part(g * width + outputs.start..g * width + outputs.end), scales);
            if let Some(ColumnZeros { words, add }) = columns.zero_points {
                let words = words.chunks_exact(width * bits / 8).nth(g).unwrap_or_default();
                zero_points(isa, columns.of, words, bits, outputs.clone(), add - (1 << (bits - 1)), zeros);
                zeros.iter_mut().zip(scales).for_each(|(zero, scale)| *zero *= *scale);
            }
        }
        let done = columns.one_token(isa, bits, scales, &outputs, input, y)?;
        if done < count {
            let (rest, memory) = (outputs.start + done..outputs.end, (&mut rows, &mut by_rows));
            columns.by_rows(kernel, isa, memory, [scales], rest, input, &mut y[done..])?;
        }
        let each = group / BLOCK;
        for (token, y) in y.chunks_exact_mut(count).enumerate().filter(|_| columns.zero_points.is_some()) {
            for (g, zeros) in zeros.chunks_exact(count).enumerate() {
                let blocks = g * each..(g + 1) * each;
                let sum: f32 = blocks.map(|b| input.block_sum(2 * token, b) + input.block_sum(2 * token + 1, b)).sum();
                add_scaled(isa, y, zeros, -sum);
            }
        }
        Ok(())
    };
    let done = multiply();
    with_scratch(|scratch| {
        scratch.columns = (rows, by_rows, factors);
        done
    })
}

/// A word.
type Word = [u8; 4];

compiled_for! {
    /// The scales as floats.
    fn widen(isa: Isa, from: Floats<'_>, to: &mut [f32]) {
        assert_eq!(from.len(), to.len());
        for_each_float(from, |i, scale| to[i] = scale);
    }

    /// The zero points of `outputs` in a row of words, with `add` added.
    fn zero_points(isa: Isa, of: Words, words: &[u8], bits: usize, outputs: Range<usize>, add: i32, to: &mut [f32]) {
        if bits != 4 || !(outputs.start | outputs.end).is_multiple_of(8) {
            let zeros = outputs.map(|output| of.integer(words, bits, output) as i32 + add);
            to.iter_mut().zip(zeros).for_each(|(to, zero)| *to = zero as f32);
            return;
        }
        let places = if of == Words::OfOutputs { PLACES } else { [0, 1, 2, 3, 4, 5, 6, 7] };
        let words = &words.as_chunks::<4>().0[outputs.start / 8..outputs.end / 8];
        for (word, to) in words.iter().zip(to.as_chunks_mut::<8>().0) {
            let word = u32::from_le_bytes(*word);
            to.iter_mut().zip(places).for_each(|(to, place)| *to = ((word >> (4 * place) & 15) as i32 + add) as f32);
        }
    }

    /// Turns the columns `outputs` of rows of `width` words into rows.
    fn turn(isa: Isa, words: &[Word], width: usize, outputs: Range<usize>, rows: &mut [Word]) {
        const SIDE: usize = 16;
        let (count, high) = (outputs.len(), words.len() / width);
        for first in (0..count).step_by(SIDE) {
            let some = SIDE.min(count - first);
            for at in (0..high).step_by(SIDE) {
                for k in at..high.min(at + SIDE) {
                    let from = &words[k * width + outputs.start + first..][..some];
                    from.iter().enumerate().for_each(|(r, word)| rows[(first + r) * high + k] = *word);
                }
            }
        }
    }

    /// Turns the outputs `outputs` of rows of `width / 8` words of eight outputs each into rows.
    fn turn_nibbles(isa: Isa, words: &[Word], width: usize, outputs: Range<usize>, rows: &mut [Word]) {
        let (across, high) = (width / OUTPUTS, words.len() / width);
        for k in 0..high {
            for column in outputs.start / OUTPUTS..outputs.end.div_ceil(OUTPUTS) {
                let mut eight = [0u32; OUTPUTS];
                for (i, word) in eight.iter_mut().enumerate() {
                    *word = u32::from_le_bytes(words[(OUTPUTS * k + i) * across + column]);
                }
                turn_eight(&mut eight);
                for (j, place) in PLACES.iter().enumerate() {
                    let output = OUTPUTS * column + j;
                    if outputs.contains(&output) {
                        rows[(output - outputs.start) * high + k] = eight[*place].to_le_bytes();
                    }
                }
            }
        }
    }
}

/// Turns eight words of eight nibbles: nibble `i` of word `j` becomes nibble `j` of word `i`.
#[inline(always)]
fn turn_eight(words: &mut [u32; 8]) {
    for (apart, mask) in [(1, 0x0f0f_0f0f), (2, 0x00ff_00ff), (4, 0x0000_ffff_u32)] {
        let bits = 4 * apart;
        for i in (0..8).filter(|i| i & apart == 0) {
            let (a, b) = (words[i], words[i + apart]);
            words[i] = a & mask | (b & mask) << bits;
            words[i + apart] = a >> bits & mask | b & !mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, as_rounded, each_isa};

    /// Every layout against float64 of the integers, written into words by what their definition says; and the same bits by every
    /// instruction set and for every part of the outputs and the tokens.
    #[test]
    fn columns_are_multiplied_as_their_words_say() {
        let mut random = Random::new(61);
        let cases = [
            (DType::U4, Words::OfInputs, 32, 32, 8),
            (DType::U4, Words::OfInputs, 256, 128, 72),
            (DType::U4, Words::OfInputs, 608, 32, 136),
            (DType::U4, Words::OfInputs, 640, 64, 400),
            (DType::U8, Words::OfInputs, 192, 64, 40),
            (DType::U8, Words::OfInputs, 544, 544, 132),
            (DType::U4, Words::OfOutputs, 32, 32, 8),
            (DType::U4, Words::OfOutputs, 256, 128, 200),
            (DType::U4, Words::OfOutputs, 608, 32, 136),
            (DType::U4, Words::OfOutputs, 640, 64, 400),
        ];
        for (dtype, of, inputs, group, width) in cases {
            let (bits, groups, tokens) = (if dtype == DType::U4 { 4 } else { 8 }, inputs / group, 9);
            let integers: Vec<u32> = (0..inputs * width).map(|_| random.bits() as u32 >> 7 & ((1 << bits) - 1)).collect();
            let zeros: Vec<u32> = (0..groups * width).map(|_| random.bits() as u32 >> 7 & ((1 << bits) - 1)).collect();
            let along_outputs = |integers: &[u32]| -> Vec<u8> {
                let each = 32 / bits;
                let words = integers.chunks(each).map(|integers| {
                    let at = |i: usize| integers[if of == Words::OfOutputs { ORDER[i] } else { i }];
                    (0..each).map(|i| at(i) << (i * bits)).fold(0, |a, b| a | b)
                });
                words.flat_map(u32::to_le_bytes).collect()
            };
            let stored: Vec<u8> = match of {
                Words::OfOutputs => along_outputs(&integers),
                Words::OfInputs => {
                    let rows = integers.chunks(32 / bits * width);
                    let words = rows.flat_map(|rows| {
                        (0..width).map(|o| {
                            let fields = rows.iter().skip(o).step_by(width).enumerate();
                            fields.map(|(i, field)| field << (i * bits)).fold(0, |a, b| a | b)
                        })
                    });
                    words.flat_map(u32::to_le_bytes).collect()
                }
            };
            // A byte in front removes any alignment.
            let [stored, stored_zeros] = [stored, along_outputs(&zeros)].map(|bytes| [vec![0], bytes].concat());
            let scales: Vec<half::f16> = random.floats(groups * width).into_iter().map(half::f16::from_f32).collect();
            let scale_bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            let x = random.floats(tokens * inputs);
            let rounded = as_rounded(crate::Form::Q16, &x, inputs);
            for zero_points in [None, Some(0), Some(1)] {
                let columns = Columns {
                    words: &stored[1..],
                    of,
                    width,
                    group,
                    scales: Floats::new(DType::F16, &scale_bytes).unwrap(),
                    zero_points: zero_points.map(|add| ColumnZeros { words: &stored_zeros[1..], add }),
                };
                let product = |isa, tokens: Range<usize>, outputs: Range<usize>| {
                    let kernel = Kernel::select(dtype, isa).unwrap();
                    let input = Input::prepare(isa, kernel.form, &x[tokens.start * inputs..tokens.end * inputs], inputs);
                    let mut y = vec![f32::NAN; tokens.len() * outputs.len()];
                    multiply_columns(&kernel, isa, &columns, outputs, &input, &mut y).unwrap();
                    y
                };
                let what = format!("{dtype} {of:?} {inputs} x {width}, groups of {group}, zeros {zero_points:?}");
                let whole = product(Isa::portable(), 0..tokens, 0..width);
                for (at, y) in whole.iter().enumerate() {
                    let (token, o) = (at / width, at % width);
                    let products = (0..inputs).map(|i| {
                        let zero = zero_points.map_or(1 << (bits - 1), |add| zeros[i / group * width + o] as i32 + add);
                        let integer = integers[i * width + o] as i32 - zero;
                        f64::from(integer) * scales[i / group * width + o].to_f64() * rounded[token * inputs + i]
                    });
                    let size: f64 = (0..inputs)
                        .map(|i| scales[i / group * width + o].to_f64().abs() * rounded[token * inputs + i].abs())
                        .sum();
                    // Roundings of products and sums, of integers up to the largest.
                    let bound = size * f64::from(1 << bits) * 2f64.powi(-22) * (4.0 + groups as f64);
                    assert!((f64::from(*y) - products.sum::<f64>()).abs() <= bound, "{what}, {at}");
                }
                for isa in each_isa() {
                    assert_eq!(product(isa, 0..tokens, 0..width), whole, "{isa} {what}");
                    for (some, part) in [(0..1, 0..width), (8..9, width / 16 * 8..width), (1..4, 8..width), (0..1, 3..5)] {
                        let found = product(isa, some.clone(), part.clone());
                        let expected = some.flat_map(|token| &whole[token * width..][part.clone()]);
                        assert!(found.iter().eq(expected), "{isa} {what}, {part:?}");
                    }
                }
            }
        }
    }

    #[test]
    #[ignore]
    fn timing() {
        use std::time::Instant;
        let mut random = Random::new(61);
        for (inputs, width) in [(2048, 2048), (2048, 5632), (5632, 2048)] {
            for (dtype, of) in [(DType::U4, Words::OfInputs), (DType::U4, Words::OfOutputs), (DType::U8, Words::OfInputs)] {
                let bits = if dtype == DType::U4 { 4 } else { 8 };
                let bytes = inputs * width * bits / 8;
                let count = (200 << 20) / bytes;
                let words = random.bytes(bytes * count);
                let groups = inputs / 128;
                let scales: Vec<u8> = (0..groups * width).flat_map(|_| half::f16::from_f32(0.01).to_le_bytes()).collect();
                let zeros = random.bytes(groups * width * bits / 8);
                for tokens in [1, 128] {
                    let count = if tokens > 1 { count.min(4) } else { count };
                    let isa = Isa::detect();
                    let x = random.floats(tokens * inputs);
                    let kernel = Kernel::select(dtype, isa).unwrap();
                    let input = Input::prepare(isa, kernel.form, &x, inputs);
                    let step = if tokens > 1 { 128 } else { 512 };
                    let mut y = vec![0.0; tokens * step];
                    for part in 0..3 {
                        let start = Instant::now();
                        for m in 0..count {
                            let words = &words[m * bytes..][..bytes];
                            for first in (0..width).step_by(step) {
                                let rows = first..width.min(first + step);
                                let y = &mut y[..tokens * rows.len()];
                                if part == 0 {
                                    let row = kernel.row_bytes(inputs);
                                    let scales = Floats::new(DType::F16, &scales[..rows.len() * groups * 2]).unwrap();
                                    kernel.matmul_scaled(&words[rows.start * row..rows.end * row], BlockScales::Floats { group: 128, scales }, &input, y).unwrap();
                                } else {
                                    let columns = Columns { words, of, width, group: 128, scales: Floats::new(DType::F16, &scales).unwrap(),
                                        zero_points: (part == 2).then_some(ColumnZeros { words: &zeros, add: 0 }) };
                                    multiply_columns(&kernel, isa, &columns, rows, &input, y).unwrap();
                                }
                            }
                        }
                        let time = start.elapsed().as_secs_f64();
                        println!("{inputs} x {width} {dtype} {of:?} {tokens} tokens, {}: {:.1} GB/s, {:.0} GMAC/s", ["rows", "columns", "zeros"][part], (bytes * count) as f64 / time / 1e9, (inputs * width * count * tokens) as f64 / time / 1e9);
                    }
                }
            }
        }
    }
}
