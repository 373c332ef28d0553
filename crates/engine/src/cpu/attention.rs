//! q, k and v side by side -> attention output: one streaming pass over the pages of the cache, or over the sequence
//! itself.

use super::device::CpuPass;
use super::disentangled::Relative;
use super::encoder::Distances;
use super::heads::Heads;
use super::page::TILES;
use super::{CpuDevice, TASK_ROWS, scratch};
use crate::decoder::{Sequence, floats};
use crate::error::Result;
use crate::kernels::{self, KvElement, KvTile, Query, STATE, Scoring, Slope, TILE, add_floats, attend};
use crate::memory::{self, Refusals};
use bytemuck::Pod;
use half::f16;
use model_factory_spec::plan::KvDtype;
use model_factory_spec::spec::AttentionWeights;
use std::ops::Range;

/// Tiles of a part: each query's softmax over a part of the context is computed by itself, so that parts are separate
/// tasks for one row, and are merged in their order, so that bits do not depend on which thread computes them.
const PART: usize = 1024 / TILE;

const PAGES: &str = "the pages that attention reads";
pub(super) const QUERIES: &str = "queries of attention";

/// Attention of every row over the cached positions up to its own, as the layer says.
pub(super) struct AttentionPass<'a> {
    pub(super) device: &'a CpuDevice,
    pub(super) heads: Heads,
    pub(super) layer: usize,
    pub(super) weights: &'a AttentionWeights<CpuDevice>,
    pub(super) sequences: &'a [Sequence<'a>],
    /// `[rows, width]`: q, and the other projections next to it.
    pub(super) qkv: &'a [f32],
    pub(super) width: usize,
    pub(super) distances: &'a Distances,
    pub(super) relative: Option<&'a Relative>,
    /// Where windows end, where rows of an encoder attend in these.
    pub(super) windows: &'a [usize],
}

