//! Every registered kernel against the f64 oracle, against itself in other shapes, and across instruction sets.

use super::testing::{
    Random, as_rounded, each_isa, has_minima, lengths, multiply, oracle, product, set_scales, widened,
};
use super::{DType, Form, Input, Isa, Kernel};
use model_factory_dtypes::{Tier, thread_bytes};
use model_factory_kernels::threads::Pool;
use model_factory_kernels::{Scratch, swap_scratch};
use std::collections::HashSet;

const TOKENS: [usize; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 17, 64];
const ROWS: [usize; 9] = [1, 2, 3, 4, 5, 15, 16, 17, 33];

/// The tolerance relative to the sum of magnitudes: half a unit in the last place (2^-24 = 6e-8) for each rounding that an
/// element passes: one for each step in its lane (at most 125 for 1000 elements in 8 lanes), three in the end, two for scales. Sums
/// of random signs stay well below: 70 are allowed.
const TOLERANCE: f64 = 70.0 * 6e-8;

/// The bits of floats, which distinguish -0 from 0.
fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

fn in_blocks(form: Form) -> bool {
    matches!(form, Form::Q8 | Form::Q16)
}

fn kernels() -> Vec<(Kernel, Isa)> {
    kernels_of(each_isa())
}

fn kernels_of(isas: Vec<Isa>) -> Vec<(Kernel, Isa)> {
    let mut kernels: Vec<(Kernel, Isa)> = Vec::new();
    for isa in isas {
        for dtype in Kernel::dtypes() {
            let kernel = Kernel::select(dtype, isa).unwrap();
            if kernels.iter().all(|(known, _)| known.name != kernel.name) {
                kernels.push((kernel, isa));
            }
        }
    }
    kernels
}

#[test]
fn finds_every_registered_kernel() {
    // Each kernel is selected by some level: one after a kernel with fewer sets never is.
    let available = Isa::available();
    let found: HashSet<&str> = kernels_of(available.clone()).iter().map(|(kernel, _)| kernel.name).collect();
    assert_eq!(found, available.into_iter().flat_map(Kernel::names).collect());
    for isa in Isa::available() {
        let names: Vec<(&str, &str)> = Kernel::names(isa).map(|name| name.split_once('/').unwrap()).collect();
        for of_dtype in names.chunk_by(|a, b| a.0 == b.0) {
            assert_eq!(of_dtype.last().unwrap().1, "portable", "{of_dtype:?}");
        }
    }
    assert_eq!(Kernel::select(DType::F8_E5M2, Isa::detect()).map(|kernel| kernel.name), None);
}

#[test]
fn agrees_with_the_oracle() {
    let mut random = Random::new(1);
    let mut worst = 0.0f64;
    for (kernel, isa) in kernels() {
        for inputs in lengths(kernel.dtype) {
            for rows in [1, 3, 4, 5, 17] {
                for tokens in [1, 2, 5, 13] {
                    let weight = random.stored(kernel.dtype, rows * inputs);
                    let x = random.floats(tokens * inputs);
                    let y = product(&kernel, isa, &weight, &x, inputs);
                    let x = as_rounded(kernel.form, &x, inputs);
                    // Minima cancel much of the scaled part: the error is measured against both parts' magnitude.
                    let slack = if has_minima(kernel.dtype) { 4.0 } else { 1.0 };
                    let truth = oracle(&widened(&kernel, &weight, inputs), &x, inputs);
                    for (i, (&y, (truth, size))) in y.iter().zip(truth).enumerate() {
                        let error = (f64::from(y) - truth).abs() / size.max(1e-30) / slack;
                        worst = worst.max(error);
                        assert!(
                            error <= TOLERANCE,
                            "{}: output {i} of {tokens} tokens, {rows} rows, {inputs} inputs: {y} for {truth}, {error:e}",
                            kernel.name
                        );
                    }
                }
            }
        }
    }
    println!("largest error relative to the sum of magnitudes: {worst:.2e}");
}

