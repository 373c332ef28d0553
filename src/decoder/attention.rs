//! q, k and v side by side -> attention output: rotation in place, then one streaming pass over the cache's pages.

use super::kv_cache::Heads;
use super::rope::Angles;
use crate::kernels::{Element, Query, TILE, Tile, attend};
use crate::linear::{Engine, NormScale, contiguous, outputs, with_scratch};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, Storage, Tensor, WithDType, bail};
use half::f16;
use model_diagnostics::plan::KV_PAGE;
use std::ops::{Deref, Range};

/// Query rows of one task: enough to reuse a page of keys while it is in the cache.
const QUERY_ROWS: usize = 16;

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
        self.engine.pool.run_grid(&mut data[start..end], width, QUERY_ROWS, &[0, width], &|tile, out| {
            for row in tile.rows.clone() {
                let heads = out.row(row)[..rotated].chunks_exact_mut(self.heads.dim);
                for (index, head) in heads.enumerate() {
                    let norm = if index < self.heads.queries { self.q_norm } else { self.k_norm };
                    if let Some(norm) = norm {
                        with_scratch(head.len(), |plain| {
                            plain.copy_from_slice(head);
                            norm.apply(self.engine.isa, plain, head);
                        });
                    }
                    self.angles.rotate(self.engine.isa, row, head);
                }
            }
        });
        Ok(())
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
        let guards: Vec<Vec<_>> = self
            .sequences
            .iter()
            .map(|sequence| sequence.pages.iter().map(|page| page.storage_and_layout().0).collect())
            .collect();
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
        let pages: Vec<Vec<&[E]>> =
            guards.iter().map(|guards| guards.iter().map(|guard| page(guard)).collect()).collect::<Result<_>>()?;
        let columns: Vec<usize> = (0..=kv).map(|head| head * group * dim).collect();
        let scale = 1.0 / (dim as f32).sqrt();
        self.engine.pool.run_grid(out, width, QUERY_ROWS, &columns, &|part, out| {
            let head = part.columns.start / (group * dim);
            let mut outs = out.rows();
            for (sequence, pages) in self.sequences.iter().zip(&pages) {
                let rows = part.rows.start.max(sequence.rows.start)..part.rows.end.min(sequence.rows.end);
                let queries = rows.clone().zip(&mut outs).flat_map(|(row, out)| {
                    let q = &qkv[row * self.heads.qkv_width()..][part.columns.clone()];
                    q.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).map(|(q, out)| Query::new(q, out))
                });
                let mut queries: Vec<Query<'_>> = queries.collect();
                let tile = |index: usize| {
                    let (page, first) = (pages[index / TILES], (head * KV_PAGE + index % TILES * TILE) * dim);
                    let of = |first: usize| &page[first..][..TILE * dim];
                    Tile { keys: of(first), values: of(kv * KV_PAGE * dim + first) }
                };
                // The positions that a row sees.
                let positions = |row: usize| {
                    let end = sequence.start + row - sequence.rows.start + 1;
                    self.window.map_or(0, |window| end.saturating_sub(window))..end
                };
                let rows: Vec<usize> = rows.collect();
                let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { continue };
                let tiles = positions(first).start / TILE..positions(last).end.div_ceil(TILE);
                for index in tiles.clone() {
                    let seen = |row: usize| {
                        let Range { start, end } = positions(row);
                        let slot = |position: usize| position.saturating_sub(index * TILE).min(TILE);
                        slot(start)..slot(end)
                    };
                    // A row alone is all that reads its cache; among others it finds it where they left it.
                    let then = (sequence.rows.len() == 1).then(|| tile((index + 1).min(tiles.end - 1)));
                    let mut rest = &mut queries[..];
                    for alike in rows.chunk_by(|&a, &b| seen(a) == seen(b)) {
                        let (queries, others) = rest.split_at_mut(alike.len() * group);
                        rest = others;
                        attend(self.engine.isa, queries, tile(index), seen(alike[0]), then, scale);
                    }
                }
                queries.into_iter().for_each(Query::finish);
            }
        });
        Ok(())
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
