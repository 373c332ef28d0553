//! Code that all block dtypes share: the contents of a block, registration, values, and the product in plain Rust.
//!
//! A dtype's file unpacks 32 elements at a time into [`Unpacked`]. Everything portable follows from that: the values of a
//! row, and the product that every vector version equals bit by bit.
//!
//! # The order of sums
//!
//! The products of a block are added exactly, in integers. Where half blocks have scales, the products of each half are added,
//! multiplied by its scale and added to those of the other, still exactly unless the scales are floats: then the second half's are
//! added to the first's by a fused multiply-add. The sums of activations with the minima of halves are exact too. Block `b` of 32 elements then adds `sum * (scale * scale of x)` to lane `b` modulo 16 by a fused multiply-add, in order.
//! Minima follow by another: `-min * (scale of x * sum of x)`, or `-sum of minima * (min * scale of x)` for minima of halves.
//! The lanes are added by `sum_lanes`.

use crate::memory;
use crate::order::BLOCK;
use crate::{Call, LANES, sum_lanes};

/// The elements of a block dtype in the vector versions, and the factors that are stored next to them.
pub(crate) struct Elements {
    /// Bits of an element: up to 6 unsigned, 8 signed.
    pub(crate) bits: u32,
    /// What must be subtracted from elements; 0 or a power of 2.
    pub(crate) offset: i32,
    /// Whether blocks have minima, or half blocks if these have scales.
    pub(crate) mins: bool,
    /// Whether half blocks have scales.
    pub(crate) halves: bool,
    /// Whether these are floats, E4M3 without a sign, instead of integers.
    pub(crate) floats: bool,
    /// Rows of the input for each token, which are multiplied with the same elements and added.
    pub(crate) parts: usize,
    /// Whether the products with one token have the elements at even places of a block before those at odd ones: the low halves of
    /// bytes with two elements before the high ones.
    pub(crate) evens_first: bool,
    /// Whether the product with one token by AVX-512 unpacks in a function that is not inlined: where that takes many registers.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))] // read by AVX-512 only
    pub(crate) apart: bool,
}

impl Elements {
    /// Signed bytes with a scale for each block.
    pub(crate) const BYTES: Elements = Elements {
        bits: 8,
        offset: 0,
        mins: false,
        halves: false,
        floats: false,
        parts: 1,
        evens_first: false,
        apart: false,
    };
}

/// [`Elements`] of a block dtype, for code that is compiled for each.
pub(crate) trait Format {
    const ELEMENTS: Elements;
    const BITS: u32 = Self::ELEMENTS.bits;
    const OFFSET: i32 = Self::ELEMENTS.offset;
    const MINS: bool = Self::ELEMENTS.mins;
    const HALVES: bool = Self::ELEMENTS.halves;
    const FLOATS: bool = Self::ELEMENTS.floats;
    const PARTS: usize = Self::ELEMENTS.parts;
    /// Whether AVX-512 multiplies elements with an offset of 128: all but unsigned ones with minima.
    #[cfg(target_arch = "x86_64")]
    const RAISED: bool = !Self::MINS || Self::OFFSET > 0 || Self::BITS == 8;
    /// The right shift of an offset that holds 128 times a sum.
    const SHIFT: i32 = if Self::OFFSET > 0 { 7 - Self::OFFSET.ilog2() as i32 } else { 0 };
}

/// 32 elements of a row. Element `i` of half `h` is `scale * (scales[h] * quants[i]) - min * mins[h]`.
pub(crate) struct Unpacked {
    pub(crate) quants: [i8; BLOCK],
    pub(crate) scale: f32,
    /// The scales of the first and of the second 16 elements; 1 where the dtype has none.
    pub(crate) scales: [f32; 2],
    pub(crate) min: f32,
    pub(crate) mins: [i32; 2],
}

impl Unpacked {
    /// A block with one scale.
    #[inline(always)]
    pub(crate) fn scaled(scale: f32, quants: [i8; BLOCK]) -> Unpacked {
        Unpacked::with_min(scale, 0.0, quants)
    }

    /// A block with one scale and one minimum.
    #[inline(always)]
    pub(crate) fn with_min(scale: f32, min: f32, quants: [i8; BLOCK]) -> Unpacked {
        Unpacked { quants, scale, scales: [1.0; 2], min, mins: [1; 2] }
    }

    /// A block whose halves have integer scales.
    #[inline(always)]
    pub(crate) fn halves(scale: f32, scales: [i32; 2], quants: [i8; BLOCK]) -> Unpacked {
        Unpacked { scales: scales.map(|scale| scale as f32), ..Unpacked::scaled(scale, quants) }
    }
}

/// 32 nibbles of 16 bytes: element `i` in the low and element `i + 16` in the high half of byte `i`.
#[inline(always)]
pub(crate) fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| bytes[i % 16] >> (4 * (i / 16)) & 15)
}

