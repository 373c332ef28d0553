//! Layers with a state, over the rows of each sequence in their order: the code that they share. Each kind has a file.

mod delta_net;
mod mamba;
mod short_conv;

use super::CpuDevice;
use super::device::CpuPass;
use super::matrix::Matrix;
use super::operand::Operands;
use super::scratch::with_scratch;
use crate::decoder::{Batch, RecurrentLayers, Sequence, border, floats, widened};
use crate::error::{Error, Result};
use crate::kernels::{self, add_floats, convolve};
use crate::memory::{self, Refusals};
use crate::threads::TileMut;
use crate::weights::WeightView;
use model_factory_spec::plan::{KV_PAGE, STATE_CHUNK};
use model_factory_spec::spec::{ConvWeights, Mixer};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

const _: () = assert!(STATE_CHUNK == kernels::CHUNK && KV_PAGE.is_multiple_of(STATE_CHUNK));

/// Channels of one task of a convolution.
const TASK_CHANNELS: usize = 128;

impl RecurrentLayers<CpuDevice> for CpuDevice {
    fn advance(&self, pass: &mut CpuPass<'_>, layer: usize, mixer: &Mixer<Self>) -> Result<()> {
        match mixer {
            Mixer::Attention(_) => Ok(()),
            Mixer::DeltaNet(net) => self.delta_net(pass, layer, net),
            Mixer::ShortConv(conv) => self.short_conv(pass, layer, &conv.conv),
            Mixer::Mamba(mamba) => self.mamba(pass, layer, mamba),
        }
    }

    fn swap_aside(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        std::mem::swap(&mut pass.mixed, &mut pass.aside);
        Ok(())
    }
}

