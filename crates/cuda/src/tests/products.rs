//! Products of every dtype compared with double precision, for shapes with odd tails.

use super::super::arguments::MatrixArguments;
use super::super::buffer::Buffer;
use super::super::driver::Gpu;
use super::super::modules::{Module, dtypes};
use super::super::product::{DeviceMatrix, MatrixKernels, Multiplier, OperandForm, ProductTarget, RowSource, Rows};
use super::driver;
use super::testing::{Random, as_rounded, oracle, widened};
use model_factory_dtypes::DType;
use model_factory_kernels::{Input, Int8Rule, Isa, Kernel};
use std::sync::Arc;

/// Buffers of one multiplication.
pub(super) struct Bench {
    pub(super) gpu: Arc<Gpu>,
    pub(super) multiplier: Multiplier,
    pub(super) prepared: [Buffer; 3],
}

pub(super) fn buffer(gpu: &Arc<Gpu>, bytes: &[u8]) -> Buffer {
    let buffer = Buffer::new(gpu, "a test", bytes.len() + 16).unwrap();
    buffer.upload(0, bytes).unwrap();
    buffer
}

pub(super) fn bytes_of(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|x| x.to_le_bytes()).collect()
}

impl Bench {
    pub(super) fn new(capability: (u32, u32), elements: usize) -> Option<Bench> {
        Bench::on(driver(capability)?, elements)
    }

    fn on(gpu: Gpu, elements: usize) -> Option<Bench> {
        let gpu: Arc<Gpu> = Arc::new(gpu);
        let prepare = gpu.function(Module::Steps, "prepare").unwrap();
        let room = |bytes| Buffer::new(&gpu, "a test", bytes).unwrap();
        let prepared = [room(4 * elements), room(8 * elements), room(16 * elements)];
        let [rows, steps, extents] = prepared.each_ref().map(|buffer| buffer.address);
        let multiplier = Multiplier { gpu: Arc::clone(&gpu), prepare, prepared: rows, steps, extents };
        Some(Bench { gpu, multiplier, prepared })
    }

    /// `x` `[tokens, inputs]` times the stored rows `weight`, into a wider output whose other columns stay.
    fn product(&self, matrix: &DeviceMatrix, x: &[f32], tokens: usize) -> Vec<f32> {
        let (given, margin) = (buffer(&self.gpu, &bytes_of(x)), 3);
        let width = matrix.outputs + margin;
        let target = buffer(&self.gpu, &bytes_of(&vec![0.5; tokens * width]));
        let rows =
            Rows { source: RowSource::Plain, address: given.address, stride: matrix.inputs, gather: 0, count: tokens };
        let into = ProductTarget { address: target.address, width, add: false };
        self.multiplier.multiply(rows, &[matrix], into).unwrap();
        let all = target.floats(tokens * width).unwrap();
        assert!(all.chunks_exact(width).all(|row| row[matrix.outputs..] == [0.5; 3]), "other columns");
        all.chunks_exact(width).flat_map(|row| row[..matrix.outputs].to_vec()).collect()
    }
}

fn lengths(dtype: DType) -> Vec<usize> {
    match dtype.block_len() {
        1 => vec![1, 7, 33, 48, 64, 100, 1000, 1168],
        32 => vec![32, 96, 160, 33 * 32, 65 * 32],
        block => vec![block, 3 * block, 5 * block],
    }
}

/// The activations as the kernel reads them, in double precision, and how far a product may be from theirs, as
/// a part of the sum of magnitudes.
fn rounded(form: OperandForm, x: &[f32], inputs: usize) -> (Vec<f64>, f64) {
    // A lane adds up to `inputs / 32` products in turn, and five sums of lanes follow.
    let sums = 6e-8 * (inputs as f64 / 32.0 + 10.0);
    match form {
        OperandForm::F32 => (x.iter().map(|x| f64::from(*x)).collect(), sums),
        OperandForm::Bf16 => {
            (x.iter().map(|x| half::bf16::from_f32(*x).to_f64()).collect(), 6e-8 * (inputs as f64 + 10.0))
        }
        // Activations are rounded to 11 bits.
        OperandForm::F16 => (x.iter().map(|x| f64::from(*x)).collect(), 4.9e-4 + 6e-8 * inputs as f64),
        OperandForm::Q8 => {
            (as_rounded(model_factory_kernels::Form::Q8, x, inputs), 6e-8 * (inputs as f64 / 32.0 + 12.0))
        }
        OperandForm::Int8(_) => unreachable!("compared to the bit"),
    }
}

