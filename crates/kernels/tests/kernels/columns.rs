//! Weights that are packed by columns (GPTQ, AWQ), beside double precision of their integers.

use super::testing::{Random, as_rounded, each_isa};
use super::{DType, Floats, Form, Input, Isa, Kernel, bits};
use model_factory_dtypes::{PackedDim, thread_bytes};
use model_factory_kernels::{Columns, Scratch, multiply_columns, multiply_shuffled, swap_scratch};
use std::ops::Range;

/// The outputs in a word of [`PackedDim::Outputs`], from the lowest bits on.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Long rows and short ones, of the largest tasks.
#[test]
fn threads_take_no_more_than_is_planned() {
    let mut random = Random::new(62);
    for isa in each_isa() {
        for (dtype, packed) in [
            (DType::U2, PackedDim::Inputs),
            (DType::U3, PackedDim::Inputs),
            (DType::U4, PackedDim::Inputs),
            (DType::U4, PackedDim::Outputs),
            (DType::U8, PackedDim::Inputs),
        ] {
            for (inputs, tokens) in [(256, 1), (8192, 1), (256, 8), (8192, 8), (256, 40), (8192, 40)] {
                let (kernel, groups) = (Kernel::select(dtype, isa).unwrap(), inputs / 32);
                let width = kernel.columns_per_task(usize::MAX, [1 << 20, inputs, groups], tokens, 1);
                let words = vec![0x77; width * kernel.row_bytes(inputs)];
                let (scales, zeros) = (vec![0; 2 * groups * width], vec![0; groups * width]);
                let scales = Floats::new(DType::F16, &scales).unwrap();
                let zero_points = Some((&zeros[..groups * width * bits(dtype) / 8], 0));
                let columns = Columns { words: &words, packed, width, group: 32, scales, zero_points };
                let input = Input::prepare(isa, kernel.form, &random.floats(tokens * inputs), inputs);
                let (mut own, mut y) = (Scratch::default(), vec![0.0; tokens * width]);
                swap_scratch(&mut own);
                multiply_columns(&kernel, isa, &columns, 0..width, &input, &mut y).unwrap();
                swap_scratch(&mut own);
                let (taken, most) = (own.bytes(), thread_bytes(inputs, tokens) as usize);
                assert!(
                    taken <= most,
                    "{dtype} {packed:?} {isa}: {taken} of {most}, {tokens} x {inputs}, {width} outputs"
                );
            }
        }
    }
}

