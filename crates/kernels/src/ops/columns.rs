//! Products with integers that are stored by columns: words `[inputs, outputs]`, where packed dtypes have rows of words.
//!
//! The words of some outputs are turned into rows, which the kernels of the packed dtype multiply, with zero points as biases: the bits
//! are those of the same matrix in rows.

mod turn;

use self::turn::turn;
use super::transposed::by_tiles;
use super::vector::{Floats, for_each_float};
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::avx512;
use crate::input::{Input, Lines};
use crate::isa::{Isa, Sets, compiled_for};
use crate::memory;
use crate::order::BLOCK;
use crate::scratch::{Scratch, room, with_scratch};
use crate::{BlockScales, Kernel, LANES};
use model_factory_dtypes::PackedDim;
use std::ops::Range;

/// Where each of eight outputs is in a word of [`PackedDim::Outputs`], from the lowest bits on.
const PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Outputs of such a word.
const OUTPUTS: usize = PLACES.len();

/// A matrix of integers stored by columns. A weight is `scale * (integer - zero point)`.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The bytes of the words.
    pub words: &'a [u8],
    /// What a word holds.
    pub packed: PackedDim,
    /// Stored outputs.
    pub width: usize,
    /// Consecutive inputs that share a scale, a multiple of 32.
    pub group: usize,
    /// Scales `[groups, width]`.
    pub scales: Floats<'a>,
    /// Zero points, where they are not the middle of the integers: the bytes of words `[groups, width]`, those of consecutive outputs one
    /// after the other, or in the order of [`PackedDim::Outputs`]; and what is added to a stored one.
    pub zero_points: Option<(&'a [u8], u32)>,
}

/// Field `index` of `bits` bits in a stream of fields, from the lowest bits of the first byte on.
pub fn field(bytes: &[u8], bits: usize, index: usize) -> u32 {
    let (byte, shift) = (index * bits / 8, index * bits % 8);
    let next = bytes.get(byte + 1).copied().unwrap_or_default();
    (u32::from(u16::from_le_bytes([bytes[byte], next])) >> shift) & ((1 << bits) - 1)
}

/// Outputs of a tile of the product with one token.
pub(crate) const TILE: usize = 128;

/// The floats of outputs in the order of a tile of [`PackedDim::Outputs`]: vector `2 * r + h` has the low or the high nibbles of words
/// `4 * q + r`, a byte of each after the other.
#[cfg(target_arch = "x86_64")]
fn in_tile(outputs: &[f32; TILE]) -> [f32; TILE] {
    let mut tile = [0.0; TILE];
    for (word, x) in outputs.as_chunks::<OUTPUTS>().0.iter().enumerate() {
        let at = word % 4 * 32 + word / 4 * 4;
        tile[at..at + 4].copy_from_slice(&[x[0], x[4], x[1], x[5]]);
        tile[at + 16..at + 20].copy_from_slice(&[x[2], x[6], x[3], x[7]]);
    }
    tile
}

/// The floats of a tile in the order of outputs.
#[cfg(target_arch = "x86_64")]
fn in_order(tile: &[f32; TILE]) -> [f32; TILE] {
    let mut outputs = [0.0; TILE];
    for (word, to) in outputs.as_chunks_mut::<OUTPUTS>().0.iter_mut().enumerate() {
        let [low, high] = [0, 16].map(|high| &tile[word % 4 * 32 + word / 4 * 4 + high..][..4]);
        *to = [low[0], low[2], high[0], high[2], low[1], low[3], high[1], high[3]];
    }
    outputs
}

