//! Keys and values of one sequence, in pages that are allocated as the sequence grows and never moved.

use crate::cache_budget::CacheShare;
use crate::error::Error;
use crate::kernels::{Plain, TILE};
use crate::memory;
use candle_core::{CpuStorage, Device, InplaceOp2, Layout, Result, Tensor, WithDType, bail};
use half::f16;
use half::slice::HalfFloatSliceExt;
use model_diagnostics::plan::{KV_PAGE, KvDtype};
use std::cell::Cell;
use std::ops::Range;

/// The sizes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub queries: usize,
    /// Key and value heads.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
}

impl Heads {
    /// Columns of q, k and v side by side.
    pub fn qkv_width(&self) -> usize {
        (self.queries + 2 * self.kv) * self.dim
    }

    /// The columns of q and of k, which are rotated.
    pub(super) fn rotated_width(&self) -> usize {
        (self.queries + self.kv) * self.dim
    }
}

/// The keys and values of one sequence: a page a layer holds [`KV_PAGE`] positions in [`TILE`]s: keys
/// `[kv_heads, KV_PAGE / TILE, head_dim, TILE]`, then values `[kv_heads, KV_PAGE, head_dim]`.
#[derive(Debug)]
pub struct KvCache {
    heads: Heads,
    dtype: KvDtype,
    device: Device,
    /// Pages by layer.
    pages: Vec<Vec<Tensor>>,
    /// What the pages take of the model's budget.
    share: CacheShare,
    len: usize,
}

impl KvCache {
    /// An empty cache; the first page comes with the first token.
    pub fn new(layers: usize, heads: Heads, dtype: KvDtype, device: &Device, share: CacheShare) -> KvCache {
        KvCache { heads, dtype, device: device.clone(), pages: vec![Vec::new(); layers], share, len: 0 }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.bytes_of(self.held())
    }

    /// Forgets the positions from `len` on and frees the pages that hold none.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.keep(self.len.div_ceil(KV_PAGE));
    }

    /// Forgets all positions and keeps the pages for others.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Bytes of `pages` pages of each layer.
    fn bytes_of(&self, pages: usize) -> usize {
        pages * self.pages.len() * 2 * self.heads.kv * KV_PAGE * self.heads.dim * self.dtype.bytes()
    }

    /// Allocates the pages for the positions up to `len`, or none of them.
    ///
    /// # Errors
    /// `CacheBudget` when the sessions of the model have no more; `OutOfMemory`.
    pub(crate) fn reserve(&mut self, len: usize) -> std::result::Result<(), Error> {
        let (held, pages) = (self.held(), len.div_ceil(KV_PAGE));
        if pages <= held {
            return Ok(());
        }
        self.share.grow_to(self.bytes_of(pages) as u64)?;
        let reserved = self.allocate(pages);
        if reserved.is_err() {
            self.keep(held);
        }
        reserved
    }

    fn allocate(&mut self, pages: usize) -> std::result::Result<(), Error> {
        let elements = 2 * self.heads.kv * KV_PAGE * self.heads.dim;
        for layer in &mut self.pages {
            memory::grow(layer, pages.saturating_sub(layer.len()), "the list of a KV cache's pages")?;
            while layer.len() < pages {
                layer.push(match self.dtype {
                    KvDtype::F32 => page::<f32>(elements, &self.device)?,
                    KvDtype::F16 => page::<f16>(elements, &self.device)?,
                });
            }
        }
        Ok(())
    }

    /// Pages of a layer.
    fn held(&self) -> usize {
        self.pages.first().map_or(0, Vec::len)
    }

    /// Frees all but the first `pages` of each layer.
    fn keep(&mut self, pages: usize) {
        self.pages.iter_mut().for_each(|layer| layer.truncate(pages));
        self.share.shrink_to(self.bytes_of(pages) as u64);
    }

    /// Stores keys and values of layer `layer` for the positions from `len` on: the given rows of `qkv`.
    ///
    /// # Errors
    /// `CacheOverflow` when one is infinite, or becomes so in the cache's dtype: attention might pass over it.
    pub(super) fn append(&self, layer: usize, qkv: &Tensor, rows: Range<usize>) -> std::result::Result<(), Error> {
        let mut row = rows.start;
        while row < rows.end {
            let position = self.len + row - rows.start;
            let slot = position % KV_PAGE;
            let count = (KV_PAGE - slot).min(rows.end - row);
            let store = Store { heads: self.heads, slot, rows: row..row + count, beyond: Cell::new(None) };
            self.pages[layer][position / KV_PAGE].inplace_op2(qkv, &store)?;
            if let Some((index, value)) = store.beyond.get() {
                let position = position + index - row;
                return Err(Error::CacheOverflow { layer, position, value, dtype: self.dtype });
            }
            row += count;
        }
        Ok(())
    }

    /// Counts `tokens` positions that every layer has stored.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    /// The pages of a layer.
    pub(super) fn pages(&self, layer: usize) -> &[Tensor] {
        &self.pages[layer]
    }
}

