//! Products with integers that are stored by columns: words `[inputs, outputs]`, where packed dtypes have rows of words.
//!
//! The words of some outputs are turned into rows, which the kernels of the packed dtype multiply: the bits are those of the same
//! matrix in rows.

use super::transposed::by_tiles;
use super::vector::{Floats, for_each_float};
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::avx512;
use crate::input::{Input, Lines};
use crate::isa::{Isa, Sets, compiled_for};
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
#[cfg(any(target_arch = "x86_64", test))]
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
#[cfg(target_arch = "x86_64")]
pub(crate) struct Token<'a> {
    /// The first output.
    pub(crate) first: usize,
    /// Blocks of a group.
    pub(crate) each: usize,
    /// `[groups, outputs]`, those of a tile in its order.
    pub(crate) scales: &'a [f32],
    /// From one group to the next.
    pub(crate) stride: usize,
}

#[cfg(target_arch = "x86_64")]
impl Words {
    /// The outputs of a tile in its order: vector `2 * r + h` has the low or the high nibbles of words `4 * q + r`, a byte of each
    /// after the other.
    const IN_TILE: [u8; TILE] = {
        let (mut outputs, mut place) = ([0; TILE], 0);
        while place < TILE {
            let (v, lane) = (place / 16, place % 16);
            let (word, nibble) = (lane / 4 * 4 + v / 2, lane % 4 * 2 + v % 2);
            outputs[place] = (OUTPUTS * word + ORDER[nibble]) as u8;
            place += 1;
        }
        outputs
    };
}

impl Columns<'_> {
    /// The products of one token with whole tiles of `outputs`, of which it returns the number; 0 where another way is faster.
    #[allow(unused_variables, clippy::ptr_arg)]
    fn one_token(
        &self,
        isa: Isa,
        bits: usize,
        scales: &[f32],
        outputs: &Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<usize> {
        #[cfg(target_arch = "x86_64")]
        if isa.has(Sets::AVX512.and(Sets::VNNI)) && input.tokens() == 2 && (bits == 4 || bits == 8) {
            let count = outputs.len() / TILE * TILE;
            if count == 0 || self.of == Words::OfOutputs && !outputs.start.is_multiple_of(OUTPUTS) {
                return Ok(0);
            }
            let (groups, all) = (input.inputs() / self.group, outputs.len());
            let in_order = self.of == Words::OfInputs;
            let mut ordered: Vec<f32> =
                memory::zeros(if in_order { 0 } else { groups * all }, "the scales of weights")?;
            for (to, from) in ordered.chunks_exact_mut(all).zip(scales.chunks_exact(all)) {
                for (to, from) in to.as_chunks_mut::<TILE>().0.iter_mut().zip(from.as_chunks::<TILE>().0) {
                    to.iter_mut().zip(Words::IN_TILE).for_each(|(to, output)| *to = from[usize::from(output) % TILE]);
                }
            }
            let scales = if in_order { scales } else { &ordered };
            let token = Token { first: outputs.start, each: self.group / BLOCK, scales, stride: all };
            let x = [input.q8(0), input.q8(1)];
            // SAFETY: the token proves the instruction sets.
            with_scratch(|scratch| unsafe {
                avx512::columns::one_token(scratch, self, bits, x, token, &mut y[..count])
            })?;
            for y in if in_order { &mut [] } else { y[..count].as_chunks_mut::<TILE>().0 } {
                let ordered = *y;
                ordered.iter().zip(Words::IN_TILE).for_each(|(from, output)| y[usize::from(output) % TILE] = *from);
            }
            return Ok(count);
        }
        Ok(0)
    }

    /// The products by the kernel of rows.
    fn by_rows(
        &self,
        (kernel, isa): (&Kernel, Isa),
        (rows, by_rows): (&mut Lines<u8>, &mut Lines<u8>),
        scales: &[f32],
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
        let all = scales.len() / groups;
        for (r, to) in stored.as_chunks_mut::<4>().0.chunks_exact_mut(groups).enumerate() {
            to.iter_mut().enumerate().for_each(|(g, to)| *to = scales[g * all + all - count + r].to_le_bytes());
        }
        let Some(scales) = Floats::new(DType::F32, stored) else { unreachable!("four bytes each") };
        kernel.matmul_scaled(rows, BlockScales::Floats { group: self.group, scales }, input, y)
    }
}