impl Columns<'_> {
    /// The scales of `outputs` `[groups, outputs]`, and if they are wanted as many biases, minus the products of scales and zero points.
    fn factors<'f>(
        &self,
        isa: Isa,
        bits: usize,
        outputs: &Range<usize>,
        wanted: bool,
        floats: &'f mut Lines<f32>,
    ) -> memory::Result<[&'f mut [f32]; 2]> {
        let (width, count) = (self.width, outputs.len());
        let all = self.scales.len() / width * count;
        let (scales, biases) = room(floats, if wanted { 2 * all } else { all })?.split_at_mut(all);
        for (g, scales) in scales.chunks_exact_mut(count).enumerate() {
            widen(isa, self.scales.part(g * width + outputs.start..g * width + outputs.end), scales);
        }
        for (g, (biases, scales)) in biases.chunks_exact_mut(count).zip(scales.chunks_exact(count)).enumerate() {
            let zero_points = self.zero_points.map(|(words, offset)| (&words[g * width * bits / 8..], offset));
            of_zero_points(isa, self.packed, (zero_points, bits), outputs.clone(), scales, biases);
        }
        Ok([scales, biases])
    }

    /// The products of one token with whole tiles of `outputs`, of which it returns the number; 0 where another way is faster. The
    /// scales and biases of these are for others no more.
    #[allow(unused_variables, clippy::ptr_arg)]
    fn one_token(
        &self,
        isa: Isa,
        bits: usize,
        [scales, biases]: [&mut [f32]; 2],
        outputs: &Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<usize> {
        #[cfg(target_arch = "x86_64")]
        if isa.has(Sets::AVX512.and(Sets::VNNI)) && input.tokens() == 2 && (bits == 4 || bits == 8) {
            let (all, count) = (outputs.len(), outputs.len() / TILE * TILE);
            if count == 0 {
                return Ok(0);
            }
            let middle = (1 << (bits - 1)) as f32;
            for (biases, scales) in biases.chunks_exact_mut(all).zip(scales.chunks_exact(all)) {
                biases[..count].iter_mut().zip(scales).for_each(|(bias, scale)| *bias += *scale * middle);
            }
            if self.packed == PackedDim::Outputs {
                for floats in scales.chunks_exact_mut(all).chain(biases.chunks_exact_mut(all)) {
                    floats[..count].as_chunks_mut().0.iter_mut().for_each(|tile| *tile = in_tile(tile));
                }
            }
            let (factors, x) = ([&*scales, &*biases], [input.q8(0), input.q8(1)]);
            // SAFETY: the token proves the instruction sets.
            with_scratch(|scratch| unsafe {
                avx512::columns::one_token(scratch, (self, outputs.start), bits, x, factors, &mut y[..count])
            })?;
            if self.packed == PackedDim::Outputs {
                y[..count].as_chunks_mut().0.iter_mut().for_each(|tile| *tile = in_order(tile));
            }
            return Ok(count);
        }
        Ok(0)
    }

    /// The products by the kernel of rows.
    fn by_rows(
        &self,
        (kernel, isa): (&Kernel, Isa),
        (rows, by_rows): (&mut Lines<u8>, &mut Lines<f32>),
        [scales, biases]: [&[f32]; 2],
        outputs: Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let (count, groups) = (outputs.len(), input.inputs() / self.group);
        let rows = room(rows, count * kernel.row_bytes(input.inputs()))?;
        turn(isa, self.packed, (self.words, self.width), outputs, rows);
        let (scales_of_rows, biases_of_rows) = room(by_rows, 2 * count * groups)?.split_at_mut(count * groups);
        let all = scales.len() / groups;
        let turned = |floats: &[f32], to: &mut [f32]| {
            let (floats, to) = (bytemuck::cast_slice(floats), bytemuck::cast_slice_mut(to));
            turn(isa, PackedDim::Inputs, (floats, all), all - count..all, to);
        };
        turned(scales, scales_of_rows);
        let (group, scales) = (self.group, Floats::f32(scales_of_rows));
        if biases.is_empty() {
            return kernel.matmul_scaled(rows, BlockScales::Floats { group, scales }, input, y);
        }
        turned(biases, biases_of_rows);
        let biases = Floats::f32(biases_of_rows);
        kernel.matmul_scaled(rows, BlockScales::Affine { group, scales, biases }, input, y)
    }
}

impl Kernel {
    /// Outputs of one task of a matrix `[outputs, inputs]` by columns with `groups` groups of inputs, of which `left` bytes are not handed
    /// out yet. For one token they are many, because parts of rows of words are short otherwise: as many as scales, zero points and rows
    /// fit a thread's memory, or as the kernel reads at a time.
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
        let direct = self.entry.sets == Sets::AVX512.and(Sets::VNNI) && self.bits() >= 4;
        let each = 8 * groups + if direct { 8 * LANES } else { self.row_bytes(inputs) + 8 * groups };
        let most = (MOST / each / TILE * TILE).max(TILE);
        #[cfg(target_arch = "x86_64")]
        let most = if direct { most.min(avx512::columns::most_outputs(self.bits())) } else { most };
        outputs.div_ceil(threads).next_multiple_of(TILE).min(most)
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
    let (inputs, count, bits) = (input.inputs(), outputs.len(), kernel.bits());
    let Columns { words, packed, width, group, .. } = *columns;
    let groups = inputs / group;
    assert!(inputs.is_multiple_of(BLOCK) && group.is_multiple_of(BLOCK), "groups of {group} in rows of {inputs}");
    assert!(groups * group == inputs && outputs.end <= width && y.len() == input.tokens() / 2 * count);
    assert!(words.len() == width * kernel.row_bytes(inputs) && columns.scales.len() == groups * width);
    let whole = bits == 4 && [outputs.start, outputs.end, width].iter().all(|outputs| outputs.is_multiple_of(OUTPUTS));
    assert!(packed == PackedDim::Inputs || whole, "words of {OUTPUTS} outputs, {outputs:?} of {width}");
    let (mut rows, mut by_rows, mut factors) = with_scratch(|Scratch { columns, .. }| Ok(std::mem::take(columns)))?;
    let mut multiply = || {
        // Kernels of 4 and 8 bits subtract the middle of the integers.
        let with_biases = columns.zero_points.is_some() || bits < 4 || packed == PackedDim::Outputs;
        let [scales, biases] = columns.factors(isa, bits, &outputs, with_biases, &mut factors)?;
        let done = columns.one_token(isa, bits, [&mut *scales, &mut *biases], &outputs, input, y)?;
        if done < count {
            let (rest, memory) = (outputs.start + done..outputs.end, (&mut rows, &mut by_rows));
            columns.by_rows((kernel, isa), memory, [scales, biases], rest, input, &mut y[done..])?;
        }
        Ok(())
    };
    let done = multiply();
    with_scratch(|scratch| {
        scratch.columns = (rows, by_rows, factors);
        done
    })
}

