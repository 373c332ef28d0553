//! What the kernels' tests share: random rows of stored bytes, an f64 oracle, and the walk over instruction sets.

#![cfg(test)]

use super::{BlockScales, DType, Floats, Form, Input, Isa, Kernel, RunScales};
use std::ops::Range;

/// Elements of a block of activations.
const BLOCK: usize = 32;

/// Numbers that look random (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.bits() >> 32) as u8).collect()
    }

    /// Stored elements: any bits where all are finite, else sane numbers; scales between 2^-9 and 2^-6.
    pub(crate) fn stored(&mut self, dtype: DType, elements: usize) -> Vec<u8> {
        let mut bytes = self.bytes(dtype.bytes_of(elements as u64).unwrap() as usize);
        match dtype {
            DType::F32 => return self.floats(elements).iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::BF16 => {
                return self.floats(elements).iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect();
            }
            DType::F16 => {
                return self.floats(elements).iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
            }
            DType::I8 | DType::NF4 | DType::FP4 => return bytes,
            dtype if scaled_by_block(dtype) => return bytes,
            DType::F8_E4M3 => {
                bytes.iter_mut().filter(|byte| **byte & 0x7f == 0x7f).for_each(|byte| *byte ^= 1);
                return bytes;
            }
            _ => {}
        }
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            set_scales(dtype, block, || half::f16::from_f32((1.5 + self.float()) / 256.0));
        }
        bytes
    }
}

/// The dtypes of unsigned fields that have a scale and a bias for each group.
pub(crate) const FIELDS: [DType; 6] = [DType::U2, DType::U3, DType::U4, DType::U5, DType::U6, DType::U8];

/// Whether scales of blocks of the dtype lie apart.
pub(crate) fn scaled_by_block(dtype: DType) -> bool {
    matches!(dtype, DType::F4 | DType::S8) || FIELDS.contains(&dtype)
}

/// Puts scales, and minima where there are any, into a block of any GGUF block type.
pub(crate) fn set_scales(dtype: DType, block: &mut [u8], mut scale: impl FnMut() -> half::f16) {
    let halves: &[usize] = match dtype {
        DType::Q1_0 | DType::Q2_0 | DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4_NL | DType::IQ4_XS => &[0],
        DType::IQ3_S | DType::IQ3_XXS | DType::IQ2_S | DType::IQ2_XS | DType::IQ2_XXS | DType::IQ1_S => &[0],
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        DType::TQ1_0 => &[52],
        DType::TQ2_0 => &[64],
        DType::IQ1_M => {
            // A nibble at the top of each of the last four words.
            let bits = scale().to_bits();
            for i in 0..4 {
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | ((bits >> (4 * i) & 15) << 4) as u8;
            }
            return;
        }
        DType::NVFP4 => {
            // A float of 8 bits, without the one that is 0.
            block[..4].iter_mut().for_each(|byte| *byte = (scale().to_bits() >> 7) as u8 & 0x7f);
            return;
        }
        DType::MXFP4 => {
            // Only the exponent, as a float has it.
            block[0] = (scale().to_f32().to_bits() >> 23) as u8;
            return;
        }
        dtype if scaled_by_block(dtype) => return, // they lie apart
        other => panic!("{other} has no scales"),
    };
    for &at in halves {
        block[at..at + 2].copy_from_slice(&scale().to_le_bytes());
    }
}

/// Whether blocks have minima, which cancel much of the scaled part.
pub(crate) fn has_minima(dtype: DType) -> bool {
    matches!(dtype, DType::Q4_1 | DType::Q5_1 | DType::Q2_K | DType::Q4_K | DType::Q5_K)
}

/// Every available instruction set, or the one that `TEST_ISA` names; the others are printed, and are an error when `REQUIRE_ISA`
/// names them.
pub(crate) fn each_isa() -> Vec<Isa> {
    if let Ok(name) = std::env::var("TEST_ISA") {
        return vec![Isa::named(&name).unwrap_or_else(|| panic!("TEST_ISA={name}: this machine does not have it"))];
    }
    let available = Isa::available();
    let required = std::env::var("REQUIRE_ISA").unwrap_or_default();
    let required: Vec<&str> = required.split([',', ' ']).filter(|name| !name.is_empty()).collect();
    let has = |name: &str| available.iter().any(|isa| isa.name() == name);
    for name in Isa::names().filter(|name| !has(name)) {
        println!("skipped: {name} is not available here");
    }
    for name in required {
        assert!(has(name), "REQUIRE_ISA names {name}, which is not available here");
    }
    available
}

