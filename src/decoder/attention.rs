//! q, k and v side by side -> attention output: rotation in place, then one streaming pass over the cache's pages.

use super::kv_cache::Heads;
use super::rope::Angles;
use crate::kernels::{Element, KvTile, Query, STATE, TILE, attend};
use crate::linear::{Engine, NormScale, contiguous, outputs, with_scratch};
use crate::memory::{self, Refusals};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, Storage, Tensor, WithDType, bail};
use half::f16;
use model_diagnostics::plan::KV_PAGE;
use std::ops::{Deref, Range};

/// Query rows of one task: enough to reuse a page of keys while it is in the cache.
const QUERY_ROWS: usize = 16;

/// Tiles of a part: each query's softmax over a part of the context is made by itself, so that parts are tasks of their own
/// for one row, and merged in their order, so that bits do not depend on who computes them.
const PART: usize = 1024 / TILE;

/// What memory is for, in errors.
const PAGES: &str = "the pages that attention reads";
const QUERIES: &str = "queries of attention";

/// Tiles of a page.
const TILES: usize = KV_PAGE / TILE;
const _: () = assert!(TILES * TILE == KV_PAGE);

/// Norms every head of q and k, where the model does, and rotates it by its row's position.
pub(super) struct Rotate<'a> {
    pub(super) engine: &'a Engine,
    pub(super) heads: Heads,
    pub(super) q_norm: Option<&'a NormScale>,
    pub(super) k_norm: Option<&'a NormScale>,
    pub(super) angles: &'a Angles,
}

impl InplaceOp1 for Rotate<'_> {
    fn name(&self) -> &'static str {
        "rotate"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (CpuStorage::F32(data), Some((start, end))) = (storage, layout.contiguous_offsets()) else {
            bail!("q, k and v must be contiguous F32");
        };
        let width = self.heads.qkv_width();
        let rotated = self.heads.rotated_width();
        let refusals = Refusals::default();
        self.engine.pool.run_grid(&mut data[start..end], width, QUERY_ROWS, &[0, width], &|tile, out| {
            for row in tile.rows.clone() {
                let heads = out.row(row)[..rotated].chunks_exact_mut(self.heads.dim);
                for (index, head) in heads.enumerate() {
                    let norm = if index < self.heads.queries { self.q_norm } else { self.k_norm };
                    if let Some(norm) = norm {
                        refusals.note(with_scratch(head.len(), |plain| {
                            plain.copy_from_slice(head);
                            norm.apply(self.engine.isa, plain, head);
                            Ok(())
                        }));
                    }
                    self.angles.rotate(self.engine.isa, row, head);
                }
            }
        });
        Ok(refusals.into_result()?)
    }
}

/// The rows of one sequence in a batch.
pub(super) struct Sequence<'a> {
    /// Its rows.
    pub(super) rows: Range<usize>,
    /// The position of its first row.
    pub(super) start: usize,
    /// The pages that hold its keys and values, those of its own rows included.
    pub(super) pages: &'a [Tensor],
}

/// Attention of every row over the cached positions up to its own, or the last `window` of them.
pub(super) struct Attend<'a> {
    pub(super) engine: &'a Engine,
    pub(super) heads: Heads,
    pub(super) window: Option<usize>,
    pub(super) sequences: &'a [Sequence<'a>],
}

impl InplaceOp2 for Attend<'_> {
    fn name(&self) -> &'static str {
        "attend"
    }

    fn cpu_fwd(&self, out: &mut CpuStorage, out_at: &Layout, qkv: &CpuStorage, qkv_at: &Layout) -> Result<()> {
        let qkv = contiguous(qkv, qkv_at)?;
        let rows = qkv.len() / self.heads.qkv_width();
        let mut guards = memory::reserved(self.sequences.len(), PAGES)?;
        for sequence in self.sequences {
            let of_sequence = sequence.pages.iter().map(|page| page.storage_and_layout().0);
            guards.push(memory::collected(of_sequence, PAGES)?);
        }
        let out = outputs(out, out_at, rows * self.heads.queries * self.heads.dim)?;
        // Pages of all sequences have the dtype of the model's cache.
        match guards.iter().flatten().next().map(|guard| &**guard) {
            Some(Storage::Cpu(CpuStorage::F16(_))) => self.fill::<f16, _>(qkv, &guards, out),
            _ => self.fill::<f32, _>(qkv, &guards, out),
        }
    }
}