compiled_for! {
    /// The scales as floats.
    fn widen(isa: Isa, from: Floats<'_>, to: &mut [f32]) {
        assert_eq!(from.len(), to.len());
        for_each_float(from, |i, scale| to[i] = scale);
    }

    /// Minus the products of `scales` with the zero points of `outputs` in a row of words, to which a number is added; or with the middle
    /// of integers of `bits`.
    fn of_zero_points(
        isa: Isa,
        packed: PackedDim,
        zero_points: (Option<(&[u8], u32)>, usize),
        outputs: Range<usize>,
        scales: &[f32],
        biases: &mut [f32],
    ) {
        let (zero_points, bits) = zero_points;
        let Some((words, offset)) = zero_points else {
            biases.iter_mut().zip(scales).for_each(|(bias, scale)| *bias = -scale * (1 << (bits - 1)) as f32);
            return;
        };
        if bits == 4 && (outputs.start | outputs.end).is_multiple_of(OUTPUTS) {
            let shifts = if packed == PackedDim::Outputs { PLACES } else { [0, 1, 2, 3, 4, 5, 6, 7] }.map(|place| 4 * place);
            let words = &words.as_chunks::<4>().0[outputs.start / OUTPUTS..outputs.end / OUTPUTS];
            for (word, biases) in words.iter().zip(biases.as_chunks_mut::<OUTPUTS>().0) {
                let word = u32::from_le_bytes(*word);
                for (bias, shift) in biases.iter_mut().zip(&shifts) {
                    *bias = ((word >> shift & 15) + offset) as i32 as f32;
                }
            }
        } else {
            let fields = outputs.map(|output| field(words, bits, output) + offset);
            biases.iter_mut().zip(fields).for_each(|(bias, zero)| *bias = zero as i32 as f32);
        }
        biases.iter_mut().zip(scales).for_each(|(bias, scale)| *bias *= -scale);
    }
}

/// The product of floats with columns of [`PackedDim::Inputs`] whose inputs are of groups out of order: `g_idx` has the group of each, a
/// word of 32 bits, all of them below the number of groups. A weight is made in a register, as by [`multiply_transposed`].
///
/// # Errors
/// When there is no memory for scales and zero points as floats.
///
/// [`multiply_transposed`]: crate::multiply_transposed
pub fn multiply_shuffled(
    isa: Isa,
    bits: usize,
    columns: &Columns<'_>,
    g_idx: &[u8],
    outputs: Range<usize>,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let g_idx = g_idx.as_chunks::<4>().0;
    assert!(columns.packed == PackedDim::Inputs && g_idx.len() == input.inputs() && outputs.end <= columns.width);
    assert_eq!(columns.words.len() * 8, columns.width * input.inputs() * bits, "words of {} outputs", columns.width);
    let mut floats = Lines::default();
    let [scales, biases] = columns.factors(isa, bits, &outputs, true, &mut floats)?;
    by_inputs(isa, (columns, bits), g_idx, [scales, biases], outputs, input, y);
    Ok(())
}

compiled_for! {
    fn by_inputs(
        isa: Isa,
        columns: (&Columns<'_>, usize),
        g_idx: &[[u8; 4]],
        factors: [&[f32]; 2],
        outputs: Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) {
        let (Columns { words, width, .. }, bits) = columns;
        let (words, count) = (words.as_chunks::<4>().0, outputs.len());
        by_tiles(count, input, y, |i, part, row| {
            let from = u32::from_le_bytes(g_idx[i]) as usize * count + part.start;
            let [scales, biases] = factors.map(|floats| &floats[from..][..part.len()]);
            // The words in which the field begins and ends.
            let stored = |bit: usize| &words[bit / 32 * width + outputs.start + part.start..][..part.len()];
            let (stored, shift) = (stored(i * bits).iter().zip(stored(i * bits + bits - 1)), i * bits % 32);
            for (((to, (low, high)), scale), bias) in row.iter_mut().zip(stored).zip(scales).zip(biases) {
                let [low, high] = [low, high].map(|word| u32::from_le_bytes(*word));
                let field = (low >> shift | high << 1 << (31 - shift)) & ((1 << bits) - 1);
                *to = field as f32 * scale + bias;
            }
        });
    }
}
