//! What is prepared, however it lies, against its definition.

use super::*;
use crate::testing::{Random, as_rounded, each_isa};

/// A block of an input, in any layout.
struct Block {
    bytes: [i8; 32],
    scale: f32,
    sum: f32,
    offset: i32,
    half_offsets: [i32; 2],
}

impl Block {
    fn of(input: &Input, token: usize, b: usize) -> Block {
        let (bytes, scale) = input.blocks(token)(b);
        let (sum, offset, half_offsets) = if input.is_grouped() {
            let (group, t) = (input.packed(token / GROUP), token % GROUP);
            let place = Order::new(input.inputs() / 32).place(b).unwrap();
            let ints = &group.ints[3 * place * group.width..];
            (group.scale_and_sum(place, t)[1], ints[t], [ints[group.width + t], ints[2 * group.width + t]])
        } else {
            let row = input.q8(token);
            (row.sums[b], row.offsets[b], row.half_offsets.as_chunks().0[b])
        };
        Block { bytes, scale, sum, offset, half_offsets }
    }
}

#[test]
fn prepares_the_same_bits_on_every_instruction_set() {
    let mut random = Random::new(7);
    for inputs in [32, 64, 96, 544, 1024] {
        let mut x = random.floats(3 * inputs);
        x[..32].fill(0.0);
        x[5] = 1e-40;
        x[inputs..inputs + 32].iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 - 15.5) * 0.5);
        let expected = as_rounded(Form::Q8, &x, inputs);
        for isa in each_isa() {
            for tokens in [1, 2, 3, 7, 8, 9, 19] {
                let x: Vec<f32> = x.iter().copied().cycle().take(tokens * inputs).collect();
                let q8 = Input::prepare(isa, Form::Q8, &x, inputs);
                for (token, expected) in expected.chunks_exact(inputs).cycle().take(tokens).enumerate() {
                    for (b, expected) in expected.as_chunks::<32>().0.iter().enumerate() {
                        let block = Block::of(&q8, token, b);
                        let values = block.bytes.map(|q| f64::from(q) * f64::from(block.scale));
                        assert_eq!(values, *expected, "{isa} {inputs} {token} {b}");
                        let [first, second] = [&block.bytes[..16], &block.bytes[16..]]
                            .map(|half| half.iter().map(|&q| i32::from(q)).sum::<i32>());
                        assert_eq!(block.half_offsets, [-128 * first, -128 * second], "{isa} {inputs} {token} {b}");
                        assert_eq!(block.offset, -128 * (first + second));
                        assert_eq!(block.sum, block.scale * (first + second) as f32);
                    }
                }
            }
            let bf16 = Input::prepare(isa, Form::Bf16, &x, inputs);
            for (token, x) in x.chunks_exact(inputs).enumerate() {
                let expected: Vec<u16> = x.iter().map(|&x| half::bf16::from_f32(x).to_bits()).collect();
                assert_eq!(bf16.halves(token), expected);
            }
        }
    }
}