/// Every layout against float64 of the integers, written into words by what their definition says; and the same bits by every
/// instruction set and for every part of the outputs and the tokens.
#[test]
fn columns_are_multiplied_as_their_words_say() {
    let mut random = Random::new(61);
    let cases = [
        (DType::U4, PackedDim::Inputs, 32, 32, 8),
        (DType::U4, PackedDim::Inputs, 256, 128, 72),
        (DType::U4, PackedDim::Inputs, 608, 32, 40),
        (DType::U4, PackedDim::Inputs, 320, 64, 272),
        (DType::U2, PackedDim::Inputs, 32, 32, 16),
        (DType::U2, PackedDim::Inputs, 544, 544, 80),
        (DType::U3, PackedDim::Inputs, 320, 64, 96),
        (DType::U3, PackedDim::Inputs, 608, 32, 32),
        (DType::U8, PackedDim::Inputs, 192, 64, 40),
        (DType::U8, PackedDim::Inputs, 544, 544, 132),
        (DType::U4, PackedDim::Outputs, 32, 32, 8),
        (DType::U4, PackedDim::Outputs, 256, 128, 200),
        (DType::U4, PackedDim::Outputs, 608, 32, 40),
        (DType::U4, PackedDim::Outputs, 320, 64, 272),
    ];
    for (dtype, packed, inputs, group, width) in cases {
        let bits = bits(dtype);
        let (groups, tokens) = (inputs / group, 9);
        let integers: Vec<u32> = (0..inputs * width).map(|_| random.bits() as u32 >> 7 & ((1 << bits) - 1)).collect();
        let zeros: Vec<u32> = (0..groups * width).map(|_| random.bits() as u32 >> 7 & ((1 << bits) - 1)).collect();
        // Fields one after the other, each bit where their definition says.
        let stream = |fields: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
            let bits: Vec<u32> = fields.flat_map(|field| (0..bits).map(move |bit| field >> bit & 1)).collect();
            bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect()
        };
        let along_outputs = |integers: &[u32]| match packed {
            PackedDim::Inputs => stream(&mut integers.iter().copied()),
            PackedDim::Outputs => stream(&mut integers.chunks(8).flat_map(|eight| ORDER.map(|output| eight[output]))),
        };
        let stored: Vec<u8> = match packed {
            PackedDim::Outputs => along_outputs(&integers),
            PackedDim::Inputs => {
                let column = |o| stream(&mut integers.iter().skip(o).step_by(width).copied());
                let columns: Vec<Vec<u8>> = (0..width).map(column).collect();
                let words = 0..inputs * bits / 32;
                words.flat_map(|k| columns.iter().flat_map(move |column| column[4 * k..][..4].to_vec())).collect()
            }
        };
        // A byte in front removes any alignment.
        let [stored, stored_zeros] = [stored, along_outputs(&zeros)].map(|bytes| [vec![0], bytes].concat());
        let scales: Vec<half::f16> = random.floats(groups * width).into_iter().map(half::f16::from_f32).collect();
        let scale_bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let x = random.floats(tokens * inputs);
        let rounded = as_rounded(Form::Q16, &x, inputs);
        for zero_points in [None, Some(0), Some(1)] {
            let columns = Columns {
                words: &stored[1..],
                packed,
                width,
                group,
                scales: Floats::new(DType::F16, &scale_bytes).unwrap(),
                zero_points: zero_points.map(|offset| (&stored_zeros[1..], offset)),
            };
            let product = |isa, tokens: Range<usize>, outputs: Range<usize>| {
                let kernel = Kernel::select(dtype, isa).unwrap();
                let input = Input::prepare(isa, kernel.form, &x[tokens.start * inputs..tokens.end * inputs], inputs);
                let mut y = vec![f32::NAN; tokens.len() * outputs.len()];
                multiply_columns(&kernel, isa, &columns, outputs, &input, &mut y).unwrap();
                y
            };
            let what = format!("{dtype} {packed:?} {inputs} x {width}, groups of {group}, zeros {zero_points:?}");
            let zero_of = |g: usize, o: usize| {
                zero_points.map_or(1 << (bits - 1), |offset| (zeros[g * width + o] + offset) as i32)
            };
            let weight = |g: usize, i: usize, o: usize| {
                f64::from(integers[i * width + o] as i32 - zero_of(g, o)) * scales[g * width + o].to_f64()
            };
            let bound = |g: &dyn Fn(usize) -> usize, x: &[f64], o: usize| {
                let size: f64 =
                    x.iter().enumerate().map(|(i, x)| scales[g(i) * width + o].to_f64().abs() * x.abs()).sum();
                // Roundings of products and sums, of integers up to the largest.
                size * f64::from(1 << bits) * 2f64.powi(-22) * (4.0 + (inputs / 32) as f64)
            };
            let whole = product(Isa::portable(), 0..tokens, 0..width);
            for (at, y) in whole.iter().enumerate() {
                let (token, o) = (at / width, at % width);
                let x = &rounded[token * inputs..][..inputs];
                let exact: f64 = (0..inputs).map(|i| weight(i / group, i, o) * x[i]).sum();
                assert!((f64::from(*y) - exact).abs() <= bound(&|i| i / group, x, o), "{what}, {at}");
            }
            for isa in each_isa() {
                assert_eq!(product(isa, 0..tokens, 0..width), whole, "{isa} {what}");
                for (some, part) in [(0..1, 0..width), (8..9, width / 16 * 8..width), (1..4, 8..width), (0..1, 3..5)] {
                    if packed == PackedDim::Outputs && part.start % 8 > 0 {
                        continue;
                    }
                    let found = product(isa, some.clone(), part.clone());
                    let expected = some.flat_map(|token| &whole[token * width..][part.clone()]);
                    assert!(found.iter().eq(expected), "{isa} {what}, {part:?}");
                }
            }
            if packed == PackedDim::Outputs {
                continue;
            }
            let group_of: Vec<usize> = (0..inputs).map(|i| (i * 7 + 3) % groups).collect();
            let stored_groups: Vec<u8> = group_of.iter().flat_map(|g| (*g as u32).to_le_bytes()).collect();
            let mut first: Option<Vec<f32>> = None;
            for isa in each_isa() {
                let input = Input::prepare(isa, Form::F32, &x, inputs);
                let mut y = vec![f32::NAN; tokens * width];
                multiply_shuffled(isa, bits, &columns, &stored_groups, 0..width, &input, &mut y).unwrap();
                for (at, y) in y.iter().enumerate() {
                    let (token, o) = (at / width, at % width);
                    let x: Vec<f64> = x[token * inputs..][..inputs].iter().map(|x| f64::from(*x)).collect();
                    let exact: f64 = (0..inputs).map(|i| weight(group_of[i], i, o) * x[i]).sum();
                    assert!((f64::from(*y) - exact).abs() <= bound(&|i| group_of[i], &x, o), "{isa} {what}, {at}");
                }
                let [start, end] = [width / 3, width.min(width / 3 + 40)];
                let mut part = vec![f32::NAN; tokens * (end - start)];
                multiply_shuffled(isa, bits, &columns, &stored_groups, start..end, &input, &mut part).unwrap();
                let expected = (0..tokens).flat_map(|token| &y[token * width..][start..end]);
                assert!(part.iter().eq(expected), "{isa} {what}");
                assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "{isa} {what}");
            }
        }
    }
}