/// Lengths below, at and above the boundaries of blocks, vectors and steps of `dtype`.
pub(crate) fn lengths(dtype: DType) -> Vec<usize> {
    match if scaled_by_block(dtype) { 32 } else { dtype.block_len() } {
        1 => vec![1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 576, 1000],
        2 => vec![2, 4, 6, 14, 16, 18, 30, 32, 34, 48, 62, 64, 66, 96, 126, 128, 130, 200, 576, 1000],
        32 => [1, 2, 3, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 48, 64].map(|blocks| blocks * 32).to_vec(),
        block => [1, 2, 3, 4, 5, 8].map(|blocks| blocks * block).to_vec(),
    }
}

/// `[tokens, rows]` in f64, and for each output the sum of magnitudes that its error is measured against.
pub(crate) fn oracle(w: &[f32], x: &[f64], inputs: usize) -> Vec<(f64, f64)> {
    let rows = w.chunks_exact(inputs);
    let outputs = x.chunks_exact(inputs).flat_map(|x| {
        rows.clone().map(move |w| {
            let products = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * x);
            (products.clone().sum(), products.map(f64::abs).sum())
        })
    });
    outputs.collect()
}

/// The activations as the form rounds them, in f64.
pub(crate) fn as_rounded(form: Form, x: &[f32], inputs: usize) -> Vec<f64> {
    match form {
        Form::F32 => x.iter().map(|&x| f64::from(x)).collect(),
        Form::Bf16 => x.iter().map(|&x| half::bf16::from_f32(x).to_f64()).collect(),
        Form::Int8(_) => {
            let rows = x.chunks_exact(inputs).flat_map(|row| {
                let scale = row.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
                row.iter().map(move |x| f64::from((x / scale).round_ties_even()) * f64::from(scale))
            });
            rows.collect()
        }
        Form::Q8 => in_blocks(x).into_iter().map(|[q, scale]| f64::from(q) * f64::from(scale)).collect(),
        Form::Q16 => {
            let first = in_blocks(x);
            let left: Vec<f32> = x.iter().zip(&first).map(|(x, [q, scale])| q.mul_add(-scale, *x)).collect();
            let both = first.into_iter().zip(in_blocks(&left));
            both.map(|(a, b)| [a, b].map(|[q, scale]| f64::from(q) * f64::from(scale)).iter().sum()).collect()
        }
    }
}

/// Of each number its byte and its block's scale in [`Form::Q8`].
fn in_blocks(x: &[f32]) -> Vec<[f32; 2]> {
    let blocks = x.chunks_exact(BLOCK).flat_map(|block| {
        let scale = block.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
        let q = move |x: f32| if scale == 0.0 { 0.0 } else { (x / scale).round_ties_even().clamp(-127.0, 127.0) };
        block.iter().map(move |&x| [q(x), scale])
    });
    blocks.collect()
}

/// All rows widened.
pub(crate) fn widened(kernel: &Kernel, bytes: &[u8], inputs: usize) -> Vec<f32> {
    let row_bytes = kernel.row_bytes(inputs);
    let mut out = vec![0.0; bytes.len() / row_bytes * inputs];
    for (row, out) in bytes.chunks_exact(row_bytes).zip(out.chunks_exact_mut(inputs)) {
        kernel.dequantize_row(row, out);
    }
    out
}

