//! Gated short convolutions.

use crate::cpu::CpuDevice;
use crate::cpu::device::CpuPass;
use crate::error::Result;
use model_factory_spec::spec::ConvWeights;

/// `b`, `c` and `x` of a short convolution stand side by side.
const PARTS: usize = 3;

impl CpuDevice {
    /// `projected` is the product with `bcx`.
    pub(super) fn short_conv(&self, pass: &mut CpuPass<'_>, layer: usize, conv: &ConvWeights<Self>) -> Result<()> {
        let channels = conv.channels;
        let width = PARTS * channels;
        self.pool.chunks(&mut pass.projected, width, |_, row| {
            let (b, others) = row.split_at_mut(channels);
            b.iter_mut().zip(&others[channels..]).for_each(|(b, x)| *b *= x);
        });
        self.convolve_rows(pass, layer, conv, false)?;
        let CpuPass { projected, mixed, .. } = pass;
        mixed.resize(projected.len() / PARTS, 0.0);
        self.pool.chunks(mixed, channels, |row, mixed| {
            let (convolved, others) = projected[row * width..(row + 1) * width].split_at(channels);
            mixed.iter_mut().zip(convolved).zip(others).for_each(|((mixed, y), c)| *mixed = y * c);
        });
        Ok(())
    }
}
