//! Keys and values of one sequence, in pages that are allocated as the sequence grows and never moved.

use crate::kernels::TILE;
use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Result, Tensor, WithDType, bail};
use half::slice::HalfFloatSliceExt;
use model_diagnostics::plan::{KV_PAGE, KvDtype};
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
    dtype: DType,
    device: Device,
    /// Pages by layer.
    pages: Vec<Vec<Tensor>>,
    len: usize,
}

impl KvCache {
    /// An empty cache; the first page comes with the first token.
    pub fn new(layers: usize, heads: Heads, dtype: KvDtype, device: &Device) -> KvCache {
        let dtype = match dtype {
            KvDtype::F32 => DType::F32,
            KvDtype::F16 => DType::F16,
        };
        KvCache { heads, dtype, device: device.clone(), pages: vec![Vec::new(); layers], len: 0 }
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
        let pages: usize = self.pages.iter().map(Vec::len).sum();
        pages * 2 * self.heads.kv * KV_PAGE * self.heads.dim * self.dtype.size_in_bytes()
    }

    /// Forgets the positions from `len` on and frees the pages that hold no others.
    pub fn truncate(&mut self, len: usize) {
        if len <= self.len {
            self.len = len;
            self.pages.iter_mut().for_each(|pages| pages.truncate(len.div_ceil(KV_PAGE)));
        }
    }

    /// Allocates the pages for `tokens` more positions.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<()> {
        let pages = (self.len + tokens).div_ceil(KV_PAGE);
        let shape = 2 * self.heads.kv * KV_PAGE * self.heads.dim;
        for layer in &mut self.pages {
            while layer.len() < pages {
                layer.push(Tensor::zeros(shape, self.dtype, &self.device)?);
            }
        }
        Ok(())
    }

    /// Stores keys and values of layer `layer` for the positions from `len` on: the given rows of `qkv`.
    pub(super) fn append(&self, layer: usize, qkv: &Tensor, rows: Range<usize>) -> Result<()> {
        let mut row = rows.start;
        while row < rows.end {
            let position = self.len + row - rows.start;
            let slot = position % KV_PAGE;
            let count = (KV_PAGE - slot).min(rows.end - row);
            let store = Store { heads: self.heads, slot, rows: row..row + count };
            self.pages[layer][position / KV_PAGE].inplace_op2(qkv, &store)?;
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

/// Copies keys and values from rows of `qkv` into a page.
struct Store {
    heads: Heads,
    slot: usize,
    rows: Range<usize>,
}

impl InplaceOp2 for Store {
    fn name(&self) -> &'static str {
        "kv-store"
    }

    fn cpu_fwd(&self, page: &mut CpuStorage, _: &Layout, qkv: &CpuStorage, layout: &Layout) -> Result<()> {
        let qkv = crate::linear::contiguous(qkv, layout)?;
        match page {
            CpuStorage::F32(page) => self.store(qkv, page, |head, to| to.copy_from_slice(head)),
            CpuStorage::F16(page) => self.store(qkv, page, |head, to| to.convert_from_f32_slice(head)),
            _ => bail!("a page is F32 or F16"),
        }
        Ok(())
    }
}

impl Store {
    /// Copies rows of `qkv` into `page`; `put(head, to)` writes a head in the page's dtype.
    fn store<E: WithDType>(&self, qkv: &[f32], page: &mut [E], put: impl Fn(&[f32], &mut [E])) {
        let Heads { queries, kv, dim } = self.heads;
        let (keys, values) = page.split_at_mut(kv * KV_PAGE * dim);
        let of_heads = keys.chunks_exact_mut(KV_PAGE * dim).zip(values.chunks_exact_mut(KV_PAGE * dim));
        let mut key = vec![E::zero(); dim];
        for (head, (keys, values)) in of_heads.enumerate() {
            for (slot, row) in (self.slot..).zip(self.rows.clone()) {
                let row = &qkv[row * self.heads.qkv_width()..][..self.heads.qkv_width()];
                let of = |head: usize| &row[(queries + head) * dim..][..dim];
                put(of(head), &mut key);
                let tile = &mut keys[slot / TILE * TILE * dim..][..TILE * dim];
                tile.chunks_exact_mut(TILE).zip(&key).for_each(|(tile, &key)| tile[slot % TILE] = key);
                put(of(kv + head), &mut values[slot * dim..][..dim]);
            }
        }
    }
}