/// Holds every instruction set's product of `rows` rows whose weights are `value(row, input)`, of floats with the scales of rows
/// `scales(rows)`: within the rounding of F32 sums of the product in double precision, and an output has the same bits whatever rows
/// and tokens it is computed with.
pub(crate) fn assert_widened<'a>(
    random: &mut Random,
    dtype: DType,
    weight: &[u8],
    [rows, inputs]: [usize; 2],
    scales: impl Fn(Range<usize>) -> BlockScales<'a>,
    value: impl Fn(usize, usize) -> f64,
) {
    let x = random.floats(4 * inputs);
    let row_bytes = weight.len() / rows;
    for isa in each_isa() {
        let kernel = Kernel::select(dtype, isa).unwrap();
        let product = |of: Range<usize>, tokens: usize| {
            let input = Input::prepare(isa, kernel.form, &x[..tokens * inputs], inputs);
            let mut y = vec![f32::NEG_INFINITY; of.len() * tokens];
            let weight = &weight[of.start * row_bytes..of.end * row_bytes];
            kernel.matmul_scaled(weight, scales(of), &input, &mut y).unwrap();
            y
        };
        let y = product(0..rows, 4);
        for (at, y) in y.iter().enumerate() {
            let (token, row) = (at / rows, at % rows);
            let products = (0..inputs).map(|i| value(row, i) * f64::from(x[token * inputs + i]));
            let (exact, size) = (products.clone().sum::<f64>(), products.map(f64::abs).sum::<f64>());
            // A rounding of each weight, and of each of the sums in a lane.
            let bound = size * 2f64.powi(-24) * (5.0 + (inputs / 8) as f64).min(24.0);
            assert!((f64::from(*y) - exact).abs() <= bound, "{isa} {dtype} {inputs}: {y}, not {exact}");
        }
        let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<u32>>();
        for (from, some, tokens) in [(0, 1, 1), (3, 2, 2), (8, 9, 1), (77, 70, 2), (2, 142, 3)] {
            let (from, to) = (from.min(rows - 1), rows.min(from + some));
            for (token, part) in product(from..to, tokens).chunks(to - from).enumerate() {
                let of_all = &y[token * rows + from..][..to - from];
                assert_eq!(bits(part), bits(of_all), "{isa} {dtype} {inputs}: rows {from}..{to}, {tokens} tokens");
            }
        }
    }
}

/// The product by `kernel`, with scales of 1 where they lie apart.
pub(crate) fn product(kernel: &Kernel, isa: Isa, weight: &[u8], x: &[f32], inputs: usize) -> Vec<f32> {
    let input = Input::prepare(isa, kernel.form, x, inputs);
    let mut y = vec![f32::NAN; weight.len() / kernel.row_bytes(inputs) * (x.len() / inputs)];
    multiply(kernel, weight, &input, &mut y);
    y
}

/// [`Kernel::matmul`], with scales of 1 where they lie apart.
pub(crate) fn multiply(kernel: &Kernel, weight: &[u8], input: &Input, y: &mut [f32]) {
    let done = match kernel.dtype {
        DType::F4 => {
            let scales = vec![127; weight.len() / kernel.row_bytes(BLOCK)];
            kernel.matmul_scaled(weight, BlockScales::Powers(&scales), input, y)
        }
        DType::U4 | DType::U8 | DType::S8 => {
            let ones = 1f32.to_le_bytes().repeat(weight.len() / kernel.row_bytes(BLOCK));
            let scales = BlockScales::Floats { group: BLOCK, scales: Floats::new(DType::F32, &ones).unwrap() };
            kernel.matmul_scaled(weight, scales, input, y)
        }
        dtype if FIELDS.contains(&dtype) => {
            let count = weight.len() / kernel.row_bytes(BLOCK);
            let [ones, less] = [1f32, -((1 << (8 * dtype.block_bytes() / dtype.block_len() - 1)) as f32)]
                .map(|x| x.to_le_bytes().repeat(count));
            let [scales, biases] = [&ones, &less].map(|bytes| Floats::new(DType::F32, bytes).unwrap());
            kernel.matmul_scaled(weight, BlockScales::Affine { group: BLOCK, scales, biases }, input, y)
        }
        DType::F8_E4M3 => {
            let one = 1f32.to_le_bytes();
            let scales = Floats::new(DType::F32, &one).unwrap();
            let scales = BlockScales::Rectangles { sides: [usize::MAX; 2], before: 0, scales };
            kernel.matmul_scaled(weight, scales, input, y)
        }
        DType::NF4 | DType::FP4 => {
            let one = 1f32.to_le_bytes();
            let scales = RunScales::Floats(Floats::new(DType::F32, &one).unwrap());
            let size = (2 * weight.len()).next_power_of_two();
            kernel.matmul_scaled(weight, BlockScales::Runs { size, before: 0, scales }, input, y)
        }
        _ => kernel.matmul(weight, input, y),
    };
    done.unwrap();
}