impl AttentionPass<'_> {
    /// Lets `queries` of `rows` attend to the positions of `tile` that their rows have `seen`; `then` is the next tile.
    pub(super) fn through_tile<E: KvElement>(
        &self,
        queries: &mut [Query<'_>],
        rows: &[usize],
        seen: impl Fn(usize) -> Range<usize>,
        (index, tile): (usize, KvTile<'_, E>),
        then: Option<KvTile<'_, E>>,
    ) {
        let group = queries.len() / rows.len();
        let AttentionWeights { score_scale: scale, score_cap: cap, .. } = *self.weights;
        let scoring = Scoring { scale, cap, first: index * TILE };
        let mut rest = queries;
        for alike in rows.chunk_by(|&a, &b| seen(a) == seen(b)) {
            let (queries, others) = rest.split_at_mut(alike.len() * group);
            rest = others;
            attend(self.device.isa, queries, tile, seen(alike[0]), then, scoring);
        }
    }

    /// Fills `out` `[rows, queries * value_dim]` from pages of the cache's dtype.
    pub(super) fn fill(&self, out: &mut [f32]) -> memory::Result<()> {
        match self.device.kv_dtype() {
            KvDtype::F32 => self.fill_from::<f32>(out),
            KvDtype::F16 => self.fill_from::<f16>(out),
            KvDtype::Q8_0 => self.fill_from::<u8>(out),
        }
    }

    fn fill_from<E: KvElement + Pod>(&self, out: &mut [f32]) -> memory::Result<()> {
        let Heads { queries, value_dim: dim, .. } = self.heads;
        let (width, heads) = (queries * dim, self.heads.shares());
        let group = queries / heads;
        let mut pages: Vec<Vec<&[E]>> = memory::reserved(self.sequences.len(), PAGES)?;
        for sequence in self.sequences {
            // Positions that no row sees may have no page any more.
            let kind = self.device.layout.layers[self.layer].kind;
            let of_sequence = sequence.pages.iter().map(|pair| match pair.of(kind) {
                Some(page) => self.device.layout.layer::<E>(page, self.layer),
                None => &[],
            });
            pages.push(memory::collected(of_sequence, PAGES)?);
        }
        // A single row that sees several parts is divided: the parts are separate tasks.
        let is_divided = |sequence: &Sequence<'_>| {
            sequence.rows.len() == 1 && parts(self.tiles(sequence, &sequence.rows)).count() > 1
        };
        let (divided, together): (Vec<usize>, Vec<usize>) =
            (0..self.sequences.len()).partition(|&index| is_divided(&self.sequences[index]));
        let columns: Vec<usize> = (0..=heads).map(|head| head * group * dim).collect();
        if !together.is_empty() {
            let refusals = Refusals::default();
            self.device.pool.run_grid(out, width, TASK_ROWS, &columns, &|part, out| {
                let mut outs: Vec<&mut [f32]> = out.rows().collect();
                for &index in &together {
                    let sequence = &self.sequences[index];
                    let rows = part.rows.start.max(sequence.rows.start)..part.rows.end.min(sequence.rows.end);
                    if !rows.is_empty() {
                        let outs = &mut outs[rows.start - part.rows.start..rows.end - part.rows.start];
                        let context = Context { attend: self, sequence, pages: &pages[index] };
                        refusals.note(context.rows(part.columns.start / (group * dim), rows, outs));
                    }
                }
            });
            refusals.into_result()?;
        }
        for index in divided {
            let sequence = &self.sequences[index];
            let context = Context { attend: self, sequence, pages: &pages[index] };
            context.row(&mut out[sequence.rows.start * width..][..width])?;
        }
        Ok(())
    }

    /// How scores of a query head fall with the distance from `position`, where they do.
    pub(super) fn slope(&self, head: usize, position: usize) -> Option<Slope> {
        self.weights.slope(head).map(|slope| Slope { slope, position })
    }

    /// The positions that a row of `sequence` sees.
    fn positions(&self, sequence: &Sequence<'_>, row: usize) -> Range<usize> {
        let position = sequence.start + row - sequence.rows.start;
        let block = sequence.blocks.iter().find(|block| block.contains(&position));
        self.weights.first_seen(position)..block.map_or(position + 1, |block| block.end)
    }

    /// The tiles that some of `rows` see.
    fn tiles(&self, sequence: &Sequence<'_>, rows: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.positions(sequence, rows.start), self.positions(sequence, rows.end - 1));
        first.start / TILE..last.end.div_ceil(TILE)
    }
}

impl CpuDevice {
    /// `mixed` = the attention of `projected` that `fill` computes, gated where it is.
    pub(super) fn attend_by(
        &self,
        pass: &mut CpuPass<'_>,
        layer: usize,
        attention: &AttentionWeights<Self>,
        fill: impl FnOnce(&AttentionPass<'_>, &mut [f32]) -> memory::Result<()>,
    ) -> Result<()> {
        let CpuPass { batch, projected: qkv, mixed, distances, relative, windows, .. } = pass;
        let heads = self.layout.layers[layer].heads;
        mixed.resize(batch.rows * heads.width(), 0.0);
        let attend = AttentionPass {
            device: self,
            heads,
            layer,
            weights: attention,
            sequences: &batch.sequences,
            qkv,
            width: qkv.len() / batch.rows.max(1),
            distances,
            relative: relative.as_ref(),
            windows,
        };
        fill(&attend, mixed)?;
        if heads.gated {
            let gates = |row: usize| &qkv[row * heads.qkv_width() + heads.width()..][..heads.width()];
            self.pool.chunks(mixed, heads.width(), |row, mixed| kernels::gate_sigmoid(self.isa, gates(row), mixed));
        }
        if let Some(each) = heads.width().checked_div(heads.gates) {
            self.each_row(mixed, heads.width(), |row, mixed| {
                scratch::with_scratch(heads.gates, |gates| {
                    gates.copy_from_slice(&qkv[(row + 1) * heads.qkv_width() - heads.gates..][..heads.gates]);
                    match attention.softplus_gates {
                        true => kernels::softplus(self.isa, gates),
                        false => kernels::sigmoid(self.isa, gates),
                    }
                    let gated = mixed.chunks_exact_mut(each).zip(&*gates);
                    gated.for_each(|(mixed, gate)| mixed.iter_mut().for_each(|x| *x *= *gate));
                    Ok(())
                })
            })?;
        }
        Ok(())
    }
}

/// Splits `tiles` where parts begin.
fn parts(tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    (tiles.start / PART..tiles.end.div_ceil(PART))
        .map(move |part| tiles.start.max(part * PART)..tiles.end.min((part + 1) * PART))
}

/// A sequence and what its rows attend to.
struct Context<'a, E> {
    attend: &'a AttentionPass<'a>,
    sequence: &'a Sequence<'a>,
    pages: &'a [&'a [E]],
}