/// Every processor computes these bits of integer forms, recorded on x86.
#[test]
fn integer_forms_have_the_recorded_bits() {
    let mut other = Vec::new();
    for (kernel, isa) in
        kernels().into_iter().filter(|(kernel, _)| matches!(kernel.form, Form::Q8 | Form::Q16 | Form::Int8(_)))
    {
        let (mut random, inputs) = (Random::new(8), 768);
        let (weight, x) = (random.stored(kernel.dtype, 19 * inputs), random.floats(11 * inputs));
        let of = |x: &[f32]| product(&kernel, isa, &weight, x, inputs);
        // The hash is FNV-1a.
        let hash = [of(&x[..inputs]), of(&x)]
            .iter()
            .flatten()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, y| (hash ^ u64::from(y.to_bits())).wrapping_mul(0x0100_0000_01b3));
        let recorded = RECORDED.contains(&(kernel.dtype, hash));
        other.extend((!recorded).then(|| format!("{}: {hash:#x}", kernel.name)));
    }
    assert!(other.is_empty(), "{other:#?}");
}

#[rustfmt::skip]
const RECORDED: &[(DType, u64)] = &[
    (DType::I8, 0xc3bb89936dd0cae0),
    (DType::S8, 0x4fb949a78004e646),
    (DType::Q8_0, 0x99cf08299e974399),
    (DType::Q4_0, 0xef8eb09f0befec1c),
    (DType::Q5_0, 0x06f1ce9bf8fd47c2),
    (DType::Q4_K, 0xc820ed3fde11cec3),
    (DType::Q5_K, 0xe1f34e5e67b3a658),
    (DType::Q6_K, 0xe783fe19772082c5),
    (DType::Q4_1, 0x327d833fd3ca9f05),
    (DType::Q5_1, 0x0e9053b72cc4f3cf),
    (DType::Q2_K, 0xd5c7efbdabfafa97),
    (DType::Q3_K, 0x12c14c28b5caee82),
    (DType::IQ4_NL, 0x9cc85a1310ce695c),
    (DType::IQ4_XS, 0x2ef42a8461952407),
    (DType::IQ3_S, 0xfe411fbbdf7d4ba9),
    (DType::IQ3_XXS, 0x58d1c35b276cb5da),
    (DType::IQ2_S, 0x8ce8d683679e5f2b),
    (DType::IQ2_XS, 0x26d533364f5dc825),
    (DType::IQ2_XXS, 0x5081ce66ae7ee289),
    (DType::IQ1_S, 0x6b0fe22162d4650b),
    (DType::IQ1_M, 0xf5824387efaffdbe),
    (DType::MXFP4, 0x5ff94104f9be6942),
    (DType::F4, 0xc72393114789a717),
    (DType::NVFP4, 0x5569f9246ad0871e),
    (DType::Q1_0, 0x947150f6b4604c93),
    (DType::Q2_0, 0xc44e73e7ae358f90),
    (DType::U2, 0x7159e42f8602706f),
    (DType::U3, 0xcca55b18ffe6a915),
    (DType::U5, 0x2d5390b068ee0e23),
    (DType::U6, 0x7734213bd1cdd830),
    (DType::U4, 0xaab485a29833c08d),
    (DType::U8, 0x97dcd621644498af),
    (DType::TQ1_0, 0x96a9523e71dc8212),
    (DType::TQ2_0, 0xed6a196a2f4a2661),
];

