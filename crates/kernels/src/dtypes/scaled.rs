//! Dtypes whose blocks have their scales in a tensor of their own: how they are multiplied once they are unpacked.
//!
//! Scales are read where they are stored, those of groups by all blocks that share them. What is added up in which order is that of
//! other block dtypes (`blocks.rs`).

mod registered;
mod runs;
mod zero_points;

pub(crate) use registered::{scaled_kernels, scaled_level};
pub use runs::RunScales;
pub(crate) use runs::Runs;
pub use zero_points::{ZeroPoints, multiply_with_zero_points};

use super::blocks::Unpacked;
use super::{mxfp4, nvfp4};
use crate::memory;
use crate::ops::vector::Floats;
use crate::order::BLOCK;
use model_factory_dtypes::DType;

/// The scales of a weight's rows, stored apart from it.
#[derive(Clone, Copy, Debug)]
pub enum BlockScales<'a> {
    /// Powers of 2 (E8M0), a byte for each 32 elements.
    Powers(&'a [u8]),
    /// Floats of 8 bits (E4M3) without a sign, a byte for each 16 elements; 0x7f is 0.
    Halves(&'a [u8]),
    /// Floats, one for each `group` elements, a multiple of 32.
    Floats {
        /// Elements that share a scale.
        group: usize,
        /// The scales of all rows in order.
        scales: Floats<'a>,
    },
    /// Floats as [`BlockScales::Floats`], and as many of the same dtype that are added: an element is `scale * field + bias`, of the
    /// stored field, unsigned.
    Affine {
        /// Elements that share a scale and a bias.
        group: usize,
        /// The scales of all rows in order.
        scales: Floats<'a>,
        /// The biases of all rows in order.
        biases: Floats<'a>,
    },
    /// Floats, one for each rectangle of weights (E4M3).
    Rectangles {
        /// Rows and inputs of a rectangle; inputs are a multiple of 32, or at least those of a row. The last ones of a row or column
        /// may be cut.
        sides: [usize; 2],
        /// Rows of the first rectangles before those that are multiplied.
        before: usize,
        /// The scales, `[rectangles below each other, rectangles side by side]`.
        scales: Floats<'a>,
    },
    /// Floats, one for each run of consecutive weights (NF4 and FP4), which may end within a row.
    Runs {
        /// Weights of a run, a power of 2.
        size: usize,
        /// Weights of the first runs before those that are multiplied.
        before: usize,
        /// The scales of all runs in order.
        scales: RunScales<'a>,
    },
}

/// The most scales that kernels read at once.
const TOGETHER: usize = 16;

/// The scales of the blocks of a call's rows, as its kernel reads them.
#[derive(Clone, Copy)]
pub(crate) enum CallScales<'a> {
    /// The blocks hold their scales.
    InBlocks,
    Powers(Powers<'a>),
    Halves(Halves<'a>),
    Groups(Groups<'a>),
    Affine(Affine<'a>),
    Rectangles(Rectangles<'a>),
    Runs(Runs<'a>),
}

/// Exponents, one for each block, in rows of `blocks`.
#[derive(Clone, Copy)]
pub(crate) struct Powers<'a> {
    exponents: &'a [u8],
    blocks: usize,
}

/// Floats of 8 bits, one for each half block, in rows of `blocks`.
#[derive(Clone, Copy)]
pub(crate) struct Halves<'a> {
    floats: &'a [u8],
    blocks: usize,
}

/// Floats, at least [`TOGETHER`], one for each group of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a> {
    pub(crate) scales: Floats<'a>,
    /// Blocks of a row.
    blocks: usize,
    /// Groups of a row.
    pub(crate) groups: usize,
    /// Block `b` of a row is of group `b >> shift`.
    pub(crate) shift: u32,
}

/// Scales and biases, one of each for each group of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Affine<'a> {
    pub(crate) scales: Groups<'a>,
    pub(crate) biases: Groups<'a>,
    /// What is subtracted from stored fields.
    pub(crate) middle: f32,
}

/// Floats, one for each rectangle of a call's rows.
#[derive(Clone, Copy)]
pub(crate) struct Rectangles<'a> {
    sides: [usize; 2],
    /// Rows of the first rectangles before those of the call.
    before: usize,
    scales: Floats<'a>,
    /// Rectangles side by side.
    across: usize,
}

/// The scales of a call's rows, whose inputs are in parts that have one each.
pub(crate) trait Parts: Copy {
    /// Inputs of a part; the last one of a row may have fewer.
    fn part(&self) -> usize;

    /// Parts of a row.
    fn across(&self) -> usize;

    /// The same number for rows that have the same scales.
    fn below(&self, row: usize) -> usize;

    /// The scale of a part of `row`.
    fn at(&self, row: usize, part: usize) -> f32;

    /// The scales of all parts of `row`.
    #[inline(always)]
    fn of_row(&self, row: usize, scales: &mut [f32]) {
        for (part, scale) in scales.iter_mut().enumerate() {
            *scale = self.at(row, part);
        }
    }
}

impl Parts for Rectangles<'_> {
    fn part(&self) -> usize {
        self.sides[1]
    }

    fn across(&self) -> usize {
        self.across
    }

    fn below(&self, row: usize) -> usize {
        (self.before + row) / self.sides[0]
    }

    fn at(&self, row: usize, part: usize) -> f32 {
        self.scales.get(self.below(row) * self.across + part)
    }
}

