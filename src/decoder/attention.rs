//! q, k and v side by side -> attention output: rotation in place, then one streaming pass over the cache's pages.

use super::kv_cache::Heads;
use super::rope::Angles;
use crate::kernels::{Cached, Element, Softmax, attend_group};
use crate::linear::{Engine, NormScale, contiguous, with_scratch};
use candle_core::{CpuStorage, CustomOp1, InplaceOp1, Layout, Result, Shape, Storage, Tensor, WithDType, bail};
use half::f16;
use model_diagnostics::plan::KV_PAGE;
use std::ops::{Deref, Range};

/// Query rows of one task: enough to reuse a page of keys while it is in the cache.
const QUERY_ROWS: usize = 16;

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

impl CustomOp1 for Attend<'_> {
    fn name(&self) -> &'static str {
        "attend"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let qkv = contiguous(storage, layout)?;
        let rows = qkv.len() / self.heads.qkv_width();
        let guards: Vec<Vec<_>> = self
            .sequences
            .iter()
            .map(|sequence| sequence.pages.iter().map(|page| page.storage_and_layout().0).collect())
            .collect();
        let mut out = vec![0f32; rows * self.heads.queries * self.heads.dim];
        // Pages of all sequences have the dtype of the model's cache.
        match guards.iter().flatten().next().map(|guard| &**guard) {
            Some(Storage::Cpu(CpuStorage::F16(_))) => self.fill::<f16, _>(qkv, &guards, &mut out)?,
            _ => self.fill::<f32, _>(qkv, &guards, &mut out)?,
        }
        Ok((CpuStorage::F32(out), Shape::from((rows, self.heads.queries * self.heads.dim))))
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
        self.engine.pool.run_grid(out, width, QUERY_ROWS, &columns, &|tile, out| {
            let head = tile.columns.start / (group * dim);
            for row in tile.rows.clone() {
                let found = self.sequences.iter().zip(&pages).find(|(sequence, _)| sequence.rows.contains(&row));
                let Some((sequence, pages)) = found else { continue };
                let end = sequence.start + row - sequence.rows.start + 1;
                let first = self.window.map_or(0, |window| end.saturating_sub(window));
                let query = &qkv[row * self.heads.qkv_width()..][tile.columns.clone()];
                let mut softmax: Vec<Softmax<'_>> = out.row(row).chunks_exact_mut(dim).map(Softmax::new).collect();
                let cached = |index: usize| {
                    let base = index * KV_PAGE;
                    let slots = first.saturating_sub(base) * dim..end.saturating_sub(base).min(KV_PAGE) * dim;
                    let page = pages.get(index).copied().unwrap_or_default();
                    let of = |head: usize| page.get(head * KV_PAGE * dim..).map_or(page, |page| &page[slots.clone()]);
                    Cached { keys: of(head), values: of(kv + head) }
                };
                // A row alone is all that reads its cache; among others it finds it where they left it.
                let alone = sequence.rows.len() == 1;
                for index in first / KV_PAGE..end.div_ceil(KV_PAGE) {
                    let then = alone.then(|| cached(index + 1));
                    attend_group(self.engine.isa, query, cached(index), then, scale, &mut softmax);
                }
                softmax.into_iter().for_each(Softmax::finish);
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
