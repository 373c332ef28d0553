//! Preparing activations compared with the processor's own: the same bits wherever both round alike.

use super::super::product::{DeviceNorm, OperandForm, RowSource, Rows, Vector};
use super::products::{Bench, buffer, bytes_of};
use super::testing::Random;
use model_factory_dtypes::DType;
use model_factory_kernels::{Floats, Gain, Isa, gelu_tanh, layer_norm, rms_norm, swiglu};

/// The prepared bytes, and the steps of the rows.
fn prepared(bench: &Bench, rows: Rows<'_>, form: OperandForm, width: usize) -> (Vec<u8>, Vec<u8>) {
    bench.multiplier.prepare(rows, form, width).unwrap();
    let (row, step) = form.row_bytes(width);
    let (mut bytes, mut steps) = (vec![0; rows.count * row], vec![0; rows.count * step]);
    bench.prepared[0].download(0, &mut bytes).unwrap();
    bench.prepared[1].download(0, &mut steps).unwrap();
    (bytes, steps)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn norms_and_activations_are_the_processors() {
    let mut random = Random::new(81);
    let Some(bench) = Bench::new((9, 0), 4 * 5000) else { return };
    let isa = Isa::portable();
    for width in [1, 31, 64, 100, 1025, 4096] {
        let x: Vec<f32> = random.floats(3 * 2 * width).iter().map(|x| x * 4.0 + 0.5).collect();
        let (weight, bias) = (bytes_of(&random.floats(width)), bytes_of(&random.floats(width)));
        let (of_x, of_weight, of_bias) =
            (buffer(&bench.gpu, &bytes_of(&x)), buffer(&bench.gpu, &weight), buffer(&bench.gpu, &bias));
        // The third row and then the first, of rows that are twice as long.
        let gather = buffer(&bench.gpu, &[2i32.to_le_bytes(), 0i32.to_le_bytes()].concat());
        let norm = |layer| DeviceNorm {
            weight: Vector { address: of_weight.address, code: 0 },
            bias: Vector { address: of_bias.address, code: 0 },
            eps: 1e-5,
            layer,
        };
        let (rms, layer) = (norm(false), norm(true));
        for source in [
            RowSource::Plain,
            RowSource::Normed(&rms),
            RowSource::Normed(&layer),
            RowSource::SwiGlu { offset: width },
            RowSource::Gelu,
        ] {
            let rows = Rows { source, address: of_x.address, stride: 2 * width, gather: gather.address, count: 2 };
            let found = floats(&prepared(&bench, rows, OperandForm::F32, width).0);
            for (found, row) in found.chunks_exact(width).zip([2, 0]) {
                let (own, gate) = x[row * 2 * width..][..2 * width].split_at(width);
                let mut expected = own.to_vec();
                let [weight, bias] = [&weight, &bias].map(|bytes| Floats::new(DType::F32, bytes).unwrap());
                match source {
                    RowSource::Plain => {}
                    RowSource::Normed(norm) if norm.layer => {
                        layer_norm(isa, own, Gain::Stored(weight), Some(bias), 1e-5, &mut expected)
                    }
                    RowSource::Normed(_) => rms_norm(isa, own, Gain::Stored(weight), 1e-5, &mut expected),
                    RowSource::SwiGlu { .. } => swiglu(isa, gate, own, &mut expected),
                    RowSource::Gelu => gelu_tanh(isa, &mut expected),
                }
                for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    // Two exponentials are within 2 units of the last place, and a norm's sums are in another order.
                    let size = expected.abs().max(1e-3);
                    assert!((found - expected).abs() <= 1e-6 * size, "{source:?} {width} {i}: {found} for {expected}");
                }
            }
        }
    }
}

