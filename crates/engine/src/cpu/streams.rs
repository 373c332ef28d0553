//! Several residual streams (AltUp), and the residual beside attention (LAuReL).

use super::device::CpuPass;
use super::operand::Operands;
use super::{CpuDevice, Matrix, NormVectors, scratch};
use crate::decoder::{ResidualStreams, floats};
use crate::error::Result;
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::{AltUpUse, AltUpWeights, LaurelWeights, LayerEmbeddingUse};

/// The least mean of the squares of a stream that takes the magnitude of another, as in transformers.
const LEAST: f32 = 1e-5;

impl ResidualStreams<CpuDevice> for CpuDevice {
    fn begin(&self, pass: &mut CpuPass<'_>, AltUpWeights { inputs, .. }: &AltUpWeights<Self>) -> Result<()> {
        let CpuPass { batch, hidden, product, streams, .. } = pass;
        let (rows, width, all) = (batch.rows, self.buffers.hidden, self.buffers.streams);
        self.each_row(streams, all, |row, streams| {
            streams[..width].copy_from_slice(&hidden[row * width..][..width]);
            Ok(())
        })?;
        let matrices: Vec<&Matrix> = inputs.iter().collect();
        let operands = self.normed(None, hidden, &matrices)?;
        for (index, matrix) in matrices.iter().enumerate() {
            let product = &mut product[..rows * width];
            self.multiply(&[matrix], &operands, rows, product)?;
            self.each_row(streams, all, |row, streams| {
                let (first, further) = streams.split_at_mut(width);
                let stream = &mut further[index * width..][..width];
                stream.copy_from_slice(&product[row * width..][..width]);
                kernels::match_magnitude(self.isa, stream, first, LEAST);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn predict(&self, pass: &mut CpuPass<'_>, layer: &AltUpUse<Self>) -> Result<()> {
        let (width, all) = (self.buffers.hidden, self.buffers.streams);
        self.first_stream(pass, |_| Ok(()))?;
        self.coefficients(pass, layer, &layer.prediction)?;
        let CpuPass { batch, projected, streams, .. } = pass;
        let count = all / width;
        let coefficients = &projected[batch.rows * count..];
        self.each_row(streams, all, |row, streams| {
            let coefficients = &coefficients[row * count * count..][..count * count];
            scratch::with_scratch(all, |before| {
                before.copy_from_slice(streams);
                for (stream, factors) in streams.chunks_exact_mut(width).zip(coefficients.chunks_exact(count)) {
                    for (before, factor) in before.chunks_exact(width).zip(factors) {
                        kernels::add_scaled(self.isa, stream, before, *factor);
                    }
                }
                Ok(())
            })
        })?;
        self.first_stream(pass, |_| Ok(()))
    }

    fn correct(&self, pass: &mut CpuPass<'_>, layer: &AltUpUse<Self>) -> Result<()> {
        let (width, all) = (self.buffers.hidden, self.buffers.streams);
        self.coefficients(pass, layer, &layer.correction)?;
        let CpuPass { batch, hidden, projected, streams, .. } = pass;
        let count = all / width;
        let coefficients = &projected[batch.rows * count..];
        self.each_row(streams, all, |row, streams| {
            scratch::with_scratch(width, |change| {
                change.copy_from_slice(&hidden[row * width..][..width]);
                kernels::add_scaled(self.isa, change, &streams[..width], -1.0);
                for (stream, factor) in streams.chunks_exact_mut(width).zip(&coefficients[row * count..]) {
                    kernels::add_scaled(self.isa, stream, change, *factor + 1.0);
                }
                Ok(())
            })
        })?;
        self.first_stream(pass, |hidden| {
            if let Some(scale) = &layer.scale {
                kernels::scale_floats(self.isa, hidden, floats(scale, 0..width));
            }
            Ok(())
        })
    }

    fn add_layer_embedding(&self, pass: &mut CpuPass<'_>, embedding: &LayerEmbeddingUse<Self>) -> Result<()> {
        let LayerEmbeddingUse { output, output_norm, .. } = embedding;
        let CpuPass { batch, mixed, product, streams, .. } = pass;
        let (rows, width) = (batch.rows, self.buffers.hidden);
        let product = &mut product[..rows * width];
        self.multiply(&[output], &self.normed(None, mixed, &[output])?, rows, product)?;
        Ok(self.each_row(streams, self.buffers.streams, |row, streams| {
            scratch::with_scratch(width, |normed| {
                output_norm.apply(self.isa, &product[row * width..][..width], normed);
                let further = streams.chunks_exact_mut(width).skip(1);
                further.for_each(|stream| kernels::add(self.isa, stream, normed));
                Ok(())
            })
        })?)
    }

    fn end(&self, pass: &mut CpuPass<'_>, AltUpWeights { outputs, .. }: &AltUpWeights<Self>) -> Result<()> {
        let (width, all) = (self.buffers.hidden, self.buffers.streams);
        self.first_stream(pass, |_| Ok(()))?;
        let CpuPass { batch, hidden, product, streams, .. } = pass;
        let (rows, product) = (batch.rows, &mut product[..batch.rows * width]);
        for (index, matrix) in outputs.iter().enumerate() {
            let operands = Operands::prepare(&self.spare, std::iter::once(matrix.form), width, |input, form| {
                input.fill(&self.pool, self.isa, form, rows, width, |row, stream| {
                    stream.copy_from_slice(&streams[row * all + (1 + index) * width..][..width]);
                })
            })?;
            self.multiply(&[matrix], &operands, rows, product)?;
            self.each_row(product, width, |row, product| {
                kernels::match_magnitude(self.isa, product, &streams[row * all..][..width], LEAST);
                Ok(())
            })?;
            self.each_row(hidden, width, |row, hidden| {
                kernels::add(self.isa, hidden, &product[row * width..][..width]);
                Ok(())
            })?;
        }
        let mean = width as f32 / all as f32;
        Ok(self.each_row(hidden, width, |_, hidden| {
            hidden.iter_mut().for_each(|x| *x *= mean);
            Ok(())
        })?)
    }

    fn add_laurel(
        &self,
        pass: &mut CpuPass<'_>,
        norm: Option<&NormVectors>,
        LaurelWeights { down, up, norm: output_norm }: &LaurelWeights<Self>,
    ) -> Result<()> {
        let CpuPass { batch, hidden, projected, product, .. } = pass;
        let (rows, width) = (batch.rows, self.buffers.hidden);
        projected.resize(rows * down.outputs, 0.0);
        self.multiply(&[down], &self.normed(norm, hidden, &[down])?, rows, projected)?;
        let product = &mut product[..rows * width];
        self.multiply(&[up], &self.normed(None, projected, &[up])?, rows, product)?;
        Ok(self.each_row(hidden, width, |row, hidden| {
            scratch::with_scratch_parts([width, width], 0, |[read, normed], _| {
                match norm {
                    Some(norm) => norm.apply(self.isa, hidden, read),
                    None => read.copy_from_slice(hidden),
                }
                output_norm.apply(self.isa, &product[row * width..][..width], normed);
                kernels::add(self.isa, hidden, read);
                kernels::add(self.isa, hidden, normed);
                Ok(())
            })
        })?)
    }
}

impl CpuDevice {
    /// `hidden` = the first stream, changed by `change`.
    fn first_stream(
        &self,
        CpuPass { hidden, streams, .. }: &mut CpuPass<'_>,
        change: impl Fn(&mut [f32]) -> memory::Result<()> + Sync,
    ) -> Result<()> {
        let (width, all) = (self.buffers.hidden, self.buffers.streams);
        Ok(self.each_row(hidden, width, |row, hidden| {
            hidden.copy_from_slice(&streams[row * all..][..width]);
            change(hidden)
        })?)
    }

    /// `projected` = the modalities of `hidden`, `[rows, streams]`, and after them their products with `matrix`.
    fn coefficients(&self, pass: &mut CpuPass<'_>, layer: &AltUpUse<Self>, matrix: &Matrix) -> Result<()> {
        let CpuPass { batch, hidden, projected, .. } = pass;
        let (rows, count) = (batch.rows, layer.router.outputs);
        projected.resize(rows * (count + matrix.outputs), 0.0);
        let (modalities, coefficients) = projected.split_at_mut(rows * count);
        let operands = self.normed(Some(&layer.norm), hidden, &[&layer.router])?;
        self.multiply(&[&layer.router], &operands, rows, modalities)?;
        let scale = (layer.router.inputs as f32).recip();
        modalities.iter_mut().for_each(|x| *x *= scale);
        kernels::soft_cap(self.isa, modalities, 1.0);
        Ok(self.multiply(&[matrix], &self.normed(None, modalities, &[matrix])?, rows, coefficients)?)
    }
}
