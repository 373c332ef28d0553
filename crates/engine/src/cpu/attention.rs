//! q, k and v side by side -> attention output: one streaming pass over the pages of the cache, or over the sequence
//! itself.

use super::device::CpuPass;
use super::heads::Heads;
use super::page::TILES;
use super::scratch;
use super::{CpuDevice, TASK_ROWS};
use crate::decoder::{Sequence, floats};
use crate::error::Result;
use crate::kernels::{self, KvElement, KvTile, Query, STATE, Scoring, TILE, add_floats, attend};
use crate::memory::{self, Refusals};
use bytemuck::Pod;
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
}

impl AttentionPass<'_> {
    /// Lets `queries` of `rows` attend to the positions of `tile` that their rows have `seen`; `then` is the next tile.
    pub(super) fn through_tile<E: KvElement>(
        &self,
        queries: &mut [Query<'_>],
        rows: &[usize],
        seen: impl Fn(usize) -> Range<usize>,
        tile: KvTile<'_, E>,
        then: Option<KvTile<'_, E>>,
    ) {
        let group = queries.len() / rows.len();
        let scoring = Scoring { scale: self.weights.score_scale, cap: self.weights.score_cap };
        let mut rest = queries;
        for alike in rows.chunk_by(|&a, &b| seen(a) == seen(b)) {
            let (queries, others) = rest.split_at_mut(alike.len() * group);
            rest = others;
            attend(self.device.isa, queries, tile, seen(alike[0]), then, scoring);
        }
    }

    /// Fills `out` `[rows, queries * head_dim]` from pages of `E`.
    pub(super) fn fill<E: KvElement + Pod>(&self, out: &mut [f32]) -> memory::Result<()> {
        let Heads { queries, kv, dim, .. } = self.heads;
        let (width, group) = (queries * dim, queries / kv);
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
        let columns: Vec<usize> = (0..=kv).map(|head| head * group * dim).collect();
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

    /// The positions that a row of `sequence` sees.
    fn positions(&self, sequence: &Sequence<'_>, row: usize) -> Range<usize> {
        let end = sequence.start + row - sequence.rows.start + 1;
        self.weights.window.map_or(0, |window| end.saturating_sub(window))..end
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
        let CpuPass { batch, projected: qkv, mixed, .. } = pass;
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
        };
        fill(&attend, mixed)?;
        if heads.gated {
            let gates = |row: usize| &qkv[row * heads.qkv_width() + heads.width()..][..heads.width()];
            self.pool.chunks(mixed, heads.width(), |row, mixed| kernels::gate_sigmoid(self.isa, gates(row), mixed));
        }
        if heads.gates > 0 {
            let each = heads.width() / heads.gates;
            self.each_row(mixed, heads.width(), |row, mixed| {
                scratch::with_scratch(heads.gates, |gates| {
                    gates.copy_from_slice(&qkv[(row + 1) * heads.qkv_width() - heads.gates..][..heads.gates]);
                    kernels::sigmoid(self.isa, gates);
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
    /// Several rows of one head of keys and values, part by part.
    fn rows(&self, head: usize, rows: Range<usize>, outs: &mut [&mut [f32]]) -> memory::Result<()> {
        let Heads { queries, kv, dim, .. } = self.attend.heads;
        let count = rows.len() * (queries / kv);
        let mut q: Vec<&[f32]> = memory::reserved(count, QUERIES)?;
        q.extend(rows.clone().flat_map(|row| self.queries(head, row)));
        let outs = outs.iter_mut().flat_map(|out| out.chunks_exact_mut(dim));
        let mut queries: Vec<Query<'_>> = memory::reserved(count, QUERIES)?;
        queries.extend(q.iter().zip(outs).map(|(q, out)| Query::new(q, out)));
        for (index, part) in parts(self.attend.tiles(self.sequence, &rows)).enumerate() {
            if index == 0 {
                self.through(head, &rows, part, &mut queries);
                continue;
            }
            let mut scratch = memory::zeros(count * dim, QUERIES)?;
            let outs = scratch.chunks_exact_mut(dim);
            let mut more = memory::collected(q.iter().zip(outs).map(|(q, out)| Query::new(q, out)), QUERIES)?;
            self.through(head, &rows, part, &mut more);
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

    /// The only row of the sequence, all heads and parts at once: `out` `[queries * head_dim]`.
    fn row(&self, out: &mut [f32]) -> memory::Result<()> {
        let Heads { queries, kv, dim, .. } = self.attend.heads;
        let (row, group) = (self.sequence.rows.start, queries / kv);
        let mut ranges = memory::reserved(self.pages.len(), PAGES)?; // a part is several pages
        ranges.extend(parts(self.attend.tiles(self.sequence, &self.sequence.rows)));
        let parts: Vec<Range<usize>> = ranges;
        // The outputs of the queries of each head and part, then their states.
        let each = group * (dim + STATE);
        let mut partial = memory::zeros(kv * parts.len() * each, "parts of attention")?;
        self.attend.device.pool.chunks(&mut partial, each, |index, partial| {
            let (outs, states) = partial.split_at_mut(group * dim);
            let (head, part) = (index / parts.len(), &parts[index % parts.len()]);
            let queries = self.queries(head, row).zip(outs.chunks_exact_mut(dim));
            let mut queries: Vec<Query<'_>> = queries.map(|(q, out)| Query::new(q, out)).collect();
            self.through(head, &self.sequence.rows, part.clone(), &mut queries);
            for (state, query) in states.as_chunks_mut().0.iter_mut().zip(&queries) {
                *state = query.state();
            }
        });
        let heads = partial.chunks_exact(parts.len() * each).zip(out.chunks_exact_mut(group * dim));
        for (head, (partial, out)) in heads.enumerate() {
            for (i, (q, out)) in self.queries(head, row).zip(out.chunks_exact_mut(dim)).enumerate() {
                let mut query = Query::new(q, out);
                for part in partial.chunks_exact(each) {
                    let (outs, states) = part.split_at(group * dim);
                    query.merge(&states.as_chunks().0[i], &outs[i * dim..][..dim]);
                }
                self.finish(head, i, query);
            }
        }
        Ok(())
    }

    /// Ends the query `index` of those that share the keys of `head`.
    fn finish(&self, head: usize, index: usize, mut query: Query<'_>) {
        if let Some(sinks) = &self.attend.weights.sinks {
            let Heads { queries, kv, .. } = self.attend.heads;
            let head = head * (queries / kv) + index;
            let mut sink = [0.0];
            add_floats(self.attend.device.isa, &mut sink, floats(sinks, head..head + 1));
            query.sink(sink[0]);
        }
        query.finish();
    }

    /// The queries of a row that share the keys of `head`.
    fn queries(&self, head: usize, row: usize) -> impl Iterator<Item = &[f32]> {
        let Heads { queries, kv, dim, .. } = self.attend.heads;
        let width = queries / kv * dim;
        self.attend.qkv[row * self.attend.width + head * width..][..width].chunks_exact(dim)
    }

    /// Lets `queries`, those of `rows`, attend to the positions of `tiles`.
    fn through(&self, head: usize, rows: &Range<usize>, tiles: Range<usize>, queries: &mut [Query<'_>]) {
        let Heads { kv, dim, .. } = self.attend.heads;
        let tile = |index: usize| {
            let (page, first, len) = (self.pages[index / TILES], head * TILES + index % TILES, E::tile_len(dim));
            let of = |tile: usize| &page[tile * len..][..len];
            KvTile { keys: of(first), values: of(kv * TILES + first) }
        };
        let rows: Vec<usize> = rows.clone().collect();
        for index in tiles.clone() {
            let seen = |row: usize| {
                let Range { start, end } = self.attend.positions(self.sequence, row);
                let slot = |position: usize| position.saturating_sub(index * TILE).min(TILE);
                slot(start)..slot(end)
            };
            // The only row of a sequence is the first to read its cache; of several rows, the later ones find it cached.
            let then = (self.sequence.rows.len() == 1).then(|| tile((index + 1).min(tiles.end - 1)));
            self.attend.through_tile(queries, &rows, seen, tile(index), then);
        }
    }
}
