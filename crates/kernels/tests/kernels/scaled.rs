//! Products with scales of blocks of packed integers and floats of four bits, beside double precision.

use super::testing::{FIELDS, Random, as_rounded, each_isa, widened};
use super::{BlockScales, DType, Floats, Form, Input, Isa, Kernel, bits};

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
    let x = random.floats(tokens * inputs);
    let what = |isa| format!("{dtype} {isa} {form:?}: {rows} rows of {inputs}, {tokens} tokens, {scales:?}");
    let product = |isa, x: &[f32]| {
        let kernel = Kernel::select(dtype, isa).unwrap();
        let input = Input::prepare(isa, form, x, inputs);
        let mut y = vec![f32::NAN; x.len() / inputs * rows];
        kernel.matmul_scaled(weight, scales, &input, &mut y).unwrap();
        y
    };
    let portable = product(Isa::portable(), &x);
    let elements = widened(&Kernel::select(dtype, Isa::portable()).unwrap(), weight, inputs);
    let values: Vec<f64> = (0..).zip(elements).map(|(i, element)| value(i / inputs, i % inputs, element)).collect();
    let rounded = as_rounded(form, &x, inputs);
    for (at, y) in portable.iter().enumerate() {
        let (token, row) = (at / rows, at % rows);
        let products = values[row * inputs..].iter().zip(&rounded[token * inputs..][..inputs]).map(|(w, x)| w * x);
        let (exact, size) = (products.clone().sum::<f64>(), products.map(f64::abs).sum::<f64>());
        // A rounding of each product with a scale, and of each of the sums in a lane.
        let bound = size * 2f64.powi(-23) * (4.0 + (inputs / 512) as f64);
        assert!((f64::from(*y) - exact).abs() <= bound, "{}: {y}, not {exact}", what(Isa::portable()));
    }
    for isa in each_isa() {
        let y = product(isa, &x);
        assert_eq!(y, portable, "{}: the bits of portable code", what(isa));
        assert!(y.ends_with(&product(isa, &x[x.len() - inputs..])), "{}: the last token alone", what(isa));
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
        let middle = f64::from(1 << (bits(dtype) - 1));
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
        let bits = bits(dtype);
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

/// The two rows of [`Form::Q16`] have activations to 16 bits of a block's largest.
#[test]
fn activations_keep_sixteen_bits() {
    let mut random = Random::new(5);
    let mut x = random.floats(512);
    x.iter_mut().enumerate().for_each(|(i, x)| *x *= [1.0, 1e-3, 300.0][i % 3]);
    let rounded = as_rounded(Form::Q16, &x, 512);
    for (block, rounded) in x.chunks(32).zip(rounded.chunks(32)) {
        let largest = block.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        for (x, rounded) in block.iter().zip(rounded) {
            assert!((f64::from(*x) - rounded).abs() <= f64::from(largest) / 64516.0 * 1.001, "{x} {rounded}");
        }
    }
}
