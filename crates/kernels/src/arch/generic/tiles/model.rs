//! Tiles in plain Rust, and the tests of products by them.

use super::*;
use crate::dtypes::scaled::CallScales;
use crate::dtypes::{bf16, i8};
use crate::input::int8::Int8Rule;
use crate::ops::vector::Floats;
use crate::testing::{Random, as_rounded, oracle};
use crate::{Form, Isa, Kernel};
use model_factory_dtypes::DType;

/// Tiles in plain Rust.
struct Model([usize; 2]);

impl Tiles for Model {
    unsafe fn new(tokens: [usize; 2]) -> Model {
        Model(tokens)
    }

    unsafe fn multiply<P: Product>(
        &self,
        weights: Weights,
        tokens: [*const u8; 2],
        steps: usize,
        begins: bool,
        sums: &mut [Sums; 4],
    ) {
        for (i, sums) in sums.iter_mut().enumerate().take(2 * weights.count) {
            let (width, x) = (self.0[i % 2], tokens[i % 2]);
            for (row, sums) in sums.iter_mut().enumerate() {
                for (t, sum) in sums.iter_mut().enumerate().take(width) {
                    *sum = if begins { 0 } else { *sum };
                    for step in 0..steps {
                        let w = weights.tiles[i / 2].wrapping_add(row * weights.stride + step * weights.advance);
                        let x = x.wrapping_add(step * ROW * width + 4 * t);
                        // SAFETY: the caller guarantees that the step is there.
                        let four = |i: usize| unsafe {
                            [w.add(4 * i).cast::<[u8; 4]>().read(), x.add(4 * i * width).cast::<[u8; 4]>().read()]
                        };
                        *sum = add::<P>(*sum, (0..ROW / 4).map(four));
                    }
                }
            }
        }
    }

    unsafe fn by_token(sums: &Sums) -> Sums {
        std::array::from_fn(|token| std::array::from_fn(|row| sums[row][token]))
    }
}

/// `sum` and the products of a step, each of four bytes of both factors.
fn add<P: Product>(sum: u32, step: impl Iterator<Item = [[u8; 4]; 2]>) -> u32 {
    if P::INT8 {
        let products = step.flat_map(|[w, x]| (0..4).map(move |i| i32::from(w[i] as i8) * i32::from(x[i] as i8)));
        return products.fold(sum as i32, i32::wrapping_add) as u32;
    }
    let normal = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let wide = |[low, high]: [u8; 2]| normal(f32::from_bits(u32::from_le_bytes([0, 0, low, high])));
    let [even, odd] = step.fold([0f32; 2], |[even, odd], [w, x]| {
        let pair = |[a, b, c, d]: [u8; 4]| [wide([a, b]), wide([c, d])];
        let (w, x) = (pair(w), pair(x));
        [normal(w[0].mul_add(x[0], even)), normal(w[1].mul_add(x[1], odd))]
    });
    normal(f32::from_bits(sum) + normal(even + odd)).to_bits()
}

const INT8_FORM: Form = Form::Int8(Int8Rule::Token { symmetric: false });

/// Shapes `[rows, inputs, tokens]` below, at and above the sizes of tiles, pairs of them and steps.
fn shapes() -> Vec<[usize; 3]> {
    // The last ones have more rows than are multiplied at a time, more steps and more tokens.
    let mut shapes = vec![
        [1, 1, 1],
        [100, 96, 67],
        [272, 40, 33],
        [20, 2090, 33],
        [3, 4170, 33],
        [2, 2090, 515],
        [40, 2090, 70],
        [40, 4170, 70],
        [33, 4096, 17],
    ];
    for rows in [15, 16, 17, 33] {
        for inputs in [31, 32, 63, 64, 65, 130] {
            shapes.extend([1, 15, 16, 17, 31, 32, 33, 48].map(|tokens| [rows, inputs, tokens]));
        }
    }
    shapes
}

fn kernel_of(dtype: DType, isa: Isa) -> Kernel {
    Kernel::of(if dtype == DType::I8 { i8::KERNELS } else { bf16::KERNELS }, isa).unwrap()
}

/// The product by tiles in plain Rust, that of int8 by scales of rows.
fn by_model(dtype: DType, weight: &[u8], scales: &[f32], x: &[f32], inputs: usize) -> Vec<f32> {
    let form = if dtype == DType::I8 { INT8_FORM } else { Form::Bf16 };
    let mut input = Input::prepare(Isa::portable(), form, x, inputs);
    input.arrange_for_tiles(None, Isa::portable()).unwrap();
    let rows = weight.len() / kernel_of(dtype, Isa::portable()).row_bytes(inputs);
    let mut y = vec![f32::NAN; rows * input.tokens()];
    let mut call = Call::new(weight, CallScales::InBlocks, &input, rows, &mut y);
    call.row_scales = (dtype == DType::I8).then_some(Floats::f32(scales));
    // SAFETY: plain Rust needs nothing.
    unsafe { if dtype == DType::I8 { multiply::<Model, Int8>(&mut call) } else { multiply::<Model, Bf16>(&mut call) } }
    assert!(call.row_scales.is_none(), "the scales of rows are not taken");
    call.into_result().unwrap();
    y
}