#[test]
fn computes_an_output_alike_in_every_shape() {
    let mut random = Random::new(2);
    let lengths = |kernel: &Kernel| match kernel.dtype.block_len() {
        1 if !in_blocks(kernel.form) => vec![77, 2077], // the longer goes through rows in parts when there are many tokens
        block => vec![576_usize.next_multiple_of(block).max(3 * block)],
    };
    let cases =
        kernels().into_iter().flat_map(|(kernel, isa)| lengths(&kernel).into_iter().map(move |n| (kernel, isa, n)));
    for (kernel, isa, inputs) in cases {
        let (rows, tokens) = (33, 64);
        let row_bytes = kernel.row_bytes(inputs);
        let weight = random.stored(kernel.dtype, rows * inputs);
        let x = random.floats(tokens * inputs);
        let y = product(&kernel, isa, &weight, &x, inputs);
        for some_rows in ROWS {
            for some_tokens in TOKENS {
                let (first_row, first_token) = (rows - some_rows, tokens - some_tokens);
                let part = product(&kernel, isa, &weight[first_row * row_bytes..], &x[first_token * inputs..], inputs);
                for token in 0..some_tokens {
                    for row in 0..some_rows {
                        let (part, whole) =
                            (part[token * some_rows + row], y[(first_token + token) * rows + first_row + row]);
                        assert_eq!(part.to_bits(), whole.to_bits(), "{} {some_rows} x {some_tokens}", kernel.name);
                    }
                }
            }
        }
    }
}

#[test]
fn integer_kernels_give_the_same_bits_on_every_instruction_set() {
    let mut random = Random::new(3);
    for (kernel, isa) in
        kernels().into_iter().filter(|(kernel, _)| matches!(kernel.form, Form::Q8 | Form::Q16 | Form::Int8(_)))
    {
        let portable = Kernel::select(kernel.dtype, Isa::portable()).unwrap();
        for inputs in lengths(kernel.dtype) {
            for tokens in [1, 2, 3, 6, 8, 9] {
                let weight = random.stored(kernel.dtype, 19 * inputs);
                let x = random.floats(tokens * inputs);
                let y = product(&kernel, isa, &weight, &x, inputs);
                let expected = product(&portable, Isa::portable(), &weight, &x, inputs);
                assert_eq!(bits(&y), bits(&expected), "{} {inputs}", kernel.name);
                assert!(y.iter().all(|y| y.is_finite()));
            }
        }
    }
}

/// Both ways in which a processor may read give the same bits.
#[test]
#[cfg(target_arch = "x86_64")]
fn one_stream_and_four_give_the_same_bits() {
    use model_factory_kernels::Reading;
    let mut random = Random::new(13);
    for (kernel, isa) in kernels().into_iter().filter(|(kernel, _)| in_blocks(kernel.form)) {
        for inputs in lengths(kernel.dtype) {
            for rows in [1, 2, 3, 4, 5, 17] {
                let weight = random.stored(kernel.dtype, rows * inputs);
                let x = random.floats(inputs);
                // Other tests may read in either way meanwhile.
                let [one, four] = [Reading::OneStream, Reading::FourStreams].map(|reading| {
                    let own = reading.set();
                    let y = product(&kernel, isa, &weight, &x, inputs);
                    own.set();
                    y
                });
                assert_eq!(one, four, "{} {rows} x {inputs}", kernel.name);
            }
        }
    }
}

#[test]
fn reads_weights_at_any_alignment() {
    let mut random = Random::new(4);
    for (kernel, isa) in kernels() {
        let inputs = 768;
        let weight = random.stored(kernel.dtype, 18 * inputs);
        for tokens in [1, 3, 4] {
            let x = random.floats(tokens * inputs);
            let y = product(&kernel, isa, &weight, &x, inputs);
            for offset in 1..4 {
                let mut moved = vec![0; offset];
                moved.extend_from_slice(&weight);
                assert_eq!(y, product(&kernel, isa, &moved[offset..], &x, inputs), "{} at {offset}", kernel.name);
            }
        }
    }
}

