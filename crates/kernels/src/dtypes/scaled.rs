//! Dtypes whose blocks have their scales in a tensor of their own: how they are multiplied once they are unpacked.
//!
//! Scales are read where they are stored, those of groups by all blocks that share them. What is added up in which order is that of
//! other block dtypes (`blocks.rs`).

use super::blocks::Unpacked;
use super::{mxfp4, nvfp4};
use crate::input::Input;
use crate::isa::Isa;
use crate::memory;
use crate::ops::vector::{Floats, add_scaled, for_each_float};
use crate::order::BLOCK;
use crate::scratch::{Scratch, room, with_scratch};
use model_factory_dtypes::DType;
use std::ops::Range;

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

impl Rectangles<'_> {
    /// Inputs of a rectangle.
    pub(crate) fn inputs(&self) -> usize {
        self.sides[1]
    }

    /// Rectangles side by side.
    pub(crate) fn across(&self) -> usize {
        self.across
    }

    /// The place of the rectangles of `row`, below each other.
    pub(crate) fn below(&self, row: usize) -> usize {
        (self.before + row) / self.sides[0]
    }

    /// The scale of the rectangle in place `across` of those that `row` is in.
    pub(crate) fn at(&self, row: usize, across: usize) -> f32 {
        self.scales.get(self.below(row) * self.across + across)
    }
}

impl<'a> CallScales<'a> {
    /// Panics for other scales.
    pub(crate) fn rectangles(self) -> Rectangles<'a> {
        let CallScales::Rectangles(rectangles) = self else { unreachable!("scales of rectangles") };
        rectangles
    }
}

impl<'a> BlockScales<'a> {
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

