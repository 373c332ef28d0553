//! Keys and values of `KV_PAGE` positions, all layers.

use super::Heads;
use crate::kernels::{Element, TILE};
use crate::memory;
use half::f16;
use half::slice::HalfFloatSliceExt;
use model_diagnostics::plan::{KV_PAGE, KvDtype};
use std::ops::Range;

/// A page of the KV cache. Each layer has its keys `[kv_heads, KV_PAGE / TILE, head_dim, TILE]`, then its values
/// `[kv_heads, KV_PAGE, head_dim]`.
#[derive(Debug)]
pub enum KvPage {
    /// As computed.
    F32(Vec<f32>),
    /// Rounded to the nearest.
    F16(Vec<f16>),
}

/// An element of a page.
pub(super) trait PageElement: Element {
    /// All elements of a page that has this type; none of another.
    fn of(page: &KvPage) -> &[Self];
}

impl PageElement for f32 {
    fn of(page: &KvPage) -> &[f32] {
        match page {
            KvPage::F32(elements) => elements,
            KvPage::F16(_) => &[],
        }
    }
}

impl PageElement for f16 {
    fn of(page: &KvPage) -> &[f16] {
        match page {
            KvPage::F16(elements) => elements,
            KvPage::F32(_) => &[],
        }
    }
}

impl Heads {
    /// The elements of layer `layer` in a page.
    fn of_layer(self, layer: usize) -> Range<usize> {
        let each = 2 * self.kv * KV_PAGE * self.dim;
        layer * each..(layer + 1) * each
    }
}

impl KvPage {
    /// A page of zeros.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(dtype: KvDtype, elements: usize) -> memory::Result<KvPage> {
        let what = "a page of the KV cache";
        Ok(match dtype {
            KvDtype::F32 => KvPage::F32(memory::zeros(elements, what)?),
            KvDtype::F16 => KvPage::F16(memory::zeros(elements, what)?),
        })
    }

    /// Keys and values of a layer.
    pub(super) fn layer<E: PageElement>(&self, heads: Heads, layer: usize) -> &[E] {
        &E::of(self)[heads.of_layer(layer)]
    }

    /// Stores keys and values of `rows` of `qkv` from slot `slot` on.
    ///
    /// # Errors
    /// A row with an element that is infinite in the page, and what of that row is largest.
    pub(super) fn store(
        &mut self,
        heads: Heads,
        layer: usize,
        slot: usize,
        qkv: &[f32],
        rows: Range<usize>,
    ) -> Result<(), (usize, f32)> {
        let of_layer = heads.of_layer(layer);
        match self {
            KvPage::F32(page) => {
                let put = |head: &[f32], to: &mut [f32]| to.copy_from_slice(head);
                store(&mut page[of_layer], heads, slot, qkv, rows, put, f32::is_infinite)
            }
            KvPage::F16(page) => {
                let put = |head: &[f32], to: &mut [f16]| to.convert_from_f32_slice(head);
                store(&mut page[of_layer], heads, slot, qkv, rows, put, f16::is_infinite)
            }
        }
    }
}

/// `put(head, to)` writes a head in the page's dtype.
fn store<E: Element + Default>(
    page: &mut [E],
    heads: Heads,
    slot: usize,
    qkv: &[f32],
    rows: Range<usize>,
    put: impl Fn(&[f32], &mut [E]),
    infinite: impl Fn(E) -> bool,
) -> Result<(), (usize, f32)> {
    let Heads { queries, kv, dim } = heads;
    let (keys, values) = page.split_at_mut(kv * KV_PAGE * dim);
    let of_heads = keys.chunks_exact_mut(KV_PAGE * dim).zip(values.chunks_exact_mut(KV_PAGE * dim));
    let mut key = vec![E::default(); dim];
    let mut beyond = Ok(());
    for (head, (keys, values)) in of_heads.enumerate() {
        for (slot, index) in (slot..).zip(rows.clone()) {
            let row = &qkv[index * heads.qkv_width()..][..heads.qkv_width()];
            let of = |head: usize| &row[(queries + head) * dim..][..dim];
            let mut put = |head: usize, to: &mut [E]| {
                put(of(head), to);
                if to.iter().fold(false, |any, &x| any | infinite(x)) {
                    let largest = of(head).iter().fold(0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
                    beyond = Err((index, largest));
                }
            };
            put(head, &mut key);
            let tile = &mut keys[slot / TILE * TILE * dim..][..TILE * dim];
            tile.chunks_exact_mut(TILE).zip(&key).for_each(|(tile, &key)| tile[slot % TILE] = key);
            put(kv + head, &mut values[slot * dim..][..dim]);
        }
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 2, kv: 2, dim: 3 };

    fn stored(dtype: KvDtype, at: usize, value: f32) -> Result<(), (usize, f32)> {
        let mut page = KvPage::new(dtype, 2 * HEADS.of_layer(0).len()).unwrap();
        let mut qkv = vec![1f32; 4 * HEADS.qkv_width()];
        qkv[at] = value;
        page.store(HEADS, 1, 7, &qkv, 0..4)
    }

    #[test]
    fn refuses_what_the_cache_cannot_hold() {
        // Row 2: the second element of the first key, the last element of the last value.
        for at in [2 * 18 + 7, 3 * 18 - 1] {
            for (dtype, fits, beyond) in [
                (KvDtype::F16, 65504.0, 70000.0),
                (KvDtype::F16, f32::NAN, f32::INFINITY),
                (KvDtype::F32, -3e38, f32::NEG_INFINITY),
            ] {
                assert_eq!(stored(dtype, at, fits), Ok(()));
                assert_eq!(stored(dtype, at, beyond), Err((2, beyond)));
            }
        }
        // Queries are not kept.
        assert_eq!(stored(KvDtype::F16, 2 * 18, f32::INFINITY), Ok(()));
    }
}