impl<'a> BlockScales<'a> {
    /// Makes values of the elements of one row, which are less their middle where they have `bits` bits and biases. Panics unless there
    /// are as many scales as that takes, and for runs, which are scales of products only.
    pub(crate) fn apply(self, bits: usize, row: &mut [f32]) {
        let middle = (1 << (bits - 1)) as f32;
        let (size, count) = match self {
            BlockScales::Powers(exponents) => (BLOCK, exponents.len()),
            BlockScales::Halves(floats) => (BLOCK / 2, floats.len()),
            BlockScales::Floats { group, scales } | BlockScales::Affine { group, scales, .. } => (group, scales.len()),
            BlockScales::Rectangles { sides, scales, .. } => (sides[1], scales.len()),
            BlockScales::Runs { .. } => unreachable!("only of products"),
        };
        assert!(size > 0 && row.len().div_ceil(size) == count, "{count} scales of {} elements", row.len());
        for (index, part) in row.chunks_mut(size).enumerate() {
            let (scale, added, bias) = match self {
                BlockScales::Powers(exponents) => (2.0 * mxfp4::scale(exponents[index]), 0.0, 0.0),
                BlockScales::Halves(floats) => (2.0 * nvfp4::scale(floats[index]), 0.0, 0.0),
                BlockScales::Floats { scales, .. } | BlockScales::Rectangles { scales, .. } => {
                    (scales.get(index), 0.0, 0.0)
                }
                BlockScales::Affine { scales, biases, .. } => (scales.get(index), middle, biases.get(index)),
                BlockScales::Runs { .. } => unreachable!("only of products"),
            };
            part.iter_mut().for_each(|x| *x = scale * (*x + added) + bias);
        }
    }

    /// The scale of each block of `rows` rows of `inputs` elements of so many `bits`. Panics unless there are as many as that takes.
    /// Where groups are neither powers of 2 nor whole rows, or the scales fewer than kernels read at once, `spread` has one for each
    /// block.
    pub(crate) fn of_blocks<'s: 'a>(
        self,
        [rows, inputs]: [usize; 2],
        bits: usize,
        spread: &'s mut [Vec<u8>; 2],
    ) -> memory::Result<CallScales<'a>> {
        let blocks = inputs / BLOCK;
        let [first, second] = spread;
        match self {
            BlockScales::Powers(exponents) => {
                assert_eq!(exponents.len(), rows * blocks, "scales of {rows} rows of {blocks} blocks");
                Ok(CallScales::Powers(Powers { exponents, blocks }))
            }
            BlockScales::Halves(floats) => {
                assert_eq!(floats.len(), 2 * rows * blocks, "scales of {rows} rows of {blocks} blocks");
                Ok(CallScales::Halves(Halves { floats, blocks }))
            }
            BlockScales::Floats { group, scales } => {
                Groups::new(group, scales, [rows, blocks], first).map(CallScales::Groups)
            }
            BlockScales::Affine { group, scales, biases } => {
                assert_eq!(scales.dtype(), biases.dtype(), "the dtype of scales and biases");
                let scales = Groups::new(group, scales, [rows, blocks], first)?;
                let biases = Groups::new(group, biases, [rows, blocks], second)?;
                Ok(CallScales::Affine(Affine { scales, biases, middle: (1 << (bits - 1)) as f32 }))
            }
            BlockScales::Rectangles { sides, before, scales } => {
                assert!(sides[0] > 0 && before < sides[0], "rectangles of {sides:?}, {before} rows before");
                assert!(
                    sides[1] >= inputs || sides[1] > 0 && sides[1].is_multiple_of(BLOCK),
                    "rectangles of {sides:?}"
                );
                let across = inputs.div_ceil(sides[1]);
                let all = (before + rows).div_ceil(sides[0]) * across;
                assert_eq!(scales.len(), all, "scales of {rows} rows of {inputs} in rectangles of {sides:?}");
                Ok(CallScales::Rectangles(Rectangles { sides, before, scales, across }))
            }
            BlockScales::Runs { size, before, scales } => {
                Ok(CallScales::Runs(Runs::new(size, before, scales, [rows, inputs])))
            }
        }
    }
}

impl<'a> Powers<'a> {
    /// The exponents of the `N` blocks from number `N * place[1]` of row `place[0]` on, and those after them.
    #[inline(always)]
    pub(crate) fn of_blocks<const N: usize>(&self, [row, step]: [usize; 2]) -> &'a [u8] {
        self.exponents.get(row * self.blocks + N * step..).unwrap_or_default()
    }

    /// A block of all rows, of elements that are doubled.
    pub(crate) fn unpacked(&self, block: usize, quants: [i8; BLOCK]) -> Unpacked {
        Unpacked::scaled(mxfp4::scale(self.exponents[block]), quants)
    }
}