    /// For the `step`-th `N` blocks of `row`: the first of `N` scales that are read, and how many before that of the first block.
    #[inline(always)]
    pub(crate) fn place<const N: usize>(&self, [row, step]: [usize; 2], count: usize) -> [usize; 2] {
        let first = row * self.groups + ((N * step) >> self.shift);
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

/// The zero points of a weight's groups, for all rows: by how much integers are larger than the values they represent.
#[derive(Clone, Copy, Debug)]
pub enum ZeroPoints<'a> {
    /// Signed bytes, `[rows, groups]`.
    Bytes(&'a [u8]),
    /// Words `[rows / fields of a word, groups]`, rounded up; the fields of a word are zero points of consecutive rows, the first in
    /// the lowest bits.
    Words {
        /// The bytes of the words.
        words: &'a [u8],
        /// The dtype of the fields, U4 or U8.
        of: DType,
    },
}

impl ZeroPoints<'_> {
    /// The zero point of `group` of `row`, in rows of `groups`.
    #[inline]
    fn at(self, row: usize, group: usize, groups: usize) -> i32 {
        match self {
            ZeroPoints::Bytes(bytes) => i32::from(bytes[row * groups + group] as i8),
            ZeroPoints::Words { words, of } => {
                let bits = if of == DType::U4 { 4 } else { 8 };
                let each = 32 / bits;
                let word = u32::from_le_bytes(words.as_chunks().0[row / each * groups + group]);
                (word >> (row % each * bits) & ((1 << bits) - 1)) as i32 - (1 << (bits - 1))
            }
        }
    }
}

/// Subtracts the part of zero points from the outputs `y` `[tokens, rows]`: for each group of `size` inputs, in order,
/// `scale * zero point` times the sum of its activations. `scales` has the scales of `rows`. Panics when lengths do not match, or `input`
/// is in another form than [`Form::Q16`] or [`Form::Q8`].
///
/// # Errors
/// When there is no memory for the products of scales and zero points.
pub fn subtract_zero_points(
    isa: Isa,
    zero_points: ZeroPoints<'_>,
    scales: Floats<'_>,
    rows: Range<usize>,
    size: usize,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let (groups, each) = (input.inputs() / size, size / BLOCK);
    let parts = input.form().rows_of_token();
    assert!(input.form().in_blocks() && groups * each * BLOCK == input.inputs() && !rows.is_empty());
    assert_eq!(scales.len(), rows.len() * groups, "scales of {} rows", rows.len());
    assert_eq!(y.len(), input.tokens() / parts * rows.len(), "outputs of {} rows", rows.len());
    with_scratch(|Scratch { floats: columns, .. }| {
        let columns = room(columns, scales.len())?;
        for_each_float(scales, |index, scale| {
            let (row, group) = (index / groups, index % groups);
            columns[group * rows.len() + row] = scale * zero_points.at(rows.start + row, group, groups) as f32;
        });
        for (token, y) in y.chunks_exact_mut(rows.len()).enumerate() {
            for (group, column) in columns.chunks_exact(rows.len()).enumerate() {
                let of_group = group * each..(group + 1) * each;
                let of_block = |b| (0..parts).map(|part| input.block_sum(parts * token + part, b)).sum::<f32>();
                let sum = of_group.map(of_block).sum::<f32>();
                add_scaled(isa, y, column, -sum);
            }
        }
        Ok(())
    })
}

/// The registry's entries of a dtype with scales apart. Its file has `BYTES` of a block, `unpack(block)` with the 32 elements less
/// their offset, and `value(element)`. Here are, for each kind of the call's scales, the format's elements, how vectors unpack 32 of
/// them at the place `PLACE`, and the module of `crate::arch::x86_64::avx512` with the product.
macro_rules! scaled_kernels {
    ($dtype:ident, $name:literal, $form:ident; $(
        $scales:ident: $kind:ident { $($elements:tt)* }, |$block:ident| $vector:expr, avx512: $avx512:ident;
    )+) => {
        use $crate::{Call, dtypes::scaled::CallScales};

        const PORTABLE: $crate::Registered = $crate::Registered {
            name: concat!($name, "/portable"),
            dtype: model_factory_dtypes::DType::$dtype,
            tier: model_factory_dtypes::Tier::Native,
            form: $crate::Form::$form,
            sets: $crate::isa::Sets::PORTABLE,
            scaled: true,
            matmul: portable,
            dequantize: |row, out| {
                for (out, block) in out.as_chunks_mut().0.iter_mut().zip(row.as_chunks::<BYTES>().0) {
                    *out = unpack(block).map(value);
                }
            },
        };

        pub(in $crate::dtypes) const KERNELS: &[$crate::Registered] = {
            #[allow(unused_imports)]
            use $crate::isa::Sets;
            &[
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/avx512-vnni"), Sets::AVX512.and(Sets::VNNI), simd::avx512_vnni),
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/avx2"), Sets::AVX2, simd::avx2),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/i8mm"), Sets::I8MM, simd::i8mm),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/dotprod"), Sets::DOTPROD, simd::dotprod),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/neon"), Sets::NEON, simd::neon),
                PORTABLE,
            ]
        };

        fn portable(call: &mut Call<'_>) {
            match call.scales {
                $(CallScales::$kind(scales) => {
                    $crate::dtypes::blocks::define_format!(Portable { $($elements)* });
                    $crate::dtypes::blocks::product::<Portable, BYTES>(call, |stored, _, block| {
                        scales.unpacked(block, unpack(stored))
                    });
                })+
                _ => unreachable!(concat!("other scales than those of ", $name)),
            }
        }

        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        mod simd {
            use super::*;
            #[cfg(target_arch = "aarch64")]
            use $crate::arch::aarch64::neon;
            use $crate::arch::generic::wide::*;
            #[cfg(target_arch = "x86_64")]
            use $crate::arch::x86_64;

            const EIGHT: usize = 8 * BYTES;

            $(mod $scales {
                use super::*;

                /// For activations of `PARTS` rows a token.
                pub(super) struct Scaled<'a, const PARTS: usize>(pub(super) $crate::dtypes::scaled::$kind<'a>);

                impl<const PARTS: usize> $crate::dtypes::blocks::Format for Scaled<'_, PARTS> {
                    const ELEMENTS: $crate::dtypes::blocks::Elements = {
                        use $crate::dtypes::blocks::Elements;
                        Elements { parts: PARTS, ..Elements { $($elements)*, ..Elements::BYTES } }
                    };
                }

                impl<const PARTS: usize> EightBlocks<EIGHT> for Scaled<'_, PARTS> {
                    #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
                    #[cfg_attr(target_arch = "aarch64", inline(always))]
                    unsafe fn elements<const PLACE: u8>(&self, eight: &[u8; EIGHT]) -> [Bytes; 8] {
                        elements::<PLACE>(eight)
                    }

                    #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
                    #[cfg_attr(target_arch = "aarch64", inline(always))]
                    unsafe fn factors<const PLACE: u8>(&self, _: &[u8; EIGHT], place: [usize; 2]) -> Factors {
                        $crate::dtypes::scaled::simd::$scales(&self.0, place)
                    }
                }

                for_vectors! {
                    /// The elements with their offset.
                    fn elements<const PLACE: u8>(eight: &[u8; EIGHT]) -> [Bytes; 8] {
                        let blocks = eight.as_chunks::<BYTES>().0;
                        let mut elements = [all(0); 8];
                        for b in 0..8 {
                            let $block = &blocks[b];
                            elements[b] = $vector;
                        }
                        elements
                    }
                }
            })+

            $crate::dtypes::scaled::scaled_level!(
                avx2, "x86_64", "avx2,fma,f16c"; $($scales: $kind, x86_64::avx2::multiply);+
            );
            $crate::dtypes::scaled::scaled_level!(
                avx512_vnni, "x86_64", "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni";
                $($scales: $kind, x86_64::avx512::$avx512::multiply::<_, EIGHT, { 2 * EIGHT }>);+
            );
            $crate::dtypes::scaled::scaled_level!(
                neon, "aarch64", "neon"; $($scales: $kind, neon::plain::multiply);+
            );
            $crate::dtypes::scaled::scaled_level!(
                dotprod, "aarch64", "neon,dotprod"; $($scales: $kind, neon::dotprod::multiply);+
            );
            $crate::dtypes::scaled::scaled_level!(
                i8mm, "aarch64", "neon,dotprod,i8mm"; $($scales: $kind, neon::i8mm::multiply);+
            );
        }
    };
}
pub(crate) use scaled_kernels;

