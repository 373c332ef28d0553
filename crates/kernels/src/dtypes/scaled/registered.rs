//! How a dtype with scales apart is registered, and compiled for each level.

/// The registry's entries of a dtype with scales apart. Its file has `BYTES` of a block, `unpack(block)` with the 32 elements less
/// their offset, and `value(element)`. Here are the form of activations and the one on request; and for each kind of the call's scales, the format's elements, how vectors unpack 32 of
/// them at the place `PLACE`, and the module of `crate::arch::x86_64::avx512` with the product.
macro_rules! scaled_kernels {
    ($dtype:ident, $name:literal, $form:ident or $less:ident; $(
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

        /// Rows of activations for a token on request.
        const LESS: usize = $crate::Form::$less.rows_of_token();

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
                CallScales::$kind(scales) => {
                    assert_eq!(call.input.form().rows_of_token(), LESS, "the form of activations");
                    $multiply(call, &$scales::Scaled::<LESS>(scales));
                })+
                _ => unreachable!("other scales"),
            };
        }
    };
}
pub(crate) use scaled_level;
