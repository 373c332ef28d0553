//! Operations of encoders: positions and kinds of tokens added to embeddings, and attention of every row over all rows
//! of its sequence: keys and values are those of the pass, and nothing is cached.

use super::attention::{AttentionPass, QUERIES};
use super::device::CpuPass;
use super::disentangled::Relative;
use super::heads::Heads;
use super::{CpuDevice, NormVectors, scratch};
use crate::decoder::EncoderLayers;
use crate::error::Result;
use crate::kernels::{self, KvTile, Query, TILE};
use crate::memory::{self, Refusals};
use model_factory_spec::block::{DISTANCE_BUCKETS, distance_bucket};
use model_factory_spec::spec::{AttentionWeights, InputWeights, PositionWeights};
use std::ops::Range;

impl EncoderLayers<CpuDevice> for CpuDevice {
    fn add_input(&self, pass: &mut CpuPass<'_>, input: &InputWeights<Self>) -> Result<()> {
        let width = pass.hidden.len() / pass.batch.rows.max(1);
        let positions = pass.batch.sequences.iter().flat_map(|sequence| {
            let second = sequence.second_text.unwrap_or(usize::MAX);
            let positions = (sequence.start..).take(sequence.rows.len());
            positions.map(move |position| (position, usize::from(position >= second)))
        });
        scratch::with_scratch(width, |stored| {
            for ((position, kind), hidden) in positions.zip(pass.hidden.chunks_exact_mut(width)) {
                if let Some(types) = &input.token_types {
                    types.dequantize_row(kind, stored);
                    kernels::add(self.isa, hidden, stored);
                }
                if let Some(PositionWeights { rows, first }) = &input.positions {
                    rows.dequantize_row(first + position, stored);
                    kernels::add(self.isa, hidden, stored);
                }
            }
            Ok(())
        })?;
        if let Some(projection) = &input.projection {
            let operands = self.normed(None, &pass.hidden, &[projection])?;
            pass.hidden.resize(pass.batch.rows * projection.outputs, 0.0);
            self.multiply(&[projection], &operands, pass.batch.rows, &mut pass.hidden)?;
        }
        let longest = pass.batch.sequences.iter().map(|sequence| sequence.rows.len()).max().unwrap_or(0);
        if let Some(distances) = &input.distances {
            pass.distances = Distances::new(distances, longest)?;
        }
        if let Some(relative) = &input.relative {
            pass.relative = Some(Relative::new(self, relative, longest)?);
        }
        Ok(())
    }

    fn norm(&self, pass: &mut CpuPass<'_>, norm: &NormVectors) -> Result<()> {
        Ok(self.norm_rows(norm, &mut pass.hidden)?)
    }

    fn attend_all(&self, pass: &mut CpuPass<'_>, layer: usize, attention: &AttentionWeights<Self>) -> Result<()> {
        if let (Some(relative), Some(positions)) = (&mut pass.relative, &attention.positions) {
            relative.project(self, positions)?;
        }
        self.attend_by(pass, layer, attention, |attend, out| attend.fill_whole(out))
    }
}

/// What is added to scores by the distance of positions, for texts of up to `longest` tokens.
#[derive(Default)]
pub(super) struct Distances {
    /// For each head the numbers of keys from `longest - 1` positions before a query to as many after it.
    numbers: Vec<f32>,
    longest: usize,
}

impl Distances {
    /// Of `buckets`, which hold a number for each head.
    fn new(buckets: &[f32], longest: usize) -> memory::Result<Distances> {
        let (heads, around) = (buckets.len() / DISTANCE_BUCKETS, 2 * longest.max(1) - 1);
        let mut numbers = memory::zeros(heads * around, "scores by distance")?;
        for (head, numbers) in numbers.chunks_exact_mut(around).enumerate() {
            for (number, distance) in numbers.iter_mut().zip(1 - longest as isize..) {
                *number = buckets[distance_bucket(distance) * heads + head];
            }
        }
        Ok(Distances { numbers, longest })
    }

