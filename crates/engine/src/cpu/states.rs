//! Layers with a state: gated delta nets and short convolutions, over the rows of each sequence in their order.

use super::norm::NormVectors;
use super::scratch::{with_scratch, with_scratch_parts};
use super::{CpuDevice, KvPage};
use crate::decoder::{Conv, DeltaNet, Sequence, border, floats};
use crate::error::{Error, Result};
use crate::kernels::{self, DeltaRows, DeltaState, add_floats, convolve, delta_scratch, l2_norm, swiglu};
use crate::memory::{self, Refusals};
use crate::threads::TileMut;
use crate::weights::WeightView;
use model_factory_spec::plan::{KV_PAGE, STATE_CHUNK};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

const _: () = assert!(STATE_CHUNK == kernels::CHUNK && KV_PAGE.is_multiple_of(STATE_CHUNK));

/// Channels of one task of a convolution.
const TASK_CHANNELS: usize = 128;

/// Added to the squared length by whose root queries and keys are divided (transformers `l2norm`).
const L2_EPS: f32 = 1e-6;

/// `b`, `c` and `x` of a short convolution stand side by side.
const PARTS: usize = 3;

impl CpuDevice {
    /// See [`Device::delta_net`](crate::decoder::Device::delta_net).
    pub(super) fn advance_delta_net(
        &self,
        sequences: &mut [Sequence<'_, KvPage>],
        layer: usize,
        net: &DeltaNet<WeightView, NormVectors>,
        projected: &mut [f32],
        mixed: &mut Vec<f32>,
    ) -> Result<()> {
        let rows = sequences.last().map_or(0, |sequence| sequence.rows.end);
        let width = projected.len() / rows.max(1);
        if net.by_key_head.contains(&true) {
            let refusals = Refusals::default();
            self.pool.chunks(projected, width, |_, row| {
                let ordered = with_scratch(width, |copy| {
                    net.order(row, copy);
                    Ok(())
                });
                refusals.note(ordered);
            });
            refusals.into_result()?;
        }
        self.convolve_rows(sequences, layer, &net.conv, true, projected, width)?;
        let decays = decays(net.value_heads, &net.decay, net.decay_is_log, &net.dt_bias)?;
        let projected = &*projected;
        let sizes = StateHeads { heads: net.value_heads, key_dim: net.key_dim, value_dim: net.value_dim };
        self.advance_heads(sequences, layer, sizes, mixed, &|index, state, first, rows, out| {
            let head = Head { device: self, net, index, decays: &decays };
            head.advance(state, first, &projected[rows.start * width..rows.end * width], out, rows.start)
        })
    }

    /// Brings every head of the sequences' states on by their rows, chunk by chunk of positions: `advance(head, state, first, rows,
    /// mixed)`, where the rows stand at position `first` of their chunk and behind, gives the head's columns of `mixed`.
    pub(super) fn advance_heads(
        &self,
        sequences: &mut [Sequence<'_, KvPage>],
        layer: usize,
        StateHeads { heads, key_dim, value_dim }: StateHeads,
        mixed: &mut Vec<f32>,
        advance: &Advance<'_>,
    ) -> Result<()> {
        let rows = sequences.last().map_or(0, |sequence| sequence.rows.end);
        mixed.resize(rows * heads * value_dim, 0.0);
        let mut states: Vec<Mutex<&mut [f32]>> = memory::reserved(sequences.len() * heads, "heads of states")?;
        let mut spans = memory::reserved(sequences.len(), "rows of sequences")?;
        let mut kept: Vec<Kept<'_>> = Vec::new();
        for (index, Sequence { rows, start, state, checkpoints, .. }) in sequences.iter_mut().enumerate() {
            spans.push((rows.clone(), *start));
            for checkpoint in checkpoints.iter_mut() {
                let (position, (_, matrices)) = (checkpoint.position(), checkpoint.layer(layer));
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
                    refusals.note(advance(head, &mut state, first, row..row + count, out));
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

    /// See [`Device::short_conv`](crate::decoder::Device::short_conv).
    pub(super) fn advance_short_conv(
        &self,
        sequences: &mut [Sequence<'_, KvPage>],
        layer: usize,
        conv: &Conv<WeightView>,
        projected: &mut [f32],
        mixed: &mut Vec<f32>,
    ) -> Result<()> {
        let channels = conv.channels;
        let width = PARTS * channels;
        self.pool.chunks(projected, width, |_, row| {
            let (b, others) = row.split_at_mut(channels);
            b.iter_mut().zip(&others[channels..]).for_each(|(b, x)| *b *= x);
        });
        self.convolve_rows(sequences, layer, conv, false, projected, width)?;
        mixed.resize(projected.len() / PARTS, 0.0);
        let projected = &*projected;
        self.pool.chunks(mixed, channels, |row, mixed| {
            let (convolved, others) = projected[row * width..(row + 1) * width].split_at(channels);
            mixed.iter_mut().zip(convolved).zip(others).for_each(|((mixed, y), c)| *mixed = y * c);
        });
        Ok(())
    }

    /// Convolves the first columns of `projected` `[rows, width]` in place, behind the rows that the states have, and keeps in
    /// the states what later rows read.
    pub(super) fn convolve_rows(
        &self,
        sequences: &mut [Sequence<'_, KvPage>],
        layer: usize,
        conv: &Conv<WeightView>,
        silu: bool,
        projected: &mut [f32],
        width: usize,
    ) -> Result<()> {
        let &Conv { channels, kernel, .. } = conv;
        let before = (kernel - 1) * channels;
        let mut histories: Vec<Vec<f32>> = memory::reserved(sequences.len(), "what convolutions read")?;
        let mut spans = memory::reserved(sequences.len(), "rows of sequences")?;
        for Sequence { rows, start, state, checkpoints, .. } in sequences {
            let (kept, _) = state.as_mut().ok_or_else(no_state)?.layer(layer);
            let history = &kept[(*start - border(*start)) * channels..][..before];
            histories.push(memory::copied(history, "what a convolution reads")?);
            let row = |row: usize| &projected[row * width..][..channels];
            for checkpoint in checkpoints.iter_mut() {
                // Of position p the place is p + kernel - 1: positions before the first are zeros in what is kept.
                let first = checkpoint.position();
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
        let mut columns: Vec<usize> = (0..channels).step_by(TASK_CHANNELS).chain([channels]).collect();
        if width > channels {
            columns.push(width);
        }
        let (rows, refusals) = (projected.len() / width, Refusals::default());
        self.pool.run_grid(projected, width, rows, &columns, &|tile, out| {
            let first = tile.columns.start;
            if first >= channels {
                return;
            }
            let count = tile.columns.len();
            refusals.note(with_scratch((2 * kernel + 1) * count, |scratch| {
                let (weights, scratch) = scratch.split_at_mut(kernel * count);
                let (window, scratch) = scratch.split_at_mut(kernel * count);
                let (bias, _) = scratch.split_at_mut(count);
                self.read(&conv.weight, first * kernel..(first + count) * kernel, window);
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

    /// `out` = some elements of a stored vector.
    fn read(&self, vector: &WeightView, elements: Range<usize>, out: &mut [f32]) {
        out.fill(0.0);
        add_floats(self.isa, out, floats(vector, elements));
    }
}

/// Keeps in `kept` `[kernel - 1 + STATE_CHUNK, channels]` what later positions read: the rows since the last border, and those
/// that the first position behind it reads. `rows` are those from position `start` on.
fn keep<'r>(
    kept: &mut [f32],
    channels: usize,
    kernel: usize,
    start: usize,
    rows: impl ExactSizeIterator<Item = &'r [f32]>,
) {
    let (old, new) = (border(start), border(start + rows.len()));
    let before = kernel - 1;
    // Of position p the row is p + before - border.
    if new > old && start + before > new {
        kept.copy_within((new - old) * channels..(start + before - old) * channels, 0);
    }
    for (position, row) in (start..).zip(rows) {
        if let Some(at) = (position + before).checked_sub(new) {
            kept[at * channels..][..channels].copy_from_slice(row);
        }
    }
}

/// What the softplus of each head is multiplied by, and what is added before it.
pub(super) fn decays(
    heads: usize,
    stored: &WeightView,
    is_log: bool,
    bias: &WeightView,
) -> memory::Result<Vec<[f64; 2]>> {
    let (decay, bias) = (numbers(stored, heads)?, numbers(bias, heads)?);
    let both = decay.iter().zip(&bias).map(|(decay, bias)| {
        let decay = f64::from(*decay);
        [if is_log { -decay.exp() } else { decay }, f64::from(*bias)]
    });
    memory::collected(both, "decays of heads")
}

/// A stored vector with a number for each head.
pub(super) fn numbers(stored: &WeightView, heads: usize) -> memory::Result<Vec<f32>> {
    let mut numbers = memory::zeros(heads, "numbers of heads")?;
    add_floats(kernels::Isa::portable(), &mut numbers, floats(stored, 0..heads));
    Ok(numbers)
}

/// The heads of a layer whose state is matrices.
pub(super) struct StateHeads {
    pub(super) heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
}

/// What brings a head on: see [`CpuDevice::advance_heads`].
pub(super) type Advance<'a> =
    dyn Fn(usize, &mut [f32], usize, Range<usize>, &mut TileMut<'_>) -> memory::Result<()> + Sync + 'a;

/// What is kept of the state that a sequence has behind a position: the matrices of the heads.
struct Kept<'a> {
    sequence: usize,
    position: usize,
    matrices: Vec<Mutex<&'a mut [f32]>>,
}

/// A value head of a delta net.
struct Head<'a> {
    device: &'a CpuDevice,
    net: &'a DeltaNet<WeightView, NormVectors>,
    index: usize,
    /// Of each head what its softplus is multiplied by, and what is added before it.
    decays: &'a [[f64; 2]],
}

impl Head<'_> {
    /// Brings `state` on by the rows of `projected`, of one chunk of positions from its position `first` on, into `out` from
    /// row `at` on.
    fn advance(
        &self,
        state: &mut [f32],
        first: usize,
        projected: &[f32],
        out: &mut TileMut<'_>,
        at: usize,
    ) -> memory::Result<()> {
        let &Head { device: &CpuDevice { isa, .. }, net, index, .. } = self;
        let (key_dim, value_dim) = (net.key_dim, net.value_dim);
        let (keys, values) = (net.key_heads * key_dim, net.value_heads * value_dim);
        let width = 2 * keys + 2 * values + 2 * net.value_heads;
        let count = projected.len() / width;
        let lengths = [2 * count * key_dim, count * value_dim, count * value_dim, count, count];
        let rest = delta_scratch(key_dim, value_dim);
        with_scratch_parts(lengths, rest, |[keys_queries, own, mixed, decays, strengths], scratch| {
            let [decay, bias] = self.decays[index];
            let head = net.key_head(index) * key_dim;
            for (row, projected) in projected.chunks_exact(width).enumerate() {
                let (qkv, others) = projected.split_at(2 * keys + values);
                let (query, key) = (&qkv[head..][..key_dim], &qkv[keys + head..][..key_dim]);
                let scale = 1.0 / (key_dim as f32).sqrt();
                l2_norm(isa, key, 1.0, L2_EPS, &mut keys_queries[row * key_dim..][..key_dim]);
                l2_norm(isa, query, scale, L2_EPS, &mut keys_queries[(count + row) * key_dim..][..key_dim]);
                own[row * value_dim..][..value_dim].copy_from_slice(&qkv[2 * keys + index * value_dim..][..value_dim]);
                let (beta, alpha) = (others[values + index], others[values + net.value_heads + index]);
                strengths[row] = (1.0 / (1.0 + (-f64::from(beta)).exp())) as f32;
                decays[row] = (decay * softplus(f64::from(alpha) + bias)).exp() as f32;
            }
            let rows = DeltaRows { keys_queries, values: own, decays, strengths: Some(strengths) };
            DeltaState::new(state, key_dim, value_dim).advance(isa, first, rows, scratch, mixed);
            for (row, mixed) in mixed.chunks_exact(value_dim).enumerate() {
                let z = &projected[row * width + 2 * keys + values + index * value_dim..][..value_dim];
                let normed = &mut scratch[..value_dim];
                net.norm.apply(isa, mixed, normed);
                swiglu(isa, z, normed, out.row(at + row));
            }
            Ok(())
        })
    }
}

/// `ln(1 + e^x)`.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn no_state() -> Error {
    Error::Internal("a sequence without the state of its layers".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the steps, the rows kept are those that a convolution at the next position reads, and behind them those of
    /// the chunk.
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
