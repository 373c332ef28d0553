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

    /// All of it as it lies in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            KvPage::F32(elements) => bytemuck::cast_slice(elements),
            KvPage::F16(elements) => bytemuck::cast_slice(elements),
        }
    }

    /// All of it as it lies in memory, to be read from a file.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            KvPage::F32(elements) => bytemuck::cast_slice_mut(elements),
            KvPage::F16(elements) => bytemuck::cast_slice_mut(elements),
        }
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

/// Calls `take` with the bytes of a page that hold its first `slots` positions, in order: all at once where that is every
/// one of them. `element` is the size of an element.
///
/// # Errors
/// Those of `take`.
pub(super) fn each_used<E>(
    heads: Heads,
    layers: usize,
    element: usize,
    slots: usize,
    take: &mut dyn FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut take = |start: usize, count: usize| take(start * element..(start + count) * element);
    if slots == KV_PAGE {
        return take(0, layers * heads.of_layer(0).len());
    }
    let (each, whole, rest) = (KV_PAGE * heads.dim, slots / TILE * TILE * heads.dim, slots % TILE);
    for layer in 0..layers {
        let start = heads.of_layer(layer).start;
        for keys in (0..heads.kv).map(|head| start + head * each) {
            take(keys, whole)?;
            // The last tile has a row for each element of a key.
            (0..if rest > 0 { heads.dim } else { 0 }).try_for_each(|row| take(keys + whole + row * TILE, rest))?;
        }
        for values in (heads.kv..2 * heads.kv).map(|head| start + head * each) {
            take(values, slots * heads.dim)?;
        }
    }
    Ok(())
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

    /// Whatever else lies in a page, its used bytes are those of the positions stored, each once.
    #[test]
    fn used_bytes_are_those_of_the_first_positions() {
        let (layers, width) = (2, HEADS.qkv_width());
        for dtype in [KvDtype::F32, KvDtype::F16] {
            for slots in [1, 2, 63, 64, 65, 128, 200, 255, 256] {
                let mut page = KvPage::new(dtype, layers * HEADS.of_layer(0).len()).unwrap();
                let qkv = vec![1f32; slots * width];
                for layer in 0..layers {
                    page.store(HEADS, layer, 0, &qkv, 0..slots).unwrap();
                }
                let mut used = vec![false; page.bytes().len()];
                let take = &mut |range: Range<usize>| {
                    assert!(used[range.clone()].iter().all(|used| !used), "{dtype}: {slots}: twice");
                    used[range].fill(true);
                    Ok::<_, ()>(())
                };
                each_used(HEADS, layers, dtype.bytes(), slots, take).unwrap();
                let ones = |page: &KvPage| match page {
                    KvPage::F32(page) => page.iter().flat_map(|x| [*x == 1.0; 4]).collect::<Vec<bool>>(),
                    KvPage::F16(page) => page.iter().flat_map(|x| [*x == f16::ONE; 2]).collect(),
                };
                assert_eq!(used, ones(&page), "{dtype}: {slots}");
            }
        }
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