/// The values of a row. `unpack(block, b)` has the `b`-th 32 elements of a stored block.
pub(crate) fn dequantize<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], usize) -> Unpacked,
) {
    let (stored, _) = row.as_chunks::<BYTES>();
    let each = out.len() / BLOCK / stored.len().max(1);
    for (b, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let Unpacked { quants, scale, scales, min, mins } = unpack(&stored[b / each], b % each);
        for (i, (out, q)) in out.iter_mut().zip(quants).enumerate() {
            *out = scale * (scales[i / 16] * f32::from(q)) - min * mins[i / 16] as f32;
        }
    }
}

/// Rows times all tokens; `unpack` as in [`dequantize`], and gets the number of the block among those of all rows.
#[inline(always)]
pub(crate) fn product<F: Format, const BYTES: usize>(
    call: &mut Call<'_>,
    unpack: impl Fn(&[u8; BYTES], usize, usize) -> Unpacked,
) {
    let (weight, input) = (call.weight, call.input);
    let (blocks, parts) = (input.inputs() / BLOCK, input.form().rows_of_token());
    let room = || -> memory::Result<(Vec<_>, Vec<Unpacked>)> {
        let tokens = memory::collected((0..input.tokens()).map(|token| input.blocks(token)), "the rows of an input")?;
        Ok((tokens, memory::reserved(blocks, "an unpacked row")?))
    };
    let (tokens, mut row) = match room() {
        Ok(room) => room,
        Err(refused) => return call.note(Err(refused)),
    };
    for (index, stored) in weight.chunks_exact(weight.len() / call.rows()).enumerate() {
        let (stored, _) = stored.as_chunks::<BYTES>();
        let each = blocks / stored.len();
        row.clear();
        for (i, block) in stored.iter().enumerate() {
            row.extend((0..each).map(|b| unpack(block, b, index * stored.len() + i)));
        }
        for (token, x) in tokens.iter().enumerate() {
            let mut lanes = [0.0f32; LANES];
            for (b, w) in row.iter().enumerate() {
                let (x, x_scale) = x(b);
                let dot = |half: usize| -> i32 {
                    let pairs = w.quants[16 * half..][..16].iter().zip(&x[16 * half..][..16]);
                    pairs.map(|(&q, &x)| i32::from(q) * i32::from(x)).sum()
                };
                let x_sum = |half: usize| -> i32 { x[16 * half..][..16].iter().map(|&x| i32::from(x)).sum() };
                let sum = match F::HALVES {
                    true => (dot(1) as f32).mul_add(w.scales[1], dot(0) as f32 * w.scales[0]),
                    false => (dot(0) + dot(1)) as f32,
                };
                let lane = &mut lanes[b % LANES];
                *lane = sum.mul_add(w.scale * x_scale, *lane);
                if F::MINS && F::HALVES {
                    let mins = w.mins[0] * x_sum(0) + w.mins[1] * x_sum(1);
                    *lane = (-mins as f32).mul_add(w.min * x_scale, *lane);
                } else if F::MINS {
                    *lane = (-w.min).mul_add(x_scale * (x_sum(0) + x_sum(1)) as f32, *lane);
                }
            }
            let y = &mut call.part(token / parts, index, 1)[0];
            *y = if token % parts == 0 { sum_lanes(lanes) } else { *y + sum_lanes(lanes) };
        }
    }
}

/// A [`Format`] whose [`Elements`] are [`Elements::BYTES`] except for the given fields.
macro_rules! define_format {
    ($format:ident { $($elements:tt)* }) => {
        #[derive(Default)]
        pub(crate) struct $format;

        impl $crate::dtypes::blocks::Format for $format {
            const ELEMENTS: $crate::dtypes::blocks::Elements = {
                use $crate::dtypes::blocks::Elements;
                Elements { $($elements)*, ..Elements::BYTES }
            };
        }
    };
}
pub(crate) use define_format;

/// The registry's entries of a block dtype; its module has `BYTES` of a stored block, `unpack` and its format. Vector versions use
/// `$format`; for AVX2 and AVX-512 VNNI the named modules of `crate::arch::x86_64` may have products of their own.
macro_rules! block_kernels {
    (
        $dtype:ident, $name:literal, $format:ident $elements:tt, $eight:expr
        $(, avx512: $avx512:ident $(, avx2: $avx2:ident)?)?
    ) => {
        $crate::dtypes::blocks::define_format!($format $elements);
        $crate::dtypes::blocks::block_kernels!(
            @registered $dtype, $name, $format, $eight, "avx512-vnni", VNNI,
            $crate::dtypes::blocks::block_kernels!(
                @or [$($crate::arch::x86_64::avx512::$avx512::matmul)?]
                $crate::arch::x86_64::avx512::blocks::matmul::<$format, { $eight }, { 2 * $eight }>
            ),
            $crate::dtypes::blocks::block_kernels!(
                @or [$($($crate::arch::x86_64::avx2::$avx2::matmul)?)?]
                $crate::arch::x86_64::avx2::matmul::<$format, { $eight }>
            )
        );
    };
    (@or [] $shared:expr) => { $shared };
    (@or [$own:expr] $shared:expr) => { $own };
    (@registered $dtype:ident, $name:literal, $format:ident, $eight:expr,
        $widest:literal, $sets:ident, $avx512:expr, $avx2:expr
    ) => {
        const PORTABLE: $crate::Registered = $crate::Registered {
            name: concat!($name, "/portable"),
            dtype: model_factory_dtypes::DType::$dtype,
            tier: model_factory_dtypes::Tier::Native,
            form: $crate::Form::Q8,
            sets: $crate::isa::Sets::PORTABLE,
            scaled: false,
            matmul: |call| $crate::dtypes::blocks::product::<$format, BYTES>(call, |block, b, _| unpack(block, b)),
            dequantize: |row, out| $crate::dtypes::blocks::dequantize(row, out, unpack),
        };

        pub(super) const KERNELS: &[$crate::Registered] = {
            use $crate::isa::Sets;
            #[cfg(target_arch = "aarch64")]
            use $crate::arch::aarch64::neon;
            &[
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/", $widest), Sets::AVX512.and(Sets::$sets), $avx512),
                #[cfg(target_arch = "x86_64")]
                PORTABLE.by(concat!($name, "/avx2"), Sets::AVX2, $avx2),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/i8mm"), Sets::I8MM, neon::i8mm::matmul::<$format, { $eight }>),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/dotprod"), Sets::DOTPROD, neon::dotprod::matmul::<$format, { $eight }>),
                #[cfg(target_arch = "aarch64")]
                PORTABLE.by(concat!($name, "/neon"), Sets::NEON, neon::plain::matmul::<$format, { $eight }>),
                PORTABLE,
            ]
        };
    };
}
pub(crate) use block_kernels;