impl<E: KvElement + Pod> Context<'_, E> {
    /// Several rows of one share of the queries, `head`, part by part.
    fn rows(&self, head: usize, rows: Range<usize>, outs: &mut [&mut [f32]]) -> memory::Result<()> {
        let dim = self.attend.heads.value_dim;
        let count = rows.len() * self.group();
        let mut q: Vec<(&[f32], Option<Slope>)> = memory::reserved(count, QUERIES)?;
        q.extend(rows.clone().flat_map(|row| self.queries(head, row)));
        let outs = outs.iter_mut().flat_map(|out| out.chunks_exact_mut(dim));
        let mut queries: Vec<Query<'_>> = memory::reserved(count, QUERIES)?;
        queries.extend(q.iter().zip(outs).map(|(&(q, slope), out)| Query::new(q, out).sloped(slope)));
        for (index, part) in parts(self.attend.tiles(self.sequence, &rows)).enumerate() {
            if index == 0 {
                self.through(head, &rows, part, &mut queries)?;
                continue;
            }
            let mut scratch = memory::zeros(count * dim, QUERIES)?;
            let outs = scratch.chunks_exact_mut(dim);
            let again = q.iter().zip(outs).map(|(&(q, slope), out)| Query::new(q, out).sloped(slope));
            let mut more = memory::collected(again, QUERIES)?;
            self.through(head, &rows, part, &mut more)?;
            let states = memory::collected(more.iter().map(Query::state), QUERIES)?;
            for ((query, state), out) in queries.iter_mut().zip(&states).zip(scratch.chunks_exact(dim)) {
                query.merge(state, out);
            }
        }
        for (index, query) in queries.into_iter().enumerate() {
            self.finish(head, index % (count / rows.len()), query);
        }
        Ok(())
    }

    /// The only row of the sequence, all heads and parts at once: `out` `[queries * value_dim]`.
    fn row(&self, out: &mut [f32]) -> memory::Result<()> {
        let dim = self.attend.heads.value_dim;
        let (row, group) = (self.sequence.rows.start, self.group());
        let mut ranges = memory::reserved(self.pages.len(), PAGES)?; // a part is several pages
        ranges.extend(parts(self.attend.tiles(self.sequence, &self.sequence.rows)));
        let parts: Vec<Range<usize>> = ranges;
        // The outputs of the queries of each head and part, then their states.
        let each = group * (dim + STATE);
        let mut partial = memory::zeros(self.attend.heads.shares() * parts.len() * each, "parts of attention")?;
        let refusals = Refusals::default();
        self.attend.device.pool.chunks(&mut partial, each, |index, partial| {
            let (outs, states) = partial.split_at_mut(group * dim);
            let (head, part) = (index / parts.len(), &parts[index % parts.len()]);
            let queries = self.queries(head, row).zip(outs.chunks_exact_mut(dim));
            let mut queries: Vec<Query<'_>> =
                queries.map(|((q, slope), out)| Query::new(q, out).sloped(slope)).collect();
            refusals.note(self.through(head, &self.sequence.rows, part.clone(), &mut queries));
            for (state, query) in states.as_chunks_mut().0.iter_mut().zip(&queries) {
                *state = query.state();
            }
        });
        refusals.into_result()?;
        let heads = partial.chunks_exact(parts.len() * each).zip(out.chunks_exact_mut(group * dim));
        for (head, (partial, out)) in heads.enumerate() {
            for (i, ((q, slope), out)) in self.queries(head, row).zip(out.chunks_exact_mut(dim)).enumerate() {
                let mut query = Query::new(q, out).sloped(slope);
                for part in partial.chunks_exact(each) {
                    let (outs, states) = part.split_at(group * dim);
                    query.merge(&states.as_chunks().0[i], &outs[i * dim..][..dim]);
                }
                self.finish(head, i, query);
            }
        }
        Ok(())
    }

    /// Ends the query `index` of the share `head`.
    fn finish(&self, head: usize, index: usize, mut query: Query<'_>) {
        if let Some(sinks) = &self.attend.weights.sinks {
            let head = head * self.group() + index;
            let mut sink = [0.0];
            add_floats(self.attend.device.isa, &mut sink, floats(sinks, head..head + 1));
            query.sink(sink[0]);
        }
        query.finish();
    }

    /// The number of queries of a share.
    fn group(&self) -> usize {
        self.attend.heads.queries / self.attend.heads.shares()
    }

    /// The queries of a row in the share `head`, each with its slope.
    fn queries(&self, head: usize, row: usize) -> impl Iterator<Item = (&[f32], Option<Slope>)> {
        let (dim, group) = (self.attend.heads.dim, self.group());
        let position = self.sequence.start + row - self.sequence.rows.start;
        let all = self.attend.qkv[row * self.attend.width + head * group * dim..][..group * dim].chunks_exact(dim);
        all.enumerate().map(move |(index, q)| (q, self.attend.slope(head * group + index, position)))
    }

    /// Lets `queries`, those of `rows`, attend to the positions of `tiles`.
    fn through(
        &self,
        head: usize,
        rows: &Range<usize>,
        tiles: Range<usize>,
        queries: &mut [Query<'_>],
    ) -> memory::Result<()> {
        let heads @ Heads { kv, dim, value_dim, .. } = self.attend.heads;
        let head = head * kv / heads.shares();
        let stored = |index: usize, first: usize| {
            let (page, len) = (self.pages[index / TILES], E::tile_len(dim));
            &page[(first * TILES + index % TILES) * len..][..len]
        };
        let tile = |index: usize| KvTile { keys: stored(index, head), values: stored(index, kv + head) };
        let rows: Vec<usize> = rows.clone().collect();
        let seen = |index: usize, row: usize| {
            let Range { start, end } = self.attend.positions(self.sequence, row);
            let slot = |position: usize| position.saturating_sub(index * TILE).min(TILE);
            slot(start)..slot(end)
        };
        if heads.values_are_keys() {
            let len = E::tile_len(value_dim);
            return scratch::with_scratch((len * size_of::<E>()).div_ceil(size_of::<f32>()), |values| {
                let values: &mut [E] = &mut bytemuck::cast_slice_mut(values)[..len];
                for index in tiles {
                    let keys = stored(index, head);
                    E::values_of_keys(keys, dim, values, value_dim);
                    let tile = KvTile { keys, values: &*values };
                    self.attend.through_tile(queries, &rows, |row| seen(index, row), (index, tile), None);
                }
                Ok(())
            });
        }
        for index in tiles.clone() {
            // The only row of a sequence is the first to read its cache; of several rows, the later ones find it cached.
            let then = (self.sequence.rows.len() == 1).then(|| tile((index + 1).min(tiles.end - 1)));
            self.attend.through_tile(queries, &rows, |row| seen(index, row), (index, tile(index)), then);
        }
        Ok(())
    }
}