impl CpuDevice {
    /// Advances every head, whose state is a matrix, by the rows of its sequence, chunk by chunk: `advance` writes its columns of
    /// `mixed`.
    fn advance_heads(
        &self,
        (batch, mixed): (&mut Batch<'_>, &mut Vec<f32>),
        layer: usize,
        [heads, key_dim, value_dim]: [usize; 3],
        advance: &(dyn Fn(usize, Chunk<'_, '_>) -> memory::Result<()> + Sync),
    ) -> Result<()> {
        let (rows, sequences) = (batch.rows, &mut batch.sequences);
        mixed.resize(rows * heads * value_dim, 0.0);
        let mut states: Vec<Mutex<&mut [f32]>> = memory::reserved(sequences.len() * heads, "heads of states")?;
        let mut spans = memory::reserved(sequences.len(), "rows of sequences")?;
        let mut kept: Vec<Kept<'_>> = Vec::new();
        for (index, Sequence { rows, start, state, checkpoints, .. }) in sequences.iter_mut().enumerate() {
            spans.push((rows.clone(), *start));
            for checkpoint in checkpoints.iter_mut() {
                let (position, (_, matrices)) = (checkpoint.position, checkpoint.layer(layer));
                let matrices = matrices.chunks_exact_mut(key_dim * value_dim).map(Mutex::new);
                let matrices = memory::collected(matrices, "states of prefixes")?;
                kept.push(Kept { sequence: index, position, matrices });
            }
            let (_, of_layer) = state.as_mut().ok_or_else(no_state)?.layer(layer);
            states.extend(of_layer.chunks_exact_mut(of_layer.len() / heads).map(Mutex::new));
        }
        let columns: Vec<usize> = (0..=heads).map(|head| head * value_dim).collect();
        let refusals = Refusals::default();
        self.pool.run_grid(mixed, heads * value_dim, rows, &columns, &|tile, out| {
            let head = tile.columns.start / value_dim;
            for (sequence, (rows, start)) in spans.iter().enumerate() {
                let mut state = states[sequence * heads + head].lock().unwrap_or_else(PoisonError::into_inner);
                let mut row = rows.start;
                while row < rows.end {
                    let first = (start + row - rows.start) % STATE_CHUNK;
                    let count = (STATE_CHUNK - first).min(rows.end - row);
                    let of_chunk = row..row + count;
                    refusals.note(advance(head, Chunk { state: &mut state, first, out, rows: of_chunk }));
                    row += count;
                    let position = start + row - rows.start;
                    if let Some(kept) = kept.iter().find(|kept| (kept.sequence, kept.position) == (sequence, position))
                    {
                        let mut matrix = kept.matrices[head].lock().unwrap_or_else(PoisonError::into_inner);
                        let len = matrix.len();
                        matrix.copy_from_slice(&state[..len]);
                    }
                }
            }
        });
        Ok(refusals.into_result()?)
    }

    /// Convolves the first columns of `projected` `[rows, width]` in place, after the rows that the states have, and
    /// keeps in the states what later rows read.
    fn convolve_rows(&self, pass: &mut CpuPass<'_>, layer: usize, conv: &ConvWeights<Self>, silu: bool) -> Result<()> {
        let &ConvWeights { channels, kernel, .. } = conv;
        let CpuPass { batch, projected, .. } = pass;
        let (row_count, sequences) = (batch.rows, &mut batch.sequences);
        let width = projected.len() / row_count.max(1);
        let before = (kernel - 1) * channels;
        let mut histories: Vec<Vec<f32>> = memory::reserved(sequences.len(), "what convolutions read")?;
        let mut spans = memory::reserved(sequences.len(), "rows of sequences")?;
        for Sequence { rows, start, state, checkpoints, .. } in sequences {
            let (kept, _) = state.as_mut().ok_or_else(no_state)?.layer(layer);
            let history = &kept[(*start - border(*start)) * channels..][..before];
            histories.push(memory::copied(history, "what a convolution reads")?);
            let row = |row: usize| &projected[row * width..][..channels];
            for checkpoint in checkpoints.iter_mut() {
                // The place of position p is p + kernel - 1: positions before the first are zeros in what is kept.
                let first = checkpoint.position;
                let (rows_before, _) = checkpoint.layer(layer);
                for (place, to) in (first..).zip(rows_before.chunks_exact_mut(channels)) {
                    to.copy_from_slice(match place.checked_sub(*start + kernel - 1) {
                        Some(index) => row(rows.start + index),
                        None => &kept[(place - border(*start)) * channels..][..channels],
                    });
                }
            }
            keep(kept, channels, kernel, *start, rows.clone().map(row));
            spans.push(rows.clone());
        }
        // A task reads one tensor.
        let starts = std::iter::once(0).chain(conv.ends.iter().copied());
        let mut columns: Vec<usize> =
            starts.zip(&conv.ends).flat_map(|(start, end)| (start..*end).step_by(TASK_CHANNELS)).collect();
        columns.push(channels);
        if width > channels {
            columns.push(width);
        }
        let refusals = Refusals::default();
        self.pool.run_grid(projected, width, row_count, &columns, &|tile, out| {
            let first = tile.columns.start;
            if first >= channels {
                return;
            }
            let count = tile.columns.len();
            refusals.note(with_scratch((2 * kernel + 1) * count, |scratch| {
                let (weights, scratch) = scratch.split_at_mut(kernel * count);
                let (window, scratch) = scratch.split_at_mut(kernel * count);
                let (bias, _) = scratch.split_at_mut(count);
                let of = conv.ends.partition_point(|end| *end <= first);
                let from = first - if of == 0 { 0 } else { conv.ends[of - 1] };
                self.read(&conv.weights[of], from * kernel..(from + count) * kernel, window);
                for (back, weights) in weights.chunks_exact_mut(count).enumerate() {
                    weights.iter_mut().zip(window.chunks_exact(kernel)).for_each(|(weight, of)| *weight = of[back]);
                }
                let bias = conv.bias.as_ref().map(|stored| {
                    self.read(stored, first..first + count, bias);
                    &*bias
                });
                for (rows, history) in spans.iter().zip(&histories) {
                    let (_, earlier) = window.split_at_mut(count);
                    for (window, history) in earlier.chunks_exact_mut(count).zip(history.chunks_exact(channels)) {
                        window.copy_from_slice(&history[first..first + count]);
                    }
                    for row in rows.clone() {
                        convolve(self.isa, weights, bias, silu, window, out.row(row));
                    }
                }
                Ok(())
            }));
        });
        Ok(refusals.into_result()?)
    }

    /// `out` are the products of `matrices` with the first `inputs` of these columns of the rows of `batch`.
    fn multiply_columns(
        &self,
        batch: &Batch<'_>,
        matrices: &[&Matrix],
        columns: Columns<'_>,
        inputs: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let (rows, forms) = (batch.rows, matrices.iter().map(|matrix| matrix.form));
        let mut operands = Operands::prepare(&self.spare, forms, inputs, |input, form| {
            input.fill(&self.pool, self.isa, form, rows, inputs, |row, x| {
                x.copy_from_slice(&columns.row(row)[..inputs]);
            })
        })?;
        self.adapt(&mut operands, batch, matrices, |row, x| x.copy_from_slice(&columns.row(row)[..inputs]))?;
        Ok(self.multiply(matrices, &operands, rows, out)?)
    }

    fn read(&self, vector: &WeightView, elements: Range<usize>, out: &mut [f32]) {
        out.fill(0.0);
        add_floats(self.isa, out, floats(vector, elements));
    }
}

/// Keeps in `kept` `[kernel - 1 + STATE_CHUNK, channels]` what later positions read: the rows since the last border,
/// and those that the first position after it reads. `rows` are those from position `start` on.
fn keep<'r>(
    kept: &mut [f32],
    channels: usize,
    kernel: usize,
    start: usize,
    rows: impl ExactSizeIterator<Item = &'r [f32]>,
) {
    let (old, new) = (border(start), border(start + rows.len()));
    let before = kernel - 1;
    // The row of position p is p + before - border.
    if new > old && start + before > new {
        kept.copy_within((new - old) * channels..(start + before - old) * channels, 0);
    }
    for (position, row) in (start..).zip(rows) {
        if let Some(at) = (position + before).checked_sub(new) {
            kept[at * channels..][..channels].copy_from_slice(row);
        }
    }
}