/// The product by a kernel, that of int8 by scales of rows.
fn by_kernel(kernel: Kernel, isa: Isa, weight: &[u8], scales: &[f32], input: &Input) -> Vec<f32> {
    let mut y = vec![f32::NAN; weight.len() / kernel.row_bytes(input.inputs()) * input.tokens()];
    match kernel.dtype {
        DType::I8 => kernel.matmul_row_scaled(isa, weight, Floats::f32(scales), input, &mut y).unwrap(),
        _ => kernel.matmul(weight, input, &mut y).unwrap(),
    }
    y
}

/// A scale for each of some rows, or one for all.
fn scales_of_rows(random: &mut Random, rows: usize) -> Vec<f32> {
    let count = if random.bits().is_multiple_of(3) { 1 } else { rows };
    random.floats(count)
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

/// BF16 is as near to the product in double precision as sums of as many roundings, int8 has the bits of the other kernels, and a
/// token those that it has by itself.
#[test]
fn the_model_multiplies() {
    let mut random = Random::new(45);
    for [rows, inputs, tokens] in shapes() {
        let x = random.floats(tokens * inputs);
        for dtype in [DType::BF16, DType::I8] {
            let weight = random.stored(dtype, rows * inputs);
            let scales = scales_of_rows(&mut random, rows);
            let y = by_model(dtype, &weight, &scales, &x, inputs);
            let what = format!("{dtype} [{rows}, {inputs}] {tokens} tokens");
            for token in 0..tokens {
                let own = by_model(dtype, &weight, &scales, &x[token * inputs..][..inputs], inputs);
                assert_eq!(bits(&own), bits(&y[token * rows..][..rows]), "{what}: token {token}");
            }
            let portable = kernel_of(dtype, Isa::portable());
            if dtype == DType::I8 {
                let input = Input::prepare(Isa::portable(), INT8_FORM, &x, inputs);
                let expected = by_kernel(portable, Isa::portable(), &weight, &scales, &input);
                assert_eq!(bits(&y), bits(&expected), "{what}");
                continue;
            }
            let wide = crate::testing::widened(&portable, &weight, inputs);
            let truth = oracle(&wide, &as_rounded(Form::Bf16, &x, inputs), inputs);
            // A rounding for each of 16 products, of both chains and of each step.
            let bound = 2f64.powi(-24) * (18.0 + (inputs / 32) as f64);
            for (y, (truth, size)) in y.iter().zip(truth) {
                assert!((f64::from(*y) - truth).abs() <= bound * size, "{what}: {y}, not {truth}");
            }
        }
    }
}

/// Numbers at the ends of the range, and everything between them.
fn floats(random: &mut Random, len: usize) -> Vec<f32> {
    let ends = [0.0, -0.0, 1e-38, -1e-39, 1e-40, 3e38, -3e38, 1e19, 1e-19, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let kind = random.bits() % 4;
    (0..len)
        .map(|_| match random.bits() % 64 {
            0 if kind == 0 => ends[random.bits() as usize % ends.len()],
            1 if kind < 2 => ends[random.bits() as usize % 9],
            _ if kind == 2 => random.float() * 2f32.powi((random.bits() % 40) as i32 - 90),
            _ => random.float(),
        })
        .collect()
}

#[test]
fn the_processor_does_what_the_model_does() {
    let Some(isa) = Isa::named("amx") else {
        println!("skipped: amx is not available here");
        return;
    };
    let (mut random, mut special) = (Random::new(46), 0);
    for [rows, inputs, tokens] in shapes().into_iter().cycle().take(600) {
        let x = floats(&mut random, tokens * inputs);
        for dtype in [DType::BF16, DType::I8] {
            let weight = match dtype {
                DType::I8 => random.stored(dtype, rows * inputs),
                _ => {
                    let weight = floats(&mut random, rows * inputs);
                    weight.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect()
                }
            };
            let kernel = kernel_of(dtype, isa);
            let form = if dtype == DType::I8 { INT8_FORM } else { Form::Bf16 };
            let input = Input::prepare(isa, form, &x, inputs);
            let scales = scales_of_rows(&mut random, rows);
            let y = by_kernel(kernel, isa, &weight, &scales, &input);
            let expected = by_model(dtype, &weight, &scales, &x, inputs);
            for (at, (y, expected)) in y.iter().zip(&expected).enumerate() {
                special += usize::from(!y.is_finite() || y.abs() < 1e-36);
                let equal = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
                assert!(equal, "{dtype} [{rows}, {inputs}] {tokens} tokens, {at}: {y:e}, not {expected:e}");
            }
        }
    }
    assert!(special > 1000, "only {special} numbers at the ends of the range");
}