/// The product of a level, next to the modules of `Scaled`.
macro_rules! scaled_level {
    ($name:ident, $arch:literal, $features:literal; $($scales:ident: $kind:ident, $multiply:expr);+) => {
        #[cfg(target_arch = $arch)]
        #[target_feature(enable = $features)]
        pub(super) fn $name(call: &mut Call<'_>) {
            match call.scales {
                $(CallScales::$kind(scales) if call.input.form() == PORTABLE.form => {
                    $multiply(call, &$scales::Scaled::<{ PORTABLE.form.rows_of_token() }>(scales));
                }
                CallScales::$kind(scales) => $multiply(call, &$scales::Scaled::<1>(scales)),)+
                _ => unreachable!("other scales"),
            };
        }
    };
}
pub(crate) use scaled_level;

#[cfg(test)]
mod tests {
    use super::*;
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
        let kinds = FIELDS.map(|dtype| (dtype, true)).into_iter().chain([(DType::U4, false), (DType::U8, false)]);
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
                for form in [Form::Q16, Form::Q8] {
                    assert_scaled(&mut random, (form, DType::F4), &weight, inputs, shape, scales, value);
                }
                let floats: Vec<u8> =
                    (0..2 * of_rows).map(|i| if i < 256 { i as u8 } else { random.bytes(1)[0] }).collect();
                let scale = |row: usize, i: usize| match floats[2 * row * blocks + i / 16] {
                    0x7f => 0.0,
                    byte if byte & 0x78 == 0 => f32::from(byte & 7) * 2f32.powi(-9),
                    byte => f32::from(8 + (byte & 7)) * 2f32.powi(i32::from(byte >> 3 & 15) - 10),
                };
                let scales = BlockScales::Halves(&floats);
                let value = |row: usize, i: usize, element: f32| f64::from(element * scale(row, i));
                for form in [Form::Q16, Form::Q8] {
                    assert_scaled(&mut random, (form, DType::F4), &weight, inputs, shape, scales, value);
                }
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
            kernel.dequantize_affine_row(&row, 64, scales, biases, &mut out);
            for (i, out) in out.into_iter().enumerate() {
                let field =
                    (0..bits).map(|b| u32::from(row[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b).sum::<u32>();
                let value = f64::from(scales.get(i / 64)) * f64::from(field) + f64::from(biases.get(i / 64));
                assert_eq!(out, value as f32, "{dtype} {i}");
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