#[test]
fn rounds_as_the_processor_does() {
    let mut random = Random::new(82);
    let Some(bench) = Bench::new((9, 0), 4 * 5000) else { return };
    for width in [32, 96, 1024, 1056, 4128] {
        let mut x: Vec<f32> = random.floats(2 * width).iter().map(|x| x * 9.0).collect();
        x[..32].fill(0.0);
        x[width..width + 32].iter_mut().zip(-16..).for_each(|(x, i)| *x = i as f32 * 127.0 / 16.0);
        let of_x = buffer(&bench.gpu, &bytes_of(&x));
        let rows = Rows { source: RowSource::Plain, address: of_x.address, stride: width, gather: 0, count: 2 };
        let (bytes, steps) = prepared(&bench, rows, OperandForm::Q8, width);
        for (block, x) in x.chunks_exact(32).enumerate() {
            // The rule of `kernels::Form::Q8`, by the standard library's rounding.
            let scale = x.iter().fold(0f32, |a, x| a.max(x.abs())) / 127.0;
            let q = |x: &f32| if scale == 0.0 { 0 } else { (x / scale).round_ties_even() as i32 };
            let expected: Vec<i32> = x.iter().map(q).collect();
            let found: Vec<i32> = bytes[32 * block..][..32].iter().map(|byte| i32::from(*byte as i8)).collect();
            assert_eq!(found, expected, "{width} block {block}");
            let step = &steps[8 * block..][..8];
            assert_eq!(step[..4], scale.to_le_bytes(), "{width} block {block}");
            let halves = expected.chunks_exact(16).map(|half| half.iter().sum::<i32>() as i16);
            assert_eq!(step[4..], halves.flat_map(i16::to_le_bytes).collect::<Vec<u8>>(), "{width} block {block}");
        }
        let (bytes, _) = prepared(&bench, rows, OperandForm::Bf16, width);
        let expected: Vec<u8> = x.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        assert_eq!(bytes, expected, "{width}");
        let (bytes, steps) = prepared(&bench, rows, OperandForm::F16, width);
        for (row, scale) in floats(&steps).into_iter().enumerate() {
            assert_eq!(scale.to_bits() << 9, 0, "{scale} is a power of two");
            let halves = bytes[2 * row * width..][..2 * width].as_chunks::<2>().0;
            for (half, x) in halves.iter().zip(&x[row * width..]) {
                assert_eq!(half::f16::from_le_bytes(*half), half::f16::from_f32(x / scale), "{width}: {x}");
            }
        }
    }
}

/// NaN, or a number too large for F16, must not become a number.
#[test]
fn what_is_not_finite_stays_so_and_what_is_large_does_not_overflow() {
    let Some(bench) = Bench::new((9, 0), 4096) else { return };
    let width = 64;
    for (bad, finite) in [(f32::NAN, false), (f32::INFINITY, false), (3e38, true), (1e-42, true), (-1e30, true)] {
        let mut x = vec![bad * 1e-3; width];
        x[40] = bad;
        let of_x = buffer(&bench.gpu, &bytes_of(&x));
        let rows = Rows { source: RowSource::Plain, address: of_x.address, stride: width, gather: 0, count: 1 };
        let (bytes, steps) = prepared(&bench, rows, OperandForm::F16, width);
        let half = half::f16::from_le_bytes([bytes[80], bytes[81]]);
        let back = half.to_f32() * floats(&steps)[0];
        assert_eq!(back.is_finite(), finite, "{bad}: {back}");
        assert!(!finite || (back - bad).abs() <= 1e-3 * bad.abs() + 1e-44, "{bad}: {back}");
        let (_, steps) = prepared(&bench, rows, OperandForm::Q8, width);
        assert_eq!(floats(&steps)[2].is_finite(), finite, "{bad}");
        let rule = model_factory_kernels::Int8Rule::Token { symmetric: true };
        let (_, steps) = prepared(&bench, rows, OperandForm::Int8(rule), width);
        assert_eq!(floats(&steps)[0].is_finite(), finite, "{bad}");
    }
}