/// A page of zeros.
fn page<E: WithDType + Plain>(elements: usize, device: &Device) -> std::result::Result<Tensor, Error> {
    Ok(Tensor::from_vec(memory::zeros::<E>(elements, "a page of the KV cache")?, elements, device)?)
}

/// Copies keys and values from rows of `qkv` into a page.
struct Store {
    heads: Heads,
    slot: usize,
    rows: Range<usize>,
    /// A row with an element that is infinite in the page, and what of the row is largest.
    beyond: Cell<Option<(usize, f32)>>,
}

impl InplaceOp2 for Store {
    fn name(&self) -> &'static str {
        "kv-store"
    }

    fn cpu_fwd(&self, page: &mut CpuStorage, _: &Layout, qkv: &CpuStorage, layout: &Layout) -> Result<()> {
        let qkv = crate::linear::contiguous(qkv, layout)?;
        match page {
            CpuStorage::F32(page) => self.store(qkv, page, |head, to| to.copy_from_slice(head), f32::is_infinite),
            CpuStorage::F16(page) => {
                self.store(qkv, page, |head, to| to.convert_from_f32_slice(head), f16::is_infinite);
            }
            _ => bail!("a page is F32 or F16"),
        }
        Ok(())
    }
}

impl Store {
    /// Copies rows of `qkv` into `page`; `put(head, to)` writes a head in the page's dtype.
    fn store<E: WithDType>(
        &self,
        qkv: &[f32],
        page: &mut [E],
        put: impl Fn(&[f32], &mut [E]),
        infinite: impl Fn(E) -> bool,
    ) {
        let Heads { queries, kv, dim } = self.heads;
        let (keys, values) = page.split_at_mut(kv * KV_PAGE * dim);
        let of_heads = keys.chunks_exact_mut(KV_PAGE * dim).zip(values.chunks_exact_mut(KV_PAGE * dim));
        let mut key = vec![E::zero(); dim];
        for (head, (keys, values)) in of_heads.enumerate() {
            for (slot, index) in (self.slot..).zip(self.rows.clone()) {
                let row = &qkv[index * self.heads.qkv_width()..][..self.heads.qkv_width()];
                let of = |head: usize| &row[(queries + head) * dim..][..dim];
                let put = |head: usize, to: &mut [E]| {
                    put(of(head), to);
                    if to.iter().fold(false, |any, &x| any | infinite(x)) {
                        let largest = of(head).iter().fold(0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
                        self.beyond.set(Some((index, largest)));
                    }
                };
                put(head, &mut key);
                let tile = &mut keys[slot / TILE * TILE * dim..][..TILE * dim];
                tile.chunks_exact_mut(TILE).zip(&key).for_each(|(tile, &key)| tile[slot % TILE] = key);
                put(kv + head, &mut values[slot * dim..][..dim]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_budget::CacheBudget;

    const HEADS: Heads = Heads { queries: 2, kv: 2, dim: 3 };

    fn appended(dtype: KvDtype, rows: usize, at: usize, value: f32) -> std::result::Result<(), Error> {
        let mut cache = KvCache::new(2, HEADS, dtype, &Device::Cpu, CacheBudget::new(u64::MAX).share());
        cache.advance(KV_PAGE - 1);
        cache.reserve(KV_PAGE - 1 + rows)?;
        let mut qkv = vec![1f32; rows * HEADS.qkv_width()];
        qkv[at] = value;
        cache.append(1, &Tensor::from_vec(qkv, (rows, HEADS.qkv_width()), &Device::Cpu)?, 0..rows)
    }

    #[test]
    fn refuses_what_the_cache_cannot_hold() {
        // Row 2: the second element of the first key, the last element of the last value.
        for at in [2 * 18 + 7, 3 * 18 - 1] {
            for (dtype, fits, beyond, advice) in [
                (KvDtype::F16, 65504.0, 70000.0, "keep the cache in f32"),
                (KvDtype::F16, f32::NAN, f32::INFINITY, "damaged"),
                (KvDtype::F32, -3e38, f32::NEG_INFINITY, "damaged"),
            ] {
                appended(dtype, 4, at, fits).unwrap();
                let error = appended(dtype, 4, at, beyond).unwrap_err();
                let Error::CacheOverflow { layer, position, value, .. } = error else { panic!("{error}") };
                assert_eq!((layer, position, value), (1, KV_PAGE + 1, beyond));
                assert!(error.to_string().contains(advice), "{error}");
            }
        }
        // Queries are not kept.
        appended(KvDtype::F16, 4, 2 * 18, f32::INFINITY).unwrap();
    }
}