impl Kernel {
    /// Outputs of one task of a matrix `[outputs, inputs]` by columns with `groups` groups of inputs, of which `left` bytes are not handed
    /// out yet. For one token they are many, because parts of rows of words are short otherwise: as many as scales, zero points and rows
    /// fit a thread's memory.
    pub fn columns_per_task(
        &self,
        left: usize,
        [outputs, inputs, groups]: [usize; 3],
        tokens: usize,
        threads: usize,
    ) -> usize {
        const MOST: usize = 1 << 20;
        if tokens > 1 {
            // Few tokens too: rows are made before they are unpacked.
            return self.rows_per_task(left, inputs, usize::MAX, threads);
        }
        let direct = self.entry.sets == Sets::AVX512.and(Sets::VNNI);
        let each = 12 * groups + 40 + if direct { 0 } else { self.row_bytes(inputs) };
        outputs.div_ceil(threads).next_multiple_of(TILE).min((MOST / each / TILE * TILE).max(TILE))
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
            columns.by_rows((kernel, isa), memory, scales, rest, input, &mut y[done..])?;
        }
        if columns.zero_points.is_some() {
            let mut sums: Vec<f32> = memory::zeros(groups, "the sums of activations")?;
            for (token, y) in y.chunks_exact_mut(count).enumerate() {
                let of = [2 * token, 2 * token + 1].map(|row| input.block_sums(row));
                for (g, sum) in sums.iter_mut().enumerate() {
                    *sum = (g * group / BLOCK..(g + 1) * group / BLOCK).map(|b| of[0](b) + of[1](b)).sum();
                }
                subtract(isa, zeros, &sums, y);
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

    /// Subtracts from `y` for each group, in order, its row of `zeros` times its sum.
    fn subtract(isa: Isa, zeros: &[f32], sums: &[f32], y: &mut [f32]) {
        const SOME: usize = 64;
        let count = y.len();
        let (tiles, rest) = y.as_chunks_mut::<SOME>();
        for (tile, y) in tiles.iter_mut().enumerate() {
            for (zeros, sum) in zeros.chunks_exact(count).zip(sums) {
                let zeros = &zeros[tile * SOME..][..SOME];
                y.iter_mut().zip(zeros).for_each(|(y, zero)| *y += zero * -sum);
            }
        }
        let from = count - rest.len();
        for (zeros, sum) in zeros.chunks_exact(count).zip(sums) {
            rest.iter_mut().zip(&zeros[from..]).for_each(|(y, zero)| *y += zero * -sum);
        }
    }

    /// Turns the outputs `outputs` of rows of `width / 8` words of eight outputs each into rows.
    fn turn_nibbles(isa: Isa, words: &[Word], width: usize, outputs: Range<usize>, rows: &mut [Word]) {
        const SOME: usize = 8;
        let (across, high) = (width / OUTPUTS, words.len() / width);
        let columns = outputs.start / OUTPUTS..outputs.end.div_ceil(OUTPUTS);
        for first in columns.clone().step_by(SOME) {
            let some = SOME.min(columns.end - first);
            for k in 0..high {
                let mut eight = [[0u32; SOME]; OUTPUTS];
                for (i, to) in eight.iter_mut().enumerate() {
                    let from = &words[(OUTPUTS * k + i) * across + first..][..some];
                    to.iter_mut().zip(from).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
                }
                turn_eight(&mut eight);
                for (j, place) in PLACES.iter().enumerate() {
                    for (c, word) in eight[*place][..some].iter().enumerate() {
                        let output = OUTPUTS * (first + c) + j;
                        if outputs.contains(&output) {
                            rows[(output - outputs.start) * high + k] = word.to_le_bytes();
                        }
                    }
                }
            }
        }
    }
}

/// Turns sets of eight words of eight nibbles: nibble `i` of word `j` becomes nibble `j` of word `i`.
#[inline(always)]
fn turn_eight<const SETS: usize>(words: &mut [[u32; SETS]; 8]) {
    for (apart, mask) in [(1, 0x0f0f_0f0f), (2, 0x00ff_00ff), (4, 0x0000_ffff_u32)] {
        let bits = 4 * apart;
        for i in (0..8).filter(|i| i & apart == 0) {
            let (before, after) = words.split_at_mut(i + apart);
            for (a, b) in before[i].iter_mut().zip(&mut after[0]) {
                (*a, *b) = (*a & mask | (*b & mask) << bits, *a >> bits & mask | *b & !mask);
            }
        }
    }
}

/// The product of floats with columns of [`Words::OfInputs`] whose inputs are of groups out of order: `group_of` has the group of each,
/// a word of 32 bits, all of them below the number of groups. A weight is made in a register, as by [`multiply_transposed`].
///
/// # Errors
/// When there is no memory for scales and zero points as floats.
///
/// [`multiply_transposed`]: crate::multiply_transposed
pub fn multiply_shuffled(
    isa: Isa,
    bits: usize,
    columns: &Columns<'_>,
    group_of: &[u8],
    outputs: Range<usize>,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let (width, groups, count) = (columns.width, columns.scales.len() / columns.width, outputs.len());
    let (words, group_of) = (columns.words.as_chunks::<4>().0, group_of.as_chunks::<4>().0);
    assert!(columns.of == Words::OfInputs && group_of.len() == input.inputs() && outputs.end <= width);
    assert_eq!(words.len() * 32, width * input.inputs() * bits, "words of {width} outputs");
    let mut factors: Vec<f32> = memory::zeros(2 * groups * count, "the scales of weights")?;
    let (scales, zeros) = factors.split_at_mut(groups * count);
    zeros.fill((1 << (bits - 1)) as f32);
    for (g, (scales, zeros)) in scales.chunks_exact_mut(count).zip(zeros.chunks_exact_mut(count)).enumerate() {
        widen(isa, columns.scales.part(g * width + outputs.start..g * width + outputs.end), scales);
        if let Some(ColumnZeros { words, add }) = columns.zero_points {
            let words = words.chunks_exact(width * bits / 8).nth(g).unwrap_or_default();
            zero_points(isa, columns.of, words, bits, outputs.clone(), add, zeros);
        }
    }
    let shuffled = Shuffled { bits, words, width, group_of, scales, zeros };
    by_inputs(isa, &shuffled, outputs, input, y);
    Ok(())
}

/// What [`multiply_shuffled`] makes weights of.
struct Shuffled<'a> {
    bits: usize,
    words: &'a [Word],
    width: usize,
    group_of: &'a [Word],
    /// `[groups, outputs]`, as are the zero points.
    scales: &'a [f32],
    zeros: &'a [f32],
}

compiled_for! {
    fn by_inputs(isa: Isa, shuffled: &Shuffled<'_>, outputs: Range<usize>, input: &Input, y: &mut [f32]) {
        let Shuffled { bits, words, width, group_of, scales, zeros } = *shuffled;
        let (each, most, count) = (32 / bits, (1u32 << bits) - 1, outputs.len());
        by_tiles(count, input, y, |i, part, row| {
            let from = u32::from_le_bytes(group_of[i]) as usize * count + part.start;
            let stored = &words[i / each * width + outputs.start + part.start..][..part.len()];
            let (scales, zeros) = (&scales[from..][..part.len()], &zeros[from..][..part.len()]);
            for (((to, word), scale), zero) in row.iter_mut().zip(stored).zip(scales).zip(zeros) {
                let integer = (u32::from_le_bytes(*word) >> (i % each * bits)) & most;
                *to = (integer as i32 as f32 - zero) * scale;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, as_rounded, each_isa};

    /// Long rows and short ones, of the largest tasks.
    #[test]
    fn threads_take_no_more_than_is_planned() {
        let mut random = Random::new(62);
        for isa in each_isa() {
            for (dtype, of) in
                [(DType::U4, Words::OfInputs), (DType::U4, Words::OfOutputs), (DType::U8, Words::OfInputs)]
            {
                for (inputs, tokens) in [(256, 1), (8192, 1), (256, 8), (8192, 8), (256, 40), (8192, 40)] {
                    let (kernel, groups) = (Kernel::select(dtype, isa).unwrap(), inputs / 32);
                    let width = kernel.columns_per_task(usize::MAX, [1 << 20, inputs, groups], tokens, 1);
                    let words = vec![0x77; width * kernel.row_bytes(inputs)];
                    let (scales, zeros) = (vec![0; 2 * groups * width], vec![0; groups * width]);
                    let scales = Floats::new(DType::F16, &scales).unwrap();
                    let zero_points = Some(ColumnZeros {
                        words: &zeros[..groups * width / if dtype == DType::U4 { 2 } else { 1 }],
                        add: 0,
                    });
                    let columns = Columns { words: &words, of, width, group: 32, scales, zero_points };
                    let input = Input::prepare(isa, kernel.form, &random.floats(tokens * inputs), inputs);
                    let (mut own, mut y) = (Scratch::default(), vec![0.0; tokens * width]);
                    crate::swap_scratch(&mut own);
                    multiply_columns(&kernel, isa, &columns, 0..width, &input, &mut y).unwrap();
                    crate::swap_scratch(&mut own);
                    // Scales in the order of tiles.
                    let beside = if of == Words::OfOutputs && tokens == 1 { 4 * groups * width } else { 0 };
                    let (taken, most) =
                        (own.bytes() + beside, model_factory_dtypes::thread_bytes(inputs, tokens) as usize);
                    assert!(
                        taken <= most,
                        "{dtype} {of:?} {isa}: {taken} of {most}, {tokens} x {inputs}, {width} outputs"
                    );
                }
            }
        }
    }

    /// Every layout against float64 of the integers, written into words by what their definition says; and the same bits by every
    /// instruction set and for every part of the outputs and the tokens.
    #[test]
    fn columns_are_multiplied_as_their_words_say() {
        let mut random = Random::new(61);
        let cases = [
            (DType::U4, Words::OfInputs, 32, 32, 8),
            (DType::U4, Words::OfInputs, 256, 128, 72),
            (DType::U4, Words::OfInputs, 608, 32, 40),
            (DType::U4, Words::OfInputs, 320, 64, 272),
            (DType::U8, Words::OfInputs, 192, 64, 40),
            (DType::U8, Words::OfInputs, 544, 544, 132),
            (DType::U4, Words::OfOutputs, 32, 32, 8),
            (DType::U4, Words::OfOutputs, 256, 128, 200),
            (DType::U4, Words::OfOutputs, 608, 32, 40),
            (DType::U4, Words::OfOutputs, 320, 64, 272),
        ];
        for (dtype, of, inputs, group, width) in cases {
            let (bits, groups, tokens) = (if dtype == DType::U4 { 4 } else { 8 }, inputs / group, 9);
            let integers: Vec<u32> =
                (0..inputs * width).map(|_| random.bits() as u32 >> 7 & ((1 << bits) - 1)).collect();
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
                    let input =
                        Input::prepare(isa, kernel.form, &x[tokens.start * inputs..tokens.end * inputs], inputs);
                    let mut y = vec![f32::NAN; tokens.len() * outputs.len()];
                    multiply_columns(&kernel, isa, &columns, outputs, &input, &mut y).unwrap();
                    y
                };
                let what = format!("{dtype} {of:?} {inputs} x {width}, groups of {group}, zeros {zero_points:?}");
                let zero_of =
                    |g: usize, o: usize| zero_points.map_or(1 << (bits - 1), |add| zeros[g * width + o] as i32 + add);
                let weight = |g: usize, i: usize, o: usize| {
                    f64::from(integers[i * width + o] as i32 - zero_of(g, o)) * scales[g * width + o].to_f64()
                };
                let bound = |g: &dyn Fn(usize) -> usize, x: &[f64], o: usize| {
                    let size: f64 =
                        x.iter().enumerate().map(|(i, x)| scales[g(i) * width + o].to_f64().abs() * x.abs()).sum();
                    // Roundings of products and sums, of integers up to the largest.
                    size * f64::from(1 << bits) * 2f64.powi(-22) * (4.0 + (inputs / 32) as f64)
                };
                let whole = product(Isa::portable(), 0..tokens, 0..width);
                for (at, y) in whole.iter().enumerate() {
                    let (token, o) = (at / width, at % width);
                    let x = &rounded[token * inputs..][..inputs];
                    let exact: f64 = (0..inputs).map(|i| weight(i / group, i, o) * x[i]).sum();
                    assert!((f64::from(*y) - exact).abs() <= bound(&|i| i / group, x, o), "{what}, {at}");
                }
                for isa in each_isa() {
                    assert_eq!(product(isa, 0..tokens, 0..width), whole, "{isa} {what}");
                    for (some, part) in
                        [(0..1, 0..width), (8..9, width / 16 * 8..width), (1..4, 8..width), (0..1, 3..5)]
                    {
                        let found = product(isa, some.clone(), part.clone());
                        let expected = some.flat_map(|token| &whole[token * width..][part.clone()]);
                        assert!(found.iter().eq(expected), "{isa} {what}, {part:?}");
                    }
                }
                if of == Words::OfOutputs {
                    continue;
                }
                let group_of: Vec<usize> = (0..inputs).map(|i| (i * 7 + 3) % groups).collect();
                let stored_groups: Vec<u8> = group_of.iter().flat_map(|g| (*g as u32).to_le_bytes()).collect();
                let mut first: Option<Vec<f32>> = None;
                for isa in each_isa() {
                    let input = Input::prepare(isa, crate::Form::F32, &x, inputs);
                    let mut y = vec![f32::NAN; tokens * width];
                    multiply_shuffled(isa, bits, &columns, &stored_groups, 0..width, &input, &mut y).unwrap();
                    for (at, y) in y.iter().enumerate() {
                        let (token, o) = (at / width, at % width);
                        let x: Vec<f64> = x[token * inputs..][..inputs].iter().map(|x| f64::from(*x)).collect();
                        let exact: f64 = (0..inputs).map(|i| weight(group_of[i], i, o) * x[i]).sum();
                        assert!((f64::from(*y) - exact).abs() <= bound(&|i| group_of[i], &x, o), "{isa} {what}, {at}");
                    }
                    let [start, end] = [width / 3, width.min(width / 3 + 40)];
                    let mut part = vec![f32::NAN; tokens * (end - start)];
                    multiply_shuffled(isa, bits, &columns, &stored_groups, start..end, &input, &mut part).unwrap();
                    let expected = (0..tokens).flat_map(|token| &y[token * width..][start..end]);
                    assert!(part.iter().eq(expected), "{isa} {what}");
                    assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "{isa} {what}");
                }
            }
        }
    }
}
