//! Floats of eight bits: each byte, scales of rectangles, bytes that are no numbers.

use super::testing::{Random, assert_widened, each_isa};
use super::{BlockScales, DType, Floats, Input, Isa, Kernel};
use std::ops::Range;

/// The value of a byte as the format defines it.
fn defined(byte: u8) -> f64 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction / 8.0 * 2f64.powi(-6),
        _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The product with these scales, by the best kernel of `isa`.
fn product(isa: Isa, weight: &[u8], scales: BlockScales<'_>, x: &[f32], inputs: usize) -> Vec<f32> {
    let kernel = Kernel::select(DType::F8_E4M3, isa).unwrap();
    let input = Input::prepare(isa, kernel.form, x, inputs);
    let mut y = vec![f32::NEG_INFINITY; weight.len() / inputs * (x.len() / inputs)];
    kernel.matmul_scaled(weight, scales, &input, &mut y).unwrap();
    y
}

#[test]
fn every_byte_is_widened_exactly() {
    let bytes: Vec<u8> = (0..=255).collect();
    let kernel = Kernel::select(DType::F8_E4M3, Isa::portable()).unwrap();
    let mut values = vec![0.0; 256];
    kernel.dequantize_row(&bytes, &mut values);
    let one = 1f32.to_le_bytes();
    for (byte, value) in values.iter().enumerate() {
        let exact = defined(byte as u8);
        assert!(f64::from(*value) == exact || value.is_nan() && exact.is_nan(), "{byte:#x}: {value}, not {exact}");
        for isa in each_isa() {
            // In every place of a vector and of the rest of a row.
            for (inputs, tokens) in [(1, 1), (7, 2), (19, 1), (48, 3)] {
                let mut x = vec![0.0; inputs * tokens];
                for at in 0..inputs {
                    let mut weight = vec![0; inputs];
                    weight[at] = byte as u8;
                    x.fill(0.0);
                    x.chunks_mut(inputs).for_each(|x| x[at] = 0.5);
                    let scales = Floats::new(DType::F32, &one).unwrap();
                    let scales = BlockScales::Rectangles { sides: [1, usize::MAX], before: 0, scales };
                    for y in product(isa, &weight, scales, &x, inputs) {
                        let right = f64::from(y) == exact / 2.0 || y.is_nan() && exact.is_nan();
                        assert!(right, "{isa}: {byte:#x} at {at} of {inputs}: {y}");
                    }
                }
            }
        }
    }
    let finite = values.iter().filter(|value| value.is_finite()).copied().fold(0.0, f32::max);
    assert_eq!((finite, values[1]), (448.0, 2f32.powi(-9)));
}

/// Rectangles of all shapes, cut at the right and below, scales of every dtype.
#[test]
fn rectangles_have_their_scales() {
    let mut random = Random::new(11);
    #[rustfmt::skip]
    let cases = [
        ([128, 128], 576_usize, 0, DType::F32), ([128, 128], 576, 5, DType::BF16), ([128, 128], 65, 9, DType::F16),
        ([3, 32], 100, 2, DType::F8_E8M0), ([1, usize::MAX], 333, 0, DType::BF16), ([64, 96], 2080, 63, DType::F8_E8M0),
        ([usize::MAX; 2], 128, 0, DType::F32),
    ];
    for (sides, inputs, before, dtype) in cases {
        let (rows, across) = (150, inputs.div_ceil(sides[1]));
        let weight = random.stored(DType::F8_E4M3, rows * inputs);
        let scales = random.floats((rows + before).div_ceil(sides[0]) * across);
        let bytes: Vec<u8> = match dtype {
            DType::F32 => scales.iter().flat_map(|s| (s * 0.01).to_le_bytes()).collect(),
            DType::BF16 => scales.iter().flat_map(|s| half::bf16::from_f32(*s).to_le_bytes()).collect(),
            DType::F16 => scales.iter().flat_map(|s| half::f16::from_f32(*s).to_le_bytes()).collect(),
            _ => scales.iter().map(|s| (120.0 + 5.0 * s) as u8).collect(),
        };
        let stored = Floats::new(dtype, &bytes).unwrap();
        let wide: Vec<f32> = (0..scales.len()).map(|i| stored.get(i)).collect();
        let scales = |rows: Range<usize>| {
            let first = (before + rows.start) / sides[0];
            let size = dtype.block_bytes() * across;
            let of_rows = first * size..(before + rows.end).div_ceil(sides[0]) * size;
            let scales = Floats::new(dtype, &bytes[of_rows]).unwrap();
            BlockScales::Rectangles { sides, before: (before + rows.start) % sides[0], scales }
        };
        assert_widened(&mut random, DType::F8_E4M3, &weight, [rows, inputs], scales, |row, i| {
            let scale = wide[(before + row) / sides[0] * across + i / sides[1]];
            defined(weight[row * inputs + i]) * f64::from(scale)
        });
    }
}

/// Outputs of other rows stay numbers.
#[test]
fn a_row_with_a_byte_that_is_no_number_has_no_outputs() {
    let mut random = Random::new(12);
    let one = 1f32.to_le_bytes();
    for inputs in [5, 64, 300] {
        for byte in [0x7f, 0xff] {
            for at in [0, inputs / 2, inputs - 1] {
                let mut weight = random.stored(DType::F8_E4M3, 9 * inputs);
                weight[6 * inputs + at] = byte;
                for (isa, tokens) in each_isa().into_iter().flat_map(|isa| [1, 2, 4].map(|tokens| (isa, tokens))) {
                    let scales = Floats::new(DType::F32, &one).unwrap();
                    let scales = BlockScales::Rectangles { sides: [usize::MAX; 2], before: 0, scales };
                    // A zero times no number is none.
                    let y = product(isa, &weight, scales, &vec![0.0; tokens * inputs], inputs);
                    for (i, y) in y.iter().enumerate() {
                        assert_eq!(y.is_nan(), i % 9 == 6, "{isa}: output {i} of {inputs} inputs is {y}");
                    }
                }
            }
        }
    }
}
