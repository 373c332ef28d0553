//! NF4 and FP4: codes of 4 bits that stand for the floats of a table (bitsandbytes 0.50 `functional.py`, `get_4bit_type`). Byte `i` of a
//! row has code `2 * i` in its high half and `2 * i + 1` in its low half. Their scales lie apart, one for each run of weights.
//!
//! A code is looked up in registers, and its float multiplied by its scale there.

use super::codes::{Codes, code_kernels};
use super::scaled::{CallScales, Runs};
use crate::Registered;
use crate::arch::generic::simd::Simd;

pub(super) const NF4: &[Registered] = code_kernels!(NF4, "nf4", Nf4);
pub(super) const FP4: &[Registered] = code_kernels!(FP4, "fp4", Fp4);

/// Quantiles of a normal distribution (QLoRA, arXiv 2305.14314).
pub(crate) struct Nf4;

/// A sign, 2 bits of exponent and one of fraction, divided by the largest.
pub(crate) struct Fp4;

trait Table {
    const VALUES: [f32; 16];
}

impl Table for Nf4 {
    #[rustfmt::skip]
    const VALUES: [f32; 16] = [
        -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
        0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
    ];
}

impl Table for Fp4 {
    #[rustfmt::skip]
    const VALUES: [f32; 16] = [
        0.0, 0.0625 / 12.0, 8.0 / 12.0, 1.0, 4.0 / 12.0, 0.5, 2.0 / 12.0, 0.25,
        0.0, -0.0625 / 12.0, -8.0 / 12.0, -1.0, -4.0 / 12.0, -0.5, -2.0 / 12.0, -0.25,
    ];
}

impl<T: Table> Codes for T {
    const EACH: usize = 2;
    type Scales<'a> = Runs<'a>;
    type Factor<S: Simd> = S::Table;

    fn scales(scales: CallScales<'_>) -> Runs<'_> {
        let CallScales::Runs(runs) = scales else { unreachable!("scales of runs") };
        runs
    }

    fn dequantize(row: &[u8], out: &mut [f32]) {
        for (out, byte) in out.as_chunks_mut().0.iter_mut().zip(row) {
            *out = [byte >> 4, byte & 15].map(|code| T::VALUES[usize::from(code)]);
        }
    }

    fn has_nan(_: &[u8]) -> bool {
        false
    }

    #[inline(always)]
    fn one<S: Simd>(simd: S) -> S::Table {
        simd.table(const { &T::VALUES })
    }

    #[inline(always)]
    fn scaled<S: Simd>(simd: S, one: S::Table, scale: f32) -> S::Table {
        simd.scaled(one, scale)
    }

    #[inline(always)]
    fn as_loaded<S: Simd>(simd: S, v: S::Floats) -> S::Floats {
        simd.as_looked_up(v)
    }

    #[inline(always)]
    fn in_order<S: Simd>(simd: S, v: S::Floats) -> S::Floats {
        simd.in_order(v)
    }

    #[inline(always)]
    unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const u8, left: usize, by: S::Table) -> S::Floats {
        // SAFETY: the caller guarantees it.
        unsafe { simd.look_up::<WHOLE>(by, at, left) }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Random, assert_widened};
    use crate::{BlockScales, Floats, Isa, Kernel, RunScales};
    use model_factory_dtypes::DType;

    /// The values that bitsandbytes stores next to weights, in the order of the codes of `0x01, 0x23` and so on.
    #[test]
    fn codes_have_their_values() {
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let values = |dtype| {
            let mut values = [0.0; 16];
            Kernel::select(dtype, Isa::detect()).unwrap().dequantize_row(&bytes, &mut values);
            values
        };
        let fp4 = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0, 0.0, -0.0625, -8.0, -12.0, -4.0, -6.0, -2.0, -3.0];
        assert_eq!(values(DType::FP4), fp4.map(|value: f32| value / 12.0));
        let nf4 = values(DType::NF4);
        assert!(
            nf4.is_sorted()
                && nf4[7] == 0.0
                && nf4[1] == -0.696_192_800_998_687_7_f64 as f32
                && nf4[14] == 0.722_956_836_223_602_3_f64 as f32
        );
    }

    /// Runs of all sizes, which end anywhere in a row, with scales in floats and in bytes.
    #[test]
    fn runs_have_their_scales() {
        let mut random = Random::new(13);
        // The size of a run, inputs, and weights before the first.
        #[rustfmt::skip]
        let cases: [(usize, usize, usize); 12] = [
            (64, 576, 0), (64, 64, 128), (128, 2048, 64), (4096, 320, 640), (32, 96, 0), (64, 96, 96), (64, 200, 0), (64, 100, 300),
            (256, 34, 68), (64, 2, 6), (64, 1040, 48), (32, 16, 16),
        ];
        for (dtype, (size, inputs, before)) in
            cases.into_iter().flat_map(|case| [DType::NF4, DType::FP4].map(|d| (d, case)))
        {
            let rows = 150;
            let runs = (before + rows * inputs).div_ceil(size);
            let weight = random.stored(dtype, rows * inputs);
            let floats = |random: &mut Random, len: usize| -> Vec<[u8; 4]> {
                random.floats(len).into_iter().map(f32::to_le_bytes).collect()
            };
            let scales = floats(&mut random, runs);
            let (bytes, table) = (random.bytes(runs), floats(&mut random, 256));
            let (factors, offset) = (floats(&mut random, runs.div_ceil(256)), 0.3);
            let [of_runs, values, of_groups] =
                [&scales, &table, &factors].map(|floats| Floats::new(DType::F32, floats.as_flattened()).unwrap());
            let kinds = [
                RunScales::Floats(of_runs),
                RunScales::Nested { bytes: &bytes, table: values, factors: of_groups, offset },
            ];
            for kind in kinds {
                let scale = |run: usize| match kind {
                    RunScales::Floats(scales) => scales.get(run),
                    RunScales::Nested { .. } => {
                        let value = f32::from_le_bytes(table[usize::from(bytes[run])]);
                        value * f32::from_le_bytes(factors[run / 256]) + offset
                    }
                };
                let mut values = vec![0.0; rows * inputs];
                Kernel::select(dtype, Isa::portable()).unwrap().dequantize_row(&weight, &mut values);
                let scales = |rows: std::ops::Range<usize>| BlockScales::Runs {
                    size,
                    before: before + rows.start * inputs,
                    scales: kind,
                };
                assert_widened(&mut random, dtype, &weight, [rows, inputs], scales, |row, i| {
                    let at = row * inputs + i;
                    f64::from(values[at]) * f64::from(scale((before + at) / size))
                });
            }
        }
    }
}