impl<'a> Halves<'a> {
    /// Like [`Powers::of_blocks`], two for each block.
    #[inline(always)]
    pub(crate) fn of_blocks<const N: usize>(&self, [row, step]: [usize; 2]) -> &'a [u8] {
        self.floats.get(2 * (row * self.blocks + N * step)..).unwrap_or_default()
    }

    /// A block of all rows, of elements that are doubled.
    pub(crate) fn unpacked(&self, block: usize, quants: [i8; BLOCK]) -> Unpacked {
        nvfp4::unpacked(self.floats.as_chunks().0[block], quants)
    }
}

impl<'a> Groups<'a> {
    /// The floats of groups of `group` elements in `rows` rows of `blocks`.
    fn new(
        group: usize,
        scales: Floats<'a>,
        [rows, blocks]: [usize; 2],
        spread: &'a mut Vec<u8>,
    ) -> memory::Result<Groups<'a>> {
        assert!(group > 0 && group.is_multiple_of(BLOCK), "groups of {group}");
        let size = group / BLOCK;
        assert!(blocks.is_multiple_of(size), "groups of {group} in rows of {blocks} blocks");
        assert_eq!(scales.len() * size, rows * blocks, "scales of {rows} rows of {blocks} blocks");
        if scales.len() >= TOGETHER && (size == blocks || size.is_power_of_two()) {
            let shift = if size == blocks { 31 } else { size.ilog2() };
            return Ok(Groups { scales, blocks, groups: blocks / size, shift });
        }
        let all = rows * blocks;
        *spread = memory::zeros(4 * all.max(TOGETHER), "the scales of weights")?;
        for (block, to) in spread.as_chunks_mut::<4>().0.iter_mut().enumerate().take(all) {
            *to = scales.get(block / size).to_le_bytes();
        }
        let scales = Floats::new(DType::F32, spread).unwrap_or(scales);
        Ok(Groups { scales, blocks, groups: blocks, shift: 0 })
    }

    /// The scale of a block of all rows.
    fn of_block(&self, block: usize) -> f32 {
        let [row, block] = [block / self.blocks, block % self.blocks];
        self.scales.get(row * self.groups + (block >> self.shift))
    }

    /// A block of all rows.
    pub(crate) fn unpacked(&self, block: usize, quants: [i8; BLOCK]) -> Unpacked {
        Unpacked::scaled(self.of_block(block), quants)
    }

    /// The number of the group that the `step`-th `N` blocks of `row` begin in.
    #[inline(always)]
    pub(crate) fn first<const N: usize>(&self, [row, step]: [usize; 2]) -> usize {
        row * self.groups + ((N * step) >> self.shift)
    }

    /// For the `step`-th `N` blocks of `row`: the first of `N` scales that are read, and how many before that of the first block.
    #[inline(always)]
    pub(crate) fn place<const N: usize>(&self, place: [usize; 2], count: usize) -> [usize; 2] {
        let first = self.first::<N>(place);
        let from = first.min(count - N);
        [from, first - from]
    }
}

/// The first bytes, with zeros after the last.
#[inline(always)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0; N];
        padded.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        padded
    })
}

impl Affine<'_> {
    /// A block of all rows, whose elements are less their middle.
    pub(crate) fn unpacked(&self, block: usize, quants: [i8; BLOCK]) -> Unpacked {
        let scale = self.scales.of_block(block);
        Unpacked::with_min(scale, -(scale * self.middle + self.biases.of_block(block)), quants)
    }
}

/// The factors of eight blocks, which are number `place[1]` of row `place[0]`: zeros after the last row, and past the end of a row
/// those of other blocks.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod simd {
    use super::*;
    use crate::arch::generic::wide::*;

    for_vectors! {
        pub(crate) fn powers(scales: &Powers<'_>, place: [usize; 2]) -> Factors {
            mxfp4::simd::scales(padded(scales.of_blocks::<8>(place)))
        }

        pub(crate) fn halves(scales: &Halves<'_>, place: [usize; 2]) -> Factors {
            nvfp4::simd::factors(&padded(scales.of_blocks::<8>(place)))
        }

        pub(crate) fn groups(groups: &Groups<'_>, place: [usize; 2]) -> Factors {
            let scales = groups.scales;
            let (skipped, floats) = match scales.dtype() {
                DType::F32 => {
                    let [from, skipped] = groups.place::<8>(place, scales.len_of(4));
                    (skipped, as_floats(load(scales.chunk(4 * from))))
                }
                dtype => {
                    let [from, skipped] = groups.place::<8>(place, scales.len_of(2));
                    let halves = scales.chunk(2 * from);
                    (skipped, if dtype == DType::BF16 { widened_bf16(halves) } else { widened_f16(halves) })
                }
            };
            Factors::scaled(repeated(floats, groups.shift, skipped as u32))
        }

        pub(crate) fn affine(affine: &Affine<'_>, place: [usize; 2]) -> Factors {
            let (scaled, biases) = (groups(&affine.scales, place), groups(&affine.biases, place).scales);
            Factors { mins: negated(add(mul(scaled.scales, all_floats(affine.middle)), biases)), ..scaled }
        }
    }
}
