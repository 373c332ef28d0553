//! Sums against 64 bits, layers against numpy's, and every instruction set against the portable one.

use super::*;
use crate::Kernel;
use crate::testing::{Random, each_isa};
use crate::threads::Pool;

const RULES: [Int8Rule; 4] = [
    Int8Rule::Token { symmetric: true },
    Int8Rule::Token { symmetric: false },
    Int8Rule::Tensor { symmetric: false },
    Int8Rule::Static { scale_bits: 0x3c00_0000, zero: -77 },
];

/// Weights with -128 and 127 among them.
fn weights(random: &mut Random, len: usize) -> Vec<u8> {
    random.bytes(len).iter().enumerate().map(|(i, &b)| [0x80, 0x7f, b, b, b][i % 5]).collect()
}

/// Activations whose integers reach both ends.
fn activations(random: &mut Random, len: usize) -> Vec<f32> {
    random.floats(len).iter().enumerate().map(|(i, &x)| [-2.0, 2.0, x, x * 0.1, x][i % 5]).collect()
}

/// The exact sums, in 64 bits.
fn exact(weight: &[u8], input: &Input) -> Vec<i64> {
    let inputs = input.inputs();
    let sum = |x: Int8Row<'_>, w: &[u8]| {
        let products = w.iter().zip(x.bytes).map(|(&w, &q)| i64::from(w as i8) * (i64::from(q) - i64::from(x.zero)));
        products.sum::<i64>()
    };
    let rows = |token| weight.chunks_exact(inputs).map(move |w| sum(input.int8(token), w));
    (0..input.tokens()).flat_map(rows).collect()
}

/// Like [`Input::prepare`], in memory that held longer rows before.
fn prepare_over_others(isa: Isa, form: Form, x: &[f32], inputs: usize) -> Input {
    let mut input = Input::new();
    let longer = inputs + 64;
    let others: Vec<f32> = (0..x.len() / inputs * longer).map(|i| i as f32).collect();
    input.convert(&Pool::new(1), isa, form, &others, longer).unwrap();
    input.convert(&Pool::new(1), isa, form, x, inputs).unwrap();
    input
}

#[test]
fn sums_are_exact_on_every_instruction_set() {
    let mut random = Random::new(41);
    let mut compared = 0;
    for inputs in [1, 3, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 200, 576, 5632] {
        for rows in [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 50] {
            let weight = weights(&mut random, rows * inputs);
            // The 13 counts of tokens reach every rule.
            for tokens in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 21] {
                let x = activations(&mut random, tokens * inputs);
                let rule = RULES[compared % RULES.len()];
                for isa in each_isa() {
                    let kernel = Kernel::of(KERNELS, isa).unwrap();
                    let input = prepare_over_others(isa, Form::Int8(rule), &x, inputs);
                    let mut y = vec![f32::NAN; rows * tokens];
                    kernel.matmul(&weight, &input, &mut y).unwrap();
                    for (i, (&y, sum)) in y.iter().zip(exact(&weight, &input)).enumerate() {
                        let scale = input.int8(i / rows).scale;
                        let sum = i32::try_from(sum).unwrap();
                        assert_eq!(y, sum as f32 * scale, "{} {rule:?} {tokens} x {rows} x {inputs}", kernel.name);
                    }
                }
                compared += 1;
            }
        }
    }
}

/// The longest row that the diagnosis accepts, with the extremes of weights and activations.
#[test]
fn the_largest_sums_fit() {
    let inputs = I8_MAX_INPUTS as usize;
    for (weight, x, zero) in [(0x80, -1.0, 127), (0x80, 1.0, -128), (0x7f, 1.0, -128), (0x7f, -1.0, 127)] {
        let rule = Int8Rule::Static { scale_bits: (1.0f32 / 512.0).to_bits(), zero };
        // Different code computes 1, 2, 8 and 9 tokens.
        let (weight, x) = (vec![weight; 2 * inputs], vec![x; 9 * inputs]);
        for isa in each_isa() {
            let kernel = Kernel::of(KERNELS, isa).unwrap();
            for tokens in [1, 2, 8, 9] {
                let input = Input::prepare(isa, Form::Int8(rule), &x[..tokens * inputs], inputs);
                let mut y = vec![f32::NAN; 2 * tokens];
                kernel.matmul(&weight, &input, &mut y).unwrap();
                let exact = exact(&weight, &input);
                assert!(exact[0].abs() >= 127 * 255 * inputs as i64, "{}", exact[0]);
                let expected: Vec<f32> = exact.iter().map(|sum| *sum as f32 / 512.0).collect();
                assert_eq!(y, expected, "{} {tokens}", kernel.name);
            }
        }
    }
}

