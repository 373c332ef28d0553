//! Products with weights that are stored transposed.

use super::testing::{Random, each_isa, oracle, widened};
use super::{DType, Form, Input, Isa, Kernel};
use model_factory_kernels::multiply_transposed;
use std::ops::Range;

#[test]
fn agrees_with_the_oracle_and_with_itself_in_every_shape_and_by_every_instruction_set() {
    let mut random = Random::new(43);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (inputs, width) in [(1, 1), (31, 3), (64, 130), (100, 257)] {
            let tokens = 6;
            // A byte in front removes any alignment.
            let stored = [vec![0], random.stored(dtype, inputs * width)].concat();
            let x = random.floats(tokens * inputs);
            let rows = widened(&Kernel::select(dtype, Isa::portable()).unwrap(), &stored[1..], width);
            let turned: Vec<f32> = (0..width).flat_map(|j| rows.iter().skip(j).step_by(width)).copied().collect();
            let truth = oracle(&turned, &x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), inputs);
            let product = |isa, tokens: Range<usize>, outputs: Range<usize>| {
                let input = Input::prepare(isa, Form::F32, &x[tokens.start * inputs..tokens.end * inputs], inputs);
                let mut y = vec![f32::NAN; tokens.len() * outputs.len()];
                multiply_transposed(isa, (dtype, &stored[1..], width), outputs, &input, &mut y);
                y
            };
            let whole = product(Isa::portable(), 0..tokens, 0..width);
            for (y, (truth, size)) in whole.iter().zip(truth) {
                // There is a rounding for each of up to 32 products and sums, and for each of the sums of runs.
                assert!((f64::from(*y) - truth).abs() <= 70.0 * 6e-8 * size, "{dtype} {inputs} {width}");
            }
            for isa in each_isa() {
                assert_eq!(product(isa, 0..tokens, 0..width), whole, "{isa} {dtype}");
                for (some, part) in [(0..1, 0..width), (5..6, width / 2..width), (1..4, width / 3..width)] {
                    let found = product(isa, some.clone(), part.clone());
                    let expected = some.flat_map(|token| &whole[token * width..][part.clone()]);
                    assert!(found.iter().eq(expected), "{isa} {dtype} {part:?} of {width}");
                }
            }
        }
    }
}
