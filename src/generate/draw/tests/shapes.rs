//! Logits to draw from, for this library and for candle (`benches/candle`).

/// The seeds of the draws; each is used for all shapes at all temperatures.
pub(crate) const SEEDS: [u64; 6] = [0, 1, 7, 42, 1 << 40, u64::MAX];
pub(crate) const TEMPERATURES: [f32; 5] = [1.0, 0.7, 0.1, 2.5, 50.0];

/// Logits of many shapes: flat, peaked, rising, wide apart, at the edge of F32, and of a whole vocabulary.
pub(crate) fn shapes() -> Vec<Vec<f32>> {
    let noise = |index: usize| ((index * 2_654_435_761) % 1_000_003) as f32 / 1_000_003.0;
    let mut shapes = vec![vec![0.0], vec![-3.5, 2.0], vec![f32::MAX, f32::MIN, 0.0, f32::MAX], vec![-0.0, 0.0]];
    for len in [3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 32_003] {
        shapes.push(vec![1.25; len]);
        shapes.push((0..len).map(|index| 12.0 * noise(index)).collect());
        shapes.push((0..len).map(|index| 200.0 * noise(index) - 100.0).collect());
        shapes.push((0..len).map(|index| -(index as f32).ln_1p()).collect());
        shapes.push((0..len).map(|index| if index == len / 2 { 9.0 } else { 1e-3 * noise(index) }).collect());
    }
    shapes
}

/// The logits of a shape at a temperature.
pub(crate) fn scaled(shape: &[f32], temperature: f32) -> Vec<f32> {
    shape.iter().map(|logit| logit / temperature).map(|logit| logit.clamp(f32::MIN, f32::MAX)).collect()
}