/// Like [`block_kernels`] for a dtype with a scale for each half block, whose module has a format `Halves`, and whose sums are too
/// wide for the shared products of x86: the portable one, compiled for each instruction set. NEON adds up in 32 bits.
macro_rules! compiled_block_kernels {
    ($dtype:ident, $name:literal) => {
        $crate::dtypes::blocks::block_kernels!(
            @registered $dtype, $name, Halves, BYTES, "avx512", PORTABLE, avx512, avx2
        );

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn avx512(call: &mut $crate::Call<'_>) {
            $crate::dtypes::blocks::product::<Halves, BYTES>(call, |block, b, _| unpack(block, b));
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2(call: &mut $crate::Call<'_>) {
            $crate::dtypes::blocks::product::<Halves, BYTES>(call, |block, b, _| unpack(block, b));
        }

        #[cfg(target_arch = "aarch64")]
        $crate::dtypes::blocks::eights! {
            Halves, BYTES;

            fn elements(stored: &[u8; BYTES]) -> [Bytes; 8] {
                let mut elements = [all(0); 8];
                for (b, elements) in elements.iter_mut().enumerate() {
                    *elements = load_numbers(&unpack(stored, b).quants);
                }
                elements
            }

            fn factors(stored: &[u8; BYTES]) -> Factors {
                let mut halves = [0; 16];
                for (b, halves) in halves.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    *halves = unpack(stored, b).scales.map(|scale| scale as i8 as u8);
                }
                Factors { halves: load_16(&halves), ..Factors::scaled(all_floats(unpack(stored, 0).scale)) }
            }
        }
    };
}
pub(crate) use compiled_block_kernels;

/// How `$format` unpacks eight blocks, whose bytes are `$eight`: by the functions `elements` and `factors`, for which all
/// of `crate::arch::generic::wide` is in scope.
macro_rules! eights {
    ($format:ident, $eight:expr; $($functions:tt)*) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        const _: () = {
            #[allow(unused_imports)]
            use $crate::arch::generic::wide::{self, *};

            $crate::arch::generic::wide::for_vectors! { $($functions)* }

            impl EightBlocks<{ $eight }> for $format {
                #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
                #[cfg_attr(target_arch = "aarch64", inline(always))]
                unsafe fn elements<const PLACE: u8>(&self, eight: &[u8; $eight]) -> [Bytes; 8] {
                    elements(eight)
                }

                #[cfg_attr(target_arch = "x86_64", inline, target_feature(enable = "avx2,f16c"))]
                #[cfg_attr(target_arch = "aarch64", inline(always))]
                unsafe fn factors<const PLACE: u8>(&self, eight: &[u8; $eight], _: [usize; 2]) -> Factors {
                    factors(eight)
                }
            }
        };
    };
}
pub(crate) use eights;

/// Like [`eights`] for blocks unpacked one by one: `$elements` are those of a block, and `$factors_of` has the factors of some.
macro_rules! eight_blocks {
    ($format:ident, $factors_of:path, |$block:ident| $elements:expr) => {
        $crate::dtypes::blocks::eights! {
            $format, 8 * BYTES;

            fn elements(eight: &[u8; 8 * BYTES]) -> [Bytes; 8] {
                let blocks = eight.as_chunks::<BYTES>().0;
                let mut elements = [all(0); 8];
                // The loop uses an index: a loop over zipped chunks may remain, through memory.
                for b in 0..8 {
                    let $block = &blocks[b];
                    elements[b] = $elements;
                }
                elements
            }

            fn factors(eight: &[u8; 8 * BYTES]) -> Factors {
                $factors_of(eight.as_chunks::<BYTES>().0)
            }
        }
    };
}
pub(crate) use eight_blocks;