#[test]
fn products_of_every_dtype_beside_double_precision() {
    let mut random = Random::new(71);
    // Tiles of 64 where there are many multiprocessors to keep busy, of 128 where there are few.
    let Some(small) = driver((9, 0)).and_then(|gpu| Bench::on(gpu.with_processors(1000), 140 * 2080)) else { return };
    let Some(large) = driver((9, 0)).and_then(|gpu| Bench::on(gpu.with_processors(1), 140 * 2080)) else { return };
    let Some(old) = Bench::new((6, 1), 140 * 2080) else { return };
    // Products of many tokens take nearly all of the time: without this variable each length is compared with one of their shapes.
    let whole = std::env::var_os("GENERATIONS").is_some();
    let [mut compared, mut of_many] = [0; 2];
    for dtype in dtypes().filter(|dtype| *dtype != DType::I8) {
        let kernel = Kernel::select(dtype, Isa::portable()).unwrap();
        for (index, inputs) in lengths(dtype).into_iter().enumerate() {
            for (outputs, tokens) in [(1, 1), (9, 2), (5, 3), (17, 7), (8, 8), (70, 9), (130, 70), (70, 140)] {
                if tokens > 64 && (index + usize::from(tokens > 100)) % 2 == 0 && !whole {
                    continue;
                }
                let stored = random.stored(dtype, outputs * inputs);
                let x: Vec<f32> = random.floats(tokens * inputs).iter().map(|x| x * 3.0).collect();
                let wide = widened(&kernel, &stored, inputs);
                let mut by_tiles = Vec::new();
                for (bench, name) in [(&small, "small tiles"), (&large, "large tiles"), (&old, "no tensor cores")] {
                    // There is one kernel for few tokens.
                    if tokens <= 64 && name == "large tiles" {
                        continue;
                    }
                    let kernels = MatrixKernels::load(&bench.gpu, dtype).unwrap();
                    let weight = buffer(&bench.gpu, &stored);
                    let part =
                        MatrixArguments { weight: weight.address, rows: outputs as i32, ..MatrixArguments::default() };
                    let row_bytes = kernel.row_bytes(inputs);
                    let matrix = DeviceMatrix { kernels, dtype, rule: None, part, outputs, inputs, row_bytes };
                    let found = bench.product(&matrix, &x, tokens);
                    let (x, bound) = rounded(matrix.form(tokens), &x, inputs);
                    for (i, (truth, size)) in oracle(&wide, &x, inputs).into_iter().enumerate() {
                        let error = (f64::from(found[i]) - truth).abs();
                        // The terms of a block may cancel in its numbers: scale and minimum are separate.
                        let size = size.max(1e-3 * inputs as f64);
                        assert!(
                            error <= bound * size,
                            "{dtype}, {name} [{outputs}, {inputs}] {tokens} tokens, {i}: {} for {truth}",
                            found[i]
                        );
                    }
                    compared += 1;
                    of_many += usize::from(tokens > 64);
                    if name != "no tensor cores" {
                        by_tiles.push(found);
                    }
                }
                assert!(
                    by_tiles.windows(2).all(|both| both[0] == both[1]),
                    "{dtype} [{outputs}, {inputs}] {tokens} tokens"
                );
            }
        }
    }
    assert!(compared > 700 && of_many > 150, "only {compared} products, {of_many} of many tokens");
}