#[test]
fn survives_extreme_weights_and_activations() {
    let mut random = Random::new(5);
    let inputs = 1024;
    for (kernel, isa) in kernels().into_iter().filter(|(kernel, _)| in_blocks(kernel.form)) {
        let portable = Kernel::select(kernel.dtype, Isa::portable()).unwrap();
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            // Scales: ordinary, the smallest subnormal, zero, negative, the largest.
            for scale in [0x2400u16, 0x0001, 0x0000, 0x9400, 0x7bff] {
                let mut weight = vec![fill; kernel.row_bytes(inputs) * 17];
                for block in weight.chunks_exact_mut(kernel.dtype.block_bytes()) {
                    set_scales(kernel.dtype, block, || half::f16::from_bits(scale));
                }
                let mut x = random.floats(4 * inputs);
                x[..96].fill(0.0);
                x[96..128].fill(1e-45);
                x[128..160].fill(1e-38);
                x[inputs..2 * inputs].fill(-1.0);
                x[2 * inputs..3 * inputs].fill(1e25);
                for tokens in [1, 3, 4] {
                    let y = product(&kernel, isa, &weight, &x[..tokens * inputs], inputs);
                    let expected = product(&portable, Isa::portable(), &weight, &x[..tokens * inputs], inputs);
                    assert_eq!(bits(&y), bits(&expected), "{} fill {fill:x} scale {scale:x}", kernel.name);
                    assert!(y.iter().all(|y| y.is_finite()));
                }
            }
        }
    }
}

#[test]
fn passes_nan_on() {
    for (kernel, isa) in kernels() {
        let weight = Random::new(6).stored(kernel.dtype, 2 * 256);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = vec![0.25; 256];
            x[200] = bad;
            let y = product(&kernel, isa, &weight, &x, 256);
            assert!(y.iter().all(|y| !y.is_finite()), "{} {bad}: {y:?}", kernel.name);
        }
    }
}

/// Products read whole steps: a row's last one may hold the beginning of the next.
#[test]
fn rows_that_are_no_numbers_leave_the_one_before_them_alone() {
    for (kernel, isa) in kernels().into_iter().filter(|(kernel, _)| in_blocks(kernel.form)) {
        for inputs in lengths(kernel.dtype) {
            let mut random = Random::new(7);
            let weight = random.stored(kernel.dtype, 19 * inputs);
            let mut others = weight.clone();
            let row_bytes = kernel.row_bytes(inputs);
            for block in others[row_bytes..].chunks_exact_mut(kernel.dtype.block_bytes()) {
                set_scales(kernel.dtype, block, || half::f16::NAN);
            }
            let x = random.floats(inputs);
            let (y, among) = (product(&kernel, isa, &weight, &x, inputs), product(&kernel, isa, &others, &x, inputs));
            assert_eq!(y[0].to_bits(), among[0].to_bits(), "{} {inputs}", kernel.name);
        }
    }
}

#[test]
fn every_instruction_set_prepares_what_the_portable_product_reads() {
    let mut random = Random::new(7);
    let portable = Kernel::select(DType::Q8_0, Isa::portable()).unwrap();
    for inputs in [32, 64, 96, 544, 1024] {
        let (weight, mut x) = (random.stored(DType::Q8_0, inputs), random.floats(2 * inputs));
        x[..32].fill(0.0);
        x[5] = 1e-40;
        x[inputs..inputs + 32].iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 - 15.5) * 0.5);
        for isa in each_isa() {
            let by = |isa| product(&portable, isa, &weight, &x, inputs);
            assert_eq!(by(isa), by(Isa::portable()), "{isa} {inputs}");
        }
    }
}

