//! Codes of tables (NF4, FP4): their values, and scales of runs.

use super::testing::{Random, assert_widened};
use super::{BlockScales, DType, Floats, Isa, Kernel, RunScales};

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