/// Integers are exact, and the rest is the processor's arithmetic in its order: the same bits.
#[test]
fn int8_products_have_the_processors_bits() {
    let mut random = Random::new(72);
    let benches = [1000, 1]
        .map(|processors| driver((9, 0)).and_then(|gpu| Bench::on(gpu.with_processors(processors), 140 * 1200)));
    let [Some(small), Some(large)] = benches else { return };
    let kernel = Kernel::select(DType::I8, Isa::portable()).unwrap();
    let half = Int8Rule::Static { scale_bits: 0.02f32.to_bits(), zero: -5 };
    let rules = [
        Int8Rule::Token { symmetric: true },
        Int8Rule::Token { symmetric: false },
        Int8Rule::Tensor { symmetric: true },
        Int8Rule::Tensor { symmetric: false },
        half,
    ];
    for inputs in [1, 15, 16, 48, 100, 128, 1168] {
        for (bench, outputs, tokens) in
            [(&small, 1, 1), (&small, 9, 3), (&small, 70, 9), (&small, 66, 70), (&large, 66, 70), (&large, 140, 140)]
        {
            for rule in rules {
                let kernels = MatrixKernels::load(&bench.gpu, DType::I8).unwrap();
                let stored = random.stored(DType::I8, outputs * inputs);
                let x: Vec<f32> = random.floats(tokens * inputs).iter().map(|x| x * 3.0 + 0.5).collect();
                let scales = random.floats(outputs);
                let (weight, of_rows) = (buffer(&bench.gpu, &stored), buffer(&bench.gpu, &bytes_of(&scales)));
                let part = MatrixArguments {
                    weight: weight.address,
                    scales: of_rows.address,
                    scales_a_row: 1,
                    group: inputs as i32,
                    rows: outputs as i32,
                    ..MatrixArguments::default()
                };
                let row_bytes = inputs;
                let matrix =
                    DeviceMatrix { kernels, dtype: DType::I8, rule: Some(rule), part, outputs, inputs, row_bytes };
                let found = bench.product(&matrix, &x, tokens);
                let input = Input::prepare(Isa::portable(), model_factory_kernels::Form::Int8(rule), &x, inputs);
                let mut expected = vec![0.0; outputs * tokens];
                kernel.matmul(&stored, &input, &mut expected).unwrap();
                for row in expected.chunks_exact_mut(outputs) {
                    row.iter_mut().zip(&scales).for_each(|(y, scale)| *y *= scale);
                }
                assert_eq!(found, expected, "{rule:?} [{outputs}, {inputs}] {tokens} tokens");
            }
        }
    }
}

/// Matrices of several dtypes and rules next to each other, with biases, added to what is there.
#[test]
fn several_matrices_stand_side_by_side() {
    let mut random = Random::new(73);
    let Some(bench) = Bench::new((9, 0), 20 * 256) else { return };
    let inputs = 256;
    let shapes =
        [(DType::Q4_K, 11), (DType::Q6_K, 3), (DType::Q4_K, 9), (DType::F16, 70), (DType::Q4_K, 2), (DType::Q4_K, 1)];
    for tokens in [1, 20] {
        let x = random.floats(tokens * inputs);
        let mut kept = Vec::new();
        let mut expected: Vec<Vec<f32>> = vec![Vec::new(); tokens];
        let mut matrices = Vec::new();
        for (dtype, outputs) in shapes {
            let (stored, bias) = (random.stored(dtype, outputs * inputs), random.floats(outputs));
            let (weight, of_rows) = (buffer(&bench.gpu, &stored), buffer(&bench.gpu, &bytes_of(&bias)));
            let part = MatrixArguments {
                weight: weight.address,
                bias: of_rows.address,
                rows: outputs as i32,
                ..MatrixArguments::default()
            };
            let kernels = MatrixKernels::load(&bench.gpu, dtype).unwrap();
            let kernel = Kernel::select(dtype, Isa::portable()).unwrap();
            let row_bytes = kernel.row_bytes(inputs);
            matrices.push(DeviceMatrix { kernels, dtype, rule: None, part, outputs, inputs, row_bytes });
            let input = Input::prepare(Isa::portable(), kernel.form, &x, inputs);
            let mut y = vec![0.0; outputs * tokens];
            kernel.matmul(&stored, &input, &mut y).unwrap();
            for (row, y) in expected.iter_mut().zip(y.chunks_exact(outputs)) {
                row.extend(y.iter().zip(&bias).map(|(y, bias)| 0.25 + (y + bias)));
            }
            kept.push((weight, of_rows));
        }
        let width: usize = shapes.iter().map(|shape| shape.1).sum();
        let (given, target) =
            (buffer(&bench.gpu, &bytes_of(&x)), buffer(&bench.gpu, &bytes_of(&vec![0.25; tokens * width])));
        let rows = Rows { source: RowSource::Plain, address: given.address, stride: inputs, gather: 0, count: tokens };
        let into = ProductTarget { address: target.address, width, add: true };
        bench.multiplier.multiply(rows, &matrices.iter().collect::<Vec<_>>(), into).unwrap();
        let found = target.floats(tokens * width).unwrap();
        for (i, (found, expected)) in found.iter().zip(expected.concat()).enumerate() {
            // Sums of up to 256 products below 1, of which F16 rounds one factor when there are many tokens.
            let bound = if tokens > 8 { 1e-2 } else { 2e-5 };
            assert!((found - expected).abs() <= bound, "{tokens} tokens, {i}: {found} for {expected}");
        }
    }
}
