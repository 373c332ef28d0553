//! Resizing as torchvision does it with bytes on the processor (`interpolate` with `antialias`): a pass along rows, then one along
//! columns, each with weights of 16 bits, sums of 32 bits, and a result that is rounded to bytes.

use crate::Result;
use model_factory_dtypes::memory;
use model_factory_spec::vision::processor::{Rect, Resample, Size};
use std::f64::consts::PI;

/// Channels of a pixel.
const CHANNELS: usize = 3;
const WHAT: &str = "an image that is resized";

/// The weights of one output along a row or a column.
struct Window {
    /// The first input that it reads.
    from: usize,
    /// Where its weights begin and end.
    weights: std::ops::Range<usize>,
}

/// The weights of all outputs, times two to the power of `bits`.
struct Windows {
    windows: Vec<Window>,
    weights: Vec<i32>,
    bits: u32,
}

/// The part `crop` of `pixels`, an image of `size`, resized to `to`.
pub(crate) fn resize(pixels: &[u8], size: Size, crop: Rect, to: Size, filter: Resample) -> Result<Vec<u8>> {
    let from = crop.size;
    let stride = size.width as usize * CHANNELS;
    let start = crop.top as usize * stride + crop.left as usize * CHANNELS;
    let row_bytes = from.width as usize * CHANNELS;
    let rows = pixels[start..].chunks(stride).take(from.height as usize).map(|row| &row[..row_bytes]);
    let wide_bytes = to.width as usize * CHANNELS;
    let mut wide = memory::reserved::<u8>(wide_bytes * from.height as usize, WHAT)?;
    match from.width == to.width {
        true => rows.for_each(|row| wide.extend_from_slice(row)),
        false => {
            let windows = Windows::new(from.width, to.width, filter)?;
            for row in rows {
                windows.along(row, &mut wide);
            }
        }
    }
    if from.height == to.height {
        return Ok(wide);
    }
    let windows = Windows::new(from.height, to.height, filter)?;
    let mut resized = memory::reserved::<u8>(wide_bytes * to.height as usize, WHAT)?;
    let mut sums = memory::zeros::<i32>(wide_bytes, WHAT)?;
    for window in &windows.windows {
        windows.across(&wide, window, &mut sums, &mut resized);
    }
    Ok(resized)
}

impl Windows {
    fn new(from: u32, to: u32, filter: Resample) -> Result<Windows> {
        let scale = f64::from(from) / f64::from(to);
        let support = filter.support() * scale.max(1.0);
        let inverse = if scale >= 1.0 { 1.0 / scale } else { 1.0 };
        let most = (support as f32).ceil() as usize * 2 + 1;
        let mut windows = memory::reserved::<Window>(to as usize, WHAT)?;
        let mut exact = memory::reserved::<f64>(to as usize * most.min(from as usize), WHAT)?;
        let mut largest = 0.0_f64;
        for output in 0..to {
            let center = scale * (f64::from(output) + 0.5);
            // Conversions to integers cut off towards zero, also what is below it.
            let first = ((center - support + 0.5) as i64).max(0);
            let count = ((center + support + 0.5) as i64).min(i64::from(from)) - first;
            let count = count.clamp(0, most as i64);
            let at = |input: i64| filter.weight(((input + first) as f64 - center + 0.5) * inverse);
            let begin = exact.len();
            exact.extend((0..count).map(at));
            let sum: f64 = exact[begin..].iter().sum();
            for weight in &mut exact[begin..] {
                *weight = if sum == 0.0 { *weight } else { *weight / sum };
                largest = largest.max(*weight);
            }
            windows.push(Window { from: first as usize, weights: begin..exact.len() });
        }
        // As many bits as the largest weight leaves in 16, with its sign.
        let fits = |bits: &u32| 0.5 + largest * f64::from(1_u32 << (bits + 1)) < f64::from(1 << 15);
        let bits = (0..22).take_while(fits).count() as u32;
        let rounded = |weight: &f64| {
            let scaled = weight * f64::from(1_u32 << bits);
            (scaled + if *weight < 0.0 { -0.5 } else { 0.5 }) as i32
        };
        Ok(Windows { weights: memory::collected(exact.iter().map(rounded), WHAT)?, windows, bits })
    }

    fn half(&self) -> i32 {
        (1 << self.bits) / 2
    }

    /// One row.
    fn along(&self, row: &[u8], into: &mut Vec<u8>) {
        for window in &self.windows {
            let mut sums = [self.half(); CHANNELS];
            let (pixels, _) = row[window.from * CHANNELS..].as_chunks::<CHANNELS>();
            for (weight, pixel) in self.weights[window.weights.clone()].iter().zip(pixels) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(*value);
                }
            }
            into.extend(sums.map(|sum| (sum >> self.bits).clamp(0, 255) as u8));
        }
    }

    /// One row of outputs, of the rows of an image that has `sums.len()` bytes in each.
    fn across(&self, rows: &[u8], window: &Window, sums: &mut [i32], into: &mut Vec<u8>) {
        sums.fill(self.half());
        let weights = &self.weights[window.weights.clone()];
        for (weight, row) in weights.iter().zip(rows.chunks_exact(sums.len()).skip(window.from)) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += weight * i32::from(*value);
            }
        }
        into.extend(sums.iter().map(|sum| (sum >> self.bits).clamp(0, 255) as u8));
    }
}

/// What a filter is in the size of its input.
trait Filter {
    fn support(self) -> f64;
    fn weight(self, at: f64) -> f64;
}

impl Filter for Resample {
    fn support(self) -> f64 {
        match self {
            Resample::Bilinear => 1.0,
            Resample::Bicubic => 2.0,
            Resample::Lanczos => 3.0,
        }
    }

    fn weight(self, at: f64) -> f64 {
        const A: f64 = -0.5;
        let sinc = |x: f64| (x * PI).sin() / (x * PI);
        let x = at.abs();
        match self {
            Resample::Bilinear if x < 1.0 => 1.0 - x,
            Resample::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Resample::Bicubic if x < 2.0 => ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A,
            Resample::Lanczos if x == 0.0 => 1.0,
            Resample::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}