#[test]
fn multiplies_on_the_pool_as_alone() {
    let mut random = Random::new(8);
    let pool = Pool::new(3);
    for (kernel, isa) in kernels() {
        let inputs = 256;
        let row_bytes = kernel.row_bytes(inputs);
        for (tokens, rows) in [(1, 100), (3, 300), (5, 1), (8, 137), (20, 137)] {
            let weight = random.stored(kernel.dtype, rows * inputs);
            let x = random.floats(tokens * inputs);
            let mut input = Input::new();
            input
                .fill(&pool, isa, kernel.form, tokens, inputs, |token, row| {
                    row.copy_from_slice(&x[token * inputs..][..inputs]);
                })
                .unwrap();
            let mut columns = vec![0];
            while let Some(left) = rows.checked_sub(columns[columns.len() - 1]).filter(|left| *left > 0) {
                let step = kernel.rows_per_task(left * row_bytes, inputs, tokens, pool.threads());
                columns.push(rows - left + step.min(left));
            }
            let mut y = vec![f32::NAN; tokens * rows];
            pool.run_grid(&mut y, rows, tokens, &columns, &|tile, out| {
                let mut part = vec![f32::NAN; tokens * tile.columns.len()];
                let rows = &weight[tile.columns.start * row_bytes..tile.columns.end * row_bytes];
                multiply(&kernel, rows, &input, &mut part);
                for (token, part) in part.chunks_exact(tile.columns.len()).enumerate() {
                    out.row(token).copy_from_slice(part);
                }
            });
            assert_eq!(y, product(&kernel, isa, &weight, &x, inputs), "{}", kernel.name);
        }
    }
}

#[test]
fn widens_without_loss() {
    let mut random = Random::new(9);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let kernel = Kernel::select(dtype, Isa::detect()).unwrap();
        let bytes = random.bytes(4096 * dtype.block_bytes());
        let mut out = vec![0.0; 4096];
        kernel.dequantize_row(&bytes, &mut out);
        for (i, (&out, bytes)) in out.iter().zip(bytes.chunks_exact(dtype.block_bytes())).enumerate() {
            let expected = match dtype {
                DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
                DType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
                _ => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
            };
            assert!(out == expected || out.is_nan() && expected.is_nan(), "{dtype} {i}: {out} for {expected}");
        }
    }
}

/// With what a task of each dtype has most: long rows, and short ones of many outputs.
#[test]
fn threads_take_no_more_than_is_planned() {
    let mut random = Random::new(46);
    for (kernel, isa) in kernels() {
        for inputs in [256, 8192] {
            // A group of tokens is 8 or 12.
            for tokens in [1, 8, 12, 40] {
                let rows = kernel.rows_per_task(usize::MAX, inputs, tokens, 1);
                let weight = random.stored(kernel.dtype, rows * inputs);
                let mut own = Scratch::default();
                swap_scratch(&mut own);
                product(&kernel, isa, &weight, &random.floats(tokens * inputs), inputs);
                swap_scratch(&mut own);
                // Scales and zero points of packed integers, which are as many as blocks at most.
                let beside = if kernel.form == Form::Q16 { 2 * rows * inputs / 8 } else { 0 };
                let (taken, most) = (own.bytes() + beside, thread_bytes(inputs, tokens) as usize);
                assert!(taken <= most, "{} {isa}: {taken} of {most}, {tokens} x {inputs}, {rows} rows", kernel.name);
            }
        }
    }
}

#[test]
fn refuses_lengths_and_forms_that_do_not_match() {
    let kernel = Kernel::select(DType::Q8_0, Isa::portable()).unwrap();
    assert_eq!((kernel.tier, kernel.form), (Tier::Native, Form::Q8));
    let input = Input::prepare(Isa::portable(), Form::Q8, &[1.0; 64], 64);
    let floats = Input::prepare(Isa::portable(), Form::F32, &[1.0; 64], 64);
    let cases: [(&str, &dyn Fn()); 5] = [
        ("part of a row", &|| kernel.matmul(&[0; 67], &input, &mut [0.0; 1]).unwrap()),
        ("short output", &|| kernel.matmul(&[0; 136], &input, &mut [0.0; 1]).unwrap()),
        ("another form", &|| kernel.matmul(&[0; 68], &floats, &mut [0.0; 1]).unwrap()),
        ("part of a block", &|| kernel.dequantize_row(&[0; 34], &mut [0.0; 31])),
        ("blocks that do not divide", &|| drop(Input::prepare(Isa::portable(), Form::Q8, &[1.0; 33], 33))),
    ];
    for (name, case) in cases {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case));
        assert!(result.is_err(), "{name} was accepted");
    }
}