impl Attend<'_> {
    /// Fills `out` `[rows, queries * head_dim]`.
    fn fill<E: PageElement, G: Deref<Target = Storage>>(
        &self,
        qkv: &[f32],
        guards: &[Vec<G>],
        out: &mut [f32],
    ) -> Result<()> {
        let Heads { queries, kv, dim } = self.heads;
        let (width, group) = (queries * dim, queries / kv);
        let mut pages: Vec<Vec<&[E]>> = memory::reserved(guards.len(), PAGES)?;
        for guards in guards {
            let mut of_sequence = memory::reserved(guards.len(), PAGES)?;
            for guard in guards {
                of_sequence.push(page(guard)?);
            }
            pages.push(of_sequence);
        }
        let (alone, together): (Vec<usize>, Vec<usize>) = (0..self.sequences.len()).partition(|&i| self.is_cut(i));
        let columns: Vec<usize> = (0..=kv).map(|head| head * group * dim).collect();
        if !together.is_empty() {
            let refusals = Refusals::default();
            self.engine.pool.run_grid(out, width, QUERY_ROWS, &columns, &|part, out| {
                let mut outs: Vec<&mut [f32]> = out.rows().collect();
                for &index in &together {
                    let sequence = &self.sequences[index];
                    let rows = part.rows.start.max(sequence.rows.start)..part.rows.end.min(sequence.rows.end);
                    if !rows.is_empty() {
                        let outs = &mut outs[rows.start - part.rows.start..rows.end - part.rows.start];
                        let context = Context { attend: self, sequence, pages: &pages[index], qkv };
                        refusals.note(context.rows(part.columns.start / (group * dim), rows, outs));
                    }
                }
            });
            refusals.into_result()?;
        }
        for index in alone {
            let sequence = &self.sequences[index];
            let context = Context { attend: self, sequence, pages: &pages[index], qkv };
            context.row(&mut out[sequence.rows.start * width..][..width])?;
        }
        Ok(())
    }

    /// Whether sequence `index` is one row that sees several parts, which are tasks of their own.
    fn is_cut(&self, index: usize) -> bool {
        let sequence = &self.sequences[index];
        sequence.rows.len() == 1 && parts(self.tiles(sequence, &sequence.rows)).count() > 1
    }

    /// The positions that a row of `sequence` sees.
    fn positions(&self, sequence: &Sequence<'_>, row: usize) -> Range<usize> {
        let end = sequence.start + row - sequence.rows.start + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// The tiles that some of `rows` see.
    fn tiles(&self, sequence: &Sequence<'_>, rows: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.positions(sequence, rows.start), self.positions(sequence, rows.end - 1));
        first.start / TILE..last.end.div_ceil(TILE)
    }
}

/// `tiles` cut where parts begin.
fn parts(tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    (tiles.start / PART..tiles.end.div_ceil(PART))
        .map(move |part| tiles.start.max(part * PART)..tiles.end.min((part + 1) * PART))
}

/// A sequence and what its rows attend to.
struct Context<'a, E> {
    attend: &'a Attend<'a>,
    sequence: &'a Sequence<'a>,
    pages: &'a [&'a [E]],
    qkv: &'a [f32],
}

impl<E: PageElement> Context<'_, E> {
    /// Several rows of one head of keys and values, part by part.
    fn rows(&self, head: usize, rows: Range<usize>, outs: &mut [&mut [f32]]) -> memory::Result<()> {
        let Heads { queries, kv, dim } = self.attend.heads;
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
        queries.into_iter().for_each(Query::finish);
        Ok(())
    }

    /// The one row of the sequence, all heads and parts at once: `out` `[queries * head_dim]`.
    fn row(&self, out: &mut [f32]) -> memory::Result<()> {
        let Heads { queries, kv, dim } = self.attend.heads;
        let (row, group) = (self.sequence.rows.start, queries / kv);
        let mut ranges = memory::reserved(self.pages.len(), PAGES)?; // a part is several pages
        ranges.extend(parts(self.attend.tiles(self.sequence, &self.sequence.rows)));
        let parts: Vec<Range<usize>> = ranges;
        // By head and part: the outputs of its queries, then their states.
        let each = group * (dim + STATE);
        let mut partial = memory::zeros(kv * parts.len() * each, "parts of attention")?;
        self.attend.engine.pool.chunks(&mut partial, each, |index, partial| {
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
                query.finish();
            }
        }
        Ok(())
    }

    /// The queries of a row that share the keys of `head`.
    fn queries(&self, head: usize, row: usize) -> impl Iterator<Item = &[f32]> {
        let Heads { queries, kv, dim } = self.attend.heads;
        let width = queries / kv * dim;
        self.qkv[row * self.attend.heads.qkv_width() + head * width..][..width].chunks_exact(dim)
    }

    /// Lets `queries`, those of `rows`, go through `tiles`.
    fn through(&self, head: usize, rows: &Range<usize>, tiles: Range<usize>, queries: &mut [Query<'_>]) {
        let Heads { kv, dim, .. } = self.attend.heads;
        let (group, scale) = (queries.len() / rows.len(), 1.0 / (dim as f32).sqrt());
        let tile = |index: usize| {
            let (page, first) = (self.pages[index / TILES], (head * KV_PAGE + index % TILES * TILE) * dim);
            let of = |first: usize| &page[first..][..TILE * dim];
            KvTile { keys: of(first), values: of(kv * KV_PAGE * dim + first) }
        };
        let rows: Vec<usize> = rows.clone().collect();
        for index in tiles.clone() {
            let seen = |row: usize| {
                let Range { start, end } = self.attend.positions(self.sequence, row);
                let slot = |position: usize| position.saturating_sub(index * TILE).min(TILE);
                slot(start)..slot(end)
            };
            // A row alone is all that reads its cache; among others it finds it where they left it.
            let then = (self.sequence.rows.len() == 1).then(|| tile((index + 1).min(tiles.end - 1)));
            let mut rest = &mut queries[..];
            for alike in rows.chunk_by(|&a, &b| seen(a) == seen(b)) {
                let (queries, others) = rest.split_at_mut(alike.len() * group);
                rest = others;
                attend(self.attend.engine.isa, queries, tile(index), seen(alike[0]), then, scale);
            }
        }
    }
}

/// An element of a page, as candle stores it.
trait PageElement: Element + WithDType {}

impl PageElement for f32 {}

impl PageElement for f16 {}

fn page<E: PageElement>(storage: &Storage) -> Result<&[E]> {
    match storage {
        Storage::Cpu(storage) => E::cpu_storage_as_slice(storage),
        _ => bail!("a page is on the CPU"),
    }
}
