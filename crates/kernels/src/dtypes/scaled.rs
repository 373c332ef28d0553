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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::testing::{FIELDS, Random, as_rounded, each_isa, widened};
    use crate::{Form, Input, Kernel};

    const SHAPES: [[usize; 2]; 5] = [[1, 1], [17, 1], [16, 2], [33, 3], [19, 9]];

    /// Every instruction set's product of rows whose weights are `value(row, input, element)`, with these `scales`: within the rounding
    /// of F32 sums of the product in double precision, of activations as `form` rounds them, and the same bits, of a token alone too.
    fn assert_scaled(
        random: &mut Random,
        (form, dtype): (Form, DType),
        weight: &[u8],
        inputs: usize,
        [rows, tokens]: [usize; 2],
        scales: BlockScales<'_>,
        value: impl Fn(usize, usize, f32) -> f64,
    ) {
        let portable = Kernel::select(dtype, Isa::portable()).unwrap();
        let x = random.floats(tokens * inputs);
        let rounded = as_rounded(form, &x, inputs);
        let elements = widened(&portable, weight, inputs);
        let mut first: Option<Vec<f32>> = None;
        for isa in each_isa() {
            let kernel = Kernel::select(dtype, isa).unwrap();
            let product = |x: &[f32]| {
                let input = Input::prepare(isa, form, x, inputs);
                let mut y = vec![f32::NAN; x.len() / inputs * rows];
                kernel.matmul_scaled(weight, scales, &input, &mut y).unwrap();
                y
            };
            let y = product(&x);
            assert!(y.ends_with(&product(&x[x.len() - inputs..])), "{dtype} {isa}: the last token alone");
            let what = format!("{dtype} {isa} {form:?}: {rows} rows of {inputs}, {tokens} tokens, {scales:?}");
            for (at, y) in y.iter().enumerate() {
                let (token, row) = (at / rows, at % rows);
                let value = |i: usize| value(row, i, elements[row * inputs + i]);
                let products = (0..inputs).map(|i| value(i) * rounded[token * inputs + i]);
                let (exact, size) = (products.clone().sum::<f64>(), products.map(f64::abs).sum::<f64>());
                // A rounding of each product with a scale, and of each of the sums in a lane.
                let bound = size * 2f64.powi(-23) * (4.0 + (inputs / 512) as f64);
                assert!((f64::from(*y) - exact).abs() <= bound, "{what}: {y}, not {exact}");
            }
            assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "{what}: the bits of portable code");
        }
    }

    /// Groups of every size, scales of every dtype, biases of groups.
    #[test]
    fn groups_have_their_scales() {
        let mut random = Random::new(4);
        let others = [DType::U4, DType::U8, DType::S8].map(|dtype| (dtype, false));
        let kinds = FIELDS.map(|dtype| (dtype, true)).into_iter().chain(others);
        for ((dtype, affine), (group, inputs)) in kinds.flat_map(|kind| {
            [(32, 32), (32, 96), (64, 640), (128, 384), (544, 544), (1024, 2048)].map(|sizes| (kind, sizes))
        }) {
            let middle = f64::from(1 << (Kernel::select(dtype, Isa::portable()).unwrap().bits() - 1));
            for shape in SHAPES {
                let weight = random.stored(dtype, shape[0] * inputs);
                let count = shape[0] * (inputs / group);
                for scale_dtype in [DType::F32, DType::BF16, DType::F16] {
                    let [scales, biases] = [(); 2].map(|()| random.stored(scale_dtype, count));
                    let [scales, biases] = [&scales, &biases].map(|bytes| Floats::new(scale_dtype, bytes).unwrap());
                    let value = |row: usize, i: usize, element: f32| {
                        let of_group = |of: Floats<'_>| f64::from(of.get(row * (inputs / group) + i / group));
                        let element = f64::from(element);
                        match affine {
                            true => of_group(scales) * (element + middle) + of_group(biases),
                            false => of_group(scales) * element,
                        }
                    };
                    let scales = match affine {
                        true => BlockScales::Affine { group, scales, biases },
                        false => BlockScales::Floats { group, scales },
                    };
                    for form in [Form::Q16, Form::Q8] {
                        assert_scaled(&mut random, (form, dtype), &weight, inputs, shape, scales, value);
                    }
                }
            }
        }
    }

    /// Powers of 2, the least of which are subnormal, and floats of 8 bits, of which all bytes are in it.
    #[test]
    fn floats_of_four_bits_have_their_scales() {
        let mut random = Random::new(6);
        for blocks in [1, 2, 7, 8, 9, 15, 16, 17, 33, 64] {
            for shape in SHAPES {
                let (inputs, of_rows) = (32 * blocks, shape[0] * blocks);
                let weight = random.stored(DType::F4, shape[0] * inputs);
                let powers: Vec<u8> = random.bytes(of_rows).iter().map(|byte| 117 + byte % 20).collect();
                let scale = |row: usize, i: usize| 2f32.powi(i32::from(powers[row * blocks + i / 32]) - 127);
                let scales = BlockScales::Powers(&powers);
                let value = |row: usize, i: usize, element: f32| f64::from(element * scale(row, i));
                assert_scaled(&mut random, (Form::Q16, DType::F4), &weight, inputs, shape, scales, value);
                let floats: Vec<u8> =
                    (0..2 * of_rows).map(|i| if i < 256 { i as u8 } else { random.bytes(1)[0] }).collect();
                let scale = |row: usize, i: usize| match floats[2 * row * blocks + i / 16] {
                    0x7f => 0.0,
                    byte if byte & 0x78 == 0 => f32::from(byte & 7) * 2f32.powi(-9),
                    byte => f32::from(8 + (byte & 7)) * 2f32.powi(i32::from(byte >> 3 & 15) - 10),
                };
                let scales = BlockScales::Halves(&floats);
                let value = |row: usize, i: usize, element: f32| f64::from(element * scale(row, i));
                assert_scaled(&mut random, (Form::Q16, DType::F4), &weight, inputs, shape, scales, value);
            }
        }
    }

    /// The values of rows with biases are those of MLX: `scale * field + bias`, rounded once where the scale has 16 bits.
    #[test]
    fn rows_with_biases_have_their_values() {
        let mut random = Random::new(6);
        for dtype in FIELDS {
            let kernel = Kernel::select(dtype, Isa::detect()).unwrap();
            let bits = kernel.bits();
            let row = random.stored(dtype, 256);
            let [scales, biases] = [(); 2].map(|()| random.stored(DType::BF16, 4));
            let [scales, biases] = [&scales, &biases].map(|bytes| Floats::new(DType::BF16, bytes).unwrap());
            let mut out = vec![0.0; 256];
            kernel.dequantize_scaled_row(&row, BlockScales::Affine { group: 64, scales, biases }, &mut out);
            for (i, out) in out.into_iter().enumerate() {
                let field =
                    (0..bits).map(|b| u32::from(row[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b).sum::<u32>();
                let value = f64::from(scales.get(i / 64)) * f64::from(field) + f64::from(biases.get(i / 64));
                assert_eq!(out, value as f32, "{dtype} {i}");
            }
        }
    }

    /// So are those of rows whose scales are powers of 2 or floats of 8 bits.
    #[test]
    fn rows_of_floats_have_their_values() {
        let mut random = Random::new(7);
        let bytes: Vec<u8> = (0..=0xfe).chain([0]).collect();
        let powers = Floats::new(DType::F8_E8M0, &bytes[..40]).unwrap();
        let [power, float] = [
            |byte: u8| 2f64.powi(i32::from(byte) - 127),
            |byte: u8| {
                f64::from(8 * i32::from(byte >> 3 > 0) as u8 + byte % 8) * 2f64.powi((i32::from(byte >> 3)).max(1) - 10)
            },
        ];
        type Case<'a> = (DType, BlockScales<'a>, usize, usize, fn(u8) -> f64);
        let cases: [Case<'_>; 3] = [
            (DType::F4, BlockScales::Powers(&bytes), 32, 256, power),
            (DType::F4, BlockScales::Halves(&bytes[..0x7e]), 16, 0x7e, float),
            (DType::F8_E4M3, BlockScales::Rectangles { sides: [1, 32], before: 0, scales: powers }, 32, 40, power),
        ];
        for (dtype, scales, size, count, scale) in cases {
            let kernel = Kernel::select(dtype, Isa::detect()).unwrap();
            let row = random.stored(dtype, count * size);
            let [mut plain, mut out] = [(); 2].map(|()| vec![0.0; count * size]);
            kernel.dequantize_row(&row, &mut plain);
            kernel.dequantize_scaled_row(&row, scales, &mut out);
            for (i, (plain, out)) in plain.into_iter().zip(out).enumerate() {
                let value = f64::from(plain) * scale(bytes[i / size]);
                assert!(f64::from(out) == value || out == value as f32, "{dtype} {i}: {out}, not {value}");
            }
        }
    }

    /// The two rows of [`Form::Q16`](crate::Form::Q16) have activations to 16 bits of a block's largest.
    #[test]
    fn activations_keep_sixteen_bits() {
        let mut random = Random::new(5);
        let mut x = random.floats(512);
        x.iter_mut().enumerate().for_each(|(i, x)| *x *= [1.0, 1e-3, 300.0][i % 3]);
        let rounded = as_rounded(crate::Form::Q16, &x, 512);
        for (block, rounded) in x.chunks(32).zip(rounded.chunks(32)) {
            let largest = block.iter().fold(0.0f32, |a, x| a.max(x.abs()));
            for (x, rounded) in block.iter().zip(rounded) {
                assert!((f64::from(*x) - rounded).abs() <= f64::from(largest) / 64516.0 * 1.001, "{x} {rounded}");
            }
        }
    }
}