/// The body of the AVX-VNNI kernel, which this machine may lack, by the instruction of AVX-512.
#[test]
#[cfg(target_arch = "x86_64")]
fn sums_of_narrow_vectors_are_exact() {
    // Missing instruction sets were printed, or refused.
    let Some(_proof) = each_isa().into_iter().find(|isa| isa.has(Sets::AVX512.and(Sets::VNNI))) else { return };
    let mut random = Random::new(43);
    for inputs in [1, 31, 32, 33, 64, 95, 200, 576, 5632] {
        for (rows, tokens) in [(1, 1), (2, 2), (3, 3), (5, 4), (7, 9), (16, 1)] {
            let (weight, x) = (weights(&mut random, rows * inputs), activations(&mut random, tokens * inputs));
            for rule in RULES {
                let input = prepare_over_others(Isa::portable(), Form::Int8(rule), &x, inputs);
                let (mut y, mut expected) = (vec![f32::NAN; rows * tokens], vec![f32::NAN; rows * tokens]);
                // SAFETY: the machine has the instructions.
                unsafe {
                    x86_64::avx2::i8::avx_vnni_by_avx512(&mut Call::new(
                        &weight,
                        CallScales::InBlocks,
                        &input,
                        rows,
                        &mut y,
                    ))
                };
                portable(&mut Call::new(&weight, CallScales::InBlocks, &input, rows, &mut expected));
                assert_eq!(y, expected, "{rule:?} {tokens} x {rows} x {inputs}");
            }
        }
    }
}

/// The results of numpy for the same rule, in `fixtures/int8/linear.safetensors`: one layer for each scheme.
#[test]
fn a_layer_is_what_the_rule_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/int8/linear.safetensors");
    let file = std::fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let names: Vec<&str> = tensors.names().into_iter().filter_map(|name| name.strip_suffix("/y")).collect();
    assert!(names.len() >= 9, "only {} layers", names.len());
    for name in names {
        let bytes = |part: &str| tensors.tensor(&format!("{name}/{part}")).unwrap().data().to_vec();
        let floats = |part: &str| -> Vec<f32> {
            bytes(part).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let (x, weight, scale, zero) = (floats("x"), bytes("weight"), floats("scale"), bytes("zero"));
        let y: Vec<f64> = bytes("y").as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let (tokens, rows) = (5, y.len() / 5);
        let inputs = x.len() / tokens;
        let symmetric = !name.ends_with("asymmetric");
        let rule = match name {
            name if name.contains("static") => Int8Rule::Static { scale_bits: scale[0].to_bits(), zero: zero[0] as i8 },
            "llama-dynamic-tensor" => Int8Rule::Tensor { symmetric },
            _ => Int8Rule::Token { symmetric },
        };
        let stored = bytes("weight_scale");
        let scales = Floats::new(DType::F32, &stored).unwrap();
        for isa in each_isa() {
            let input = Input::prepare(isa, Form::Int8(rule), &x, inputs);
            for token in 0..tokens {
                let row = input.int8(token);
                let expected: Vec<i8> = bytes("q")[token * inputs..][..inputs].iter().map(|&q| q as i8).collect();
                assert_eq!(row.bytes, expected, "{isa} {name} token {token}");
                let of = token % scale.len();
                assert_eq!((row.scale.to_bits(), row.zero), (scale[of].to_bits(), i32::from(zero[of] as i8)), "{name}");
            }
            let mut out = vec![0.0; tokens * rows];
            if scales.len() > rows {
                int8_groups(isa, &weight, scales, weight.len() / scales.len(), &input, &mut out).unwrap();
            } else {
                let kernel = Kernel::of(KERNELS, isa).unwrap();
                kernel.matmul_row_scaled(isa, &weight, scales, &input, &mut out).unwrap();
            }
            let square = |x: f64| x * x;
            let apart: f64 = out.iter().zip(&y).map(|(&out, &y)| square(f64::from(out) - y)).sum();
            let norm: f64 = y.iter().map(|&y| square(y)).sum();
            assert!((apart / norm).sqrt() < 1e-6, "{isa} {name}: {}", (apart / norm).sqrt());
        }
    }
}

#[test]
fn groups_are_summed_by_their_scales_alike_everywhere() {
    let mut random = Random::new(42);
    for (inputs, group) in [(128, 32), (192, 64), (256, 128), (60, 20)] {
        let (rows, tokens) = (7, 3);
        let weight = weights(&mut random, rows * inputs);
        let scales = random.floats(rows * inputs / group);
        let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let floats = Floats::new(DType::F32, &bytes).unwrap();
        for rule in RULES {
            let x = activations(&mut random, tokens * inputs);
            let by = |isa| {
                let input = Input::prepare(isa, Form::Int8(rule), &x, inputs);
                let mut y = vec![f32::NAN; rows * tokens];
                int8_groups(isa, &weight, floats, group, &input, &mut y).unwrap();
                y
            };
            let portable = by(Isa::portable());
            let input = Input::prepare(Isa::portable(), Form::Int8(rule), &x, inputs);
            for (i, &y) in portable.iter().enumerate() {
                let (x, row) = (input.int8(i / rows), i % rows);
                let term = |k: usize| {
                    let product = i32::from(weight[row * inputs + k] as i8) * (i32::from(x.bytes[k]) - x.zero);
                    f64::from(product) * f64::from(scales[(row * inputs + k) / group])
                };
                let truth = (0..inputs).map(term).sum::<f64>() * f64::from(x.scale);
                let size = (0..inputs).map(|k| term(k).abs()).sum::<f64>() * f64::from(x.scale);
                // There is a rounding for each group's product and sum, and one for the last product.
                assert!((f64::from(y) - truth).abs() <= 20.0 * 6e-8 * size, "{rule:?} {inputs} {i}");
            }
            each_isa().into_iter().for_each(|isa| assert_eq!(by(isa), portable, "{isa} {rule:?}"));
        }
    }
}