/// The factor of the softplus of each head.
fn decays(heads: usize, stored: &WeightView, is_log: bool) -> memory::Result<Vec<f64>> {
    let stored = widened(stored, heads)?;
    let factors = stored.iter().map(|decay| f64::from(*decay)).map(|decay| if is_log { -decay.exp() } else { decay });
    memory::collected(factors, "decays of heads")
}

/// Columns of products: those from `first` on of rows of `width`.
#[derive(Clone, Copy)]
struct Columns<'p> {
    products: &'p [f32],
    width: usize,
    first: usize,
}

impl<'p> Columns<'p> {
    fn new(products: &'p [f32], width: usize, first: usize) -> Columns<'p> {
        Columns { products, width, first }
    }

    fn row(&self, row: usize) -> &'p [f32] {
        &self.products[row * self.width + self.first..(row + 1) * self.width]
    }
}

/// Rows of one chunk of positions, which advance the state of a head.
struct Chunk<'c, 't> {
    state: &'c mut [f32],
    /// The first row's position in the chunk.
    first: usize,
    /// The head's columns of `mixed`.
    out: &'c mut TileMut<'t>,
    /// The rows of the pass.
    rows: Range<usize>,
}

/// The kept state of a sequence after a position: the matrices of the heads.
struct Kept<'a> {
    sequence: usize,
    position: usize,
    matrices: Vec<Mutex<&'a mut [f32]>>,
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn no_state() -> Error {
    Error::Internal("a sequence without the state of its layers".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the steps, the rows kept are those that a convolution at the next position reads, and after them those
    /// of the chunk.
    #[test]
    fn keeps_the_rows_that_later_positions_read() {
        let (channels, kernel) = (2, 4);
        let row = |position: usize| vec![1.0 + position as f32; channels];
        for steps in [vec![1; 70], vec![16, 5, 11, 38], vec![70], vec![15, 1, 1, 31, 22]] {
            let mut kept = vec![0f32; (kernel - 1 + STATE_CHUNK) * channels];
            let mut start = 0;
            for step in steps {
                let rows: Vec<Vec<f32>> = (start..start + step).map(row).collect();
                keep(&mut kept, channels, kernel, start, rows.iter().map(Vec::as_slice));
                start += step;
                let border = border(start);
                for position in border as i64 - kernel as i64 + 1..start as i64 {
                    let at = (position + kernel as i64 - 1 - border as i64) as usize;
                    let expected = if position < 0 { vec![0.0; channels] } else { row(position as usize) };
                    assert_eq!(kept[at * channels..][..channels], expected, "position {position} of {start}");
                }
            }
        }
    }
}