    /// Those of a query head for the positions of a text from the first on, seen from `position`; none where there are none.
    fn of(&self, head: usize, position: usize) -> Option<&[f32]> {
        let around = 2 * self.longest.max(1) - 1;
        self.numbers.chunks_exact(around).nth(head).map(|numbers| &numbers[self.longest - 1 - position..])
    }
}

impl AttentionPass<'_> {
    /// Fills `out` `[rows, queries * head_dim]`. A task is a sequence and a head of keys and values.
    fn fill_whole(&self, out: &mut [f32]) -> memory::Result<()> {
        let Heads { queries, kv, dim, .. } = self.heads;
        let (width, group) = (queries * dim, queries / kv);
        let mut bands = memory::reserved(self.sequences.len().max(self.windows.len()) + 1, QUERIES)?;
        bands.push(0);
        match self.windows {
            [] => bands.extend(self.sequences.iter().map(|sequence| sequence.rows.end)),
            windows => bands.extend_from_slice(windows),
        }
        let columns: Vec<usize> = (0..=kv).map(|head| head * group * dim).collect();
        let refusals = Refusals::default();
        self.device.pool.run_bands(out, width, &bands, &columns, &|_, part, out| {
            let (rows, head) = (&part.rows, part.columns.start / (group * dim));
            let tiled = 2 * rows.len().next_multiple_of(TILE) * dim;
            let more = self.relative.map_or(0, |relative| relative.elements(rows.len(), dim));
            refusals.note(scratch::with_scratch_parts([tiled], more, |[tiled], more| {
                let tiles = self.tiles_of(head, rows, tiled);
                let terms = self.position_terms(head, rows, more)?;
                let mut queries: Vec<Query<'_>> = memory::reserved(rows.len() * group, QUERIES)?;
                for (row, out) in rows.clone().zip(out.rows()) {
                    let of_row = &self.qkv[row * self.width + head * group * dim..][..group * dim];
                    let heads = of_row.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
                    let of_head = |(index, (q, out))| {
                        let (head, position) = (head * group + index, row - rows.start);
                        let bias = self.distances.of(head, position).or(terms.chunks_exact(rows.len()).nth(position));
                        Query::new(q, out).sloped(self.slope(head, position)).biased(bias)
                    };
                    queries.extend(heads.enumerate().map(of_head));
                }
                let local: Vec<usize> = memory::collected(0..rows.len(), QUERIES)?;
                for (index, tile) in tiles.enumerate() {
                    let seen = |row: usize| {
                        let window = self.weights.window.unwrap_or(rows.len());
                        let slot = |position: usize| position.saturating_sub(index * TILE).min(TILE);
                        slot((row + 1).saturating_sub(window))..slot((row + window).min(rows.len()))
                    };
                    self.through_tile(&mut queries, &local, seen, (index, tile), None);
                }
                queries.into_iter().for_each(Query::finish);
                Ok(())
            }));
        });
        refusals.into_result()
    }

    /// Keys and values of `rows` of a head in tiles, which `scratch` holds.
    fn tiles_of<'t>(
        &self,
        head: usize,
        rows: &Range<usize>,
        scratch: &'t mut [f32],
    ) -> impl Iterator<Item = KvTile<'t, f32>> + use<'t> {
        let Heads { kv, dim, .. } = self.heads;
        let (keys, values) = scratch.split_at_mut(scratch.len() / 2);
        let first = self.heads.keys() + head * dim;
        for (index, row) in rows.clone().enumerate() {
            let row = &self.qkv[row * self.width + first..];
            let tile = &mut keys[index / TILE * TILE * dim..][..TILE * dim];
            tile.iter_mut().skip(index % TILE).step_by(TILE).zip(&row[..dim]).for_each(|(to, key)| *to = *key);
            values[index * dim..][..dim].copy_from_slice(&row[kv * dim..][..dim]);
        }
        let (keys, values): (&'t [f32], &'t [f32]) = (keys, values);
        keys.chunks_exact(TILE * dim).zip(values.chunks_exact(TILE * dim)).map(|(keys, values)| KvTile { keys, values })
    }
}
