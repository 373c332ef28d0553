//! Keys and values of `KV_PAGE` positions, of all layers of a kind.

use super::heads::Heads;
use crate::decoder::{PageKind, PageMemory};
use crate::kernels::{Element, KvElement, TILE, put_key, put_value};
use crate::memory;
use bytemuck::Pod;
use half::f16;
use half::slice::HalfFloatSliceExt;
use model_factory_spec::plan::{KV_PAGE, KvDtype, windowed_layers};
use model_factory_spec::spec::{LayerWeights, ModelSpec};
use std::ops::Range;
use std::sync::Arc;

pub(super) const TILES: usize = KV_PAGE / TILE;
const _: () = assert!(TILES * TILE == KV_PAGE);

/// The layout of the keys and values of each layer in a page: tiles of keys `[kv_heads, TILES]`, then tiles of values that are not
/// keys.
#[derive(Clone, Debug)]
pub(super) struct PageLayout {
    pub(super) dtype: KvDtype,
    element_bytes: usize,
    pub(super) layers: Arc<[LayerPlace]>,
}

/// The place of a layer's keys and values, and their heads.
#[derive(Clone, Debug)]
pub(super) struct LayerPlace {
    pub(super) heads: Heads,
    pub(super) kind: PageKind,
    elements: Range<usize>,
    /// Whether another layer stores them.
    borrowed: bool,
}

impl PageLayout {
    pub(super) fn new(spec: &ModelSpec, dtype: KvDtype) -> PageLayout {
        let layers = spec.weights.layers.iter().map(Heads::of);
        let kind = |windowed| if windowed { PageKind::Window } else { PageKind::Full };
        PageLayout::of_layers(dtype, layers.zip(windowed_layers(spec).into_iter().map(kind)))
    }

    /// Of layers that cache nothing.
    pub(super) fn uncached(layers: &[LayerWeights]) -> PageLayout {
        PageLayout::of_layers(KvDtype::F32, layers.iter().map(|layer| (Heads::of(layer), PageKind::Full)))
    }

    /// One layer after the other in the pages of its kind, with heads as in `layers`; a layer with the number of an
    /// earlier one has the place of that layer, and one that caches nothing has none.
    fn of_layers(dtype: KvDtype, layers: impl Iterator<Item = ((Heads, Option<usize>), PageKind)>) -> PageLayout {
        let (tile_len, element_bytes): (fn(usize) -> usize, _) = match dtype {
            KvDtype::F32 => (f32::tile_len, size_of::<f32>()),
            KvDtype::F16 => (f16::tile_len, size_of::<f16>()),
            KvDtype::Q8_0 => (u8::tile_len, size_of::<u8>()),
        };
        let mut ends = [0; 2];
        let mut places: Vec<LayerPlace> = Vec::new();
        for ((heads, source), kind) in layers {
            let place = match source.and_then(|source| places.get(source)) {
                Some(LayerPlace { kind, elements, .. }) => {
                    LayerPlace { heads, kind: *kind, elements: elements.clone(), borrowed: true }
                }
                None => {
                    let end = &mut ends[kind as usize];
                    let start = *end;
                    if heads.cached {
                        *end += heads.stored() * TILES * tile_len(heads.dim);
                    }
                    LayerPlace { heads, kind, elements: start..*end, borrowed: false }
                }
            };
            places.push(place);
        }
        PageLayout { dtype, element_bytes, layers: places.into() }
    }

    /// The layers with pages of a kind.
    fn of(&self, kind: PageKind) -> impl Iterator<Item = &LayerPlace> {
        self.layers.iter().filter(move |place| place.kind == kind)
    }

    fn elements(&self, kind: PageKind) -> usize {
        self.of(kind).map(|place| place.elements.end).max().unwrap_or(0)
    }
}

/// Rows of `width` floats, of which keys, and then values that are not keys, begin at column `first`.
#[derive(Clone, Copy)]
pub(super) struct KvRows<'x> {
    pub(super) x: &'x [f32],
    pub(super) width: usize,
    pub(super) first: usize,
}

#[derive(Clone, Copy)]
enum Part {
    Key,
    Value,
}

impl PageLayout {
    pub(super) fn page(&self, kind: PageKind) -> memory::Result<PageMemory> {
        let bytes = self.elements(kind) * self.element_bytes;
        Ok(PageMemory::Host(memory::zeros(bytes.div_ceil(size_of::<f32>()), "a page of the KV cache")?))
    }

    /// Keys and values of a layer in `page`, whose elements are `E`: floats as computed, floats rounded to the nearest half, or bytes
    /// of blocks with their scales.
    pub(super) fn layer<'p, E: KvElement + Pod>(&self, page: &'p PageMemory, layer: usize) -> &'p [E] {
        &bytemuck::cast_slice(page.words())[self.layers[layer].elements.clone()]
    }

    /// Stores keys and values of `rows` of `kv` in `page` from slot `slot` on. The error is a row with an element that
    /// the page cannot hold, and the largest element of that row: an infinity, or NaN in a dtype of blocks.
    pub(super) fn store(
        &self,
        page: &mut PageMemory,
        layer: usize,
        slot: usize,
        kv: KvRows<'_>,
        rows: Range<usize>,
    ) -> Result<(), (usize, f32)> {
        let LayerPlace { heads, elements, .. } = self.layers[layer].clone();
        let page = page.words_mut();
        match self.dtype {
            KvDtype::F32 => {
                let put = float_putter(heads.dim, |head, to| to.copy_from_slice(head), f32::is_infinite);
                store(&mut page[elements], heads, slot, kv, rows, put)
            }
            KvDtype::F16 => {
                let put = float_putter(heads.dim, |head, to| to.convert_from_f32_slice(head), f16::is_infinite);
                store(&mut bytemuck::cast_slice_mut(page)[elements], heads, slot, kv, rows, put)
            }
            KvDtype::Q8_0 => {
                let put = |part, tile: &mut [u8], position, head: &[f32]| match part {
                    Part::Key => put_key(tile, position, head),
                    Part::Value => put_value(tile, position, head),
                };
                store(&mut bytemuck::cast_slice_mut(page)[elements], heads, slot, kv, rows, put)
            }
        }
    }

    /// Calls `take` with the ranges of the bytes of a page of a kind that hold its first `slots` positions, in order:
    /// all at once where that is every one of them.
    pub(super) fn each_used<E>(
        &self,
        (kind, slots): (PageKind, usize),
        take: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.dtype {
            KvDtype::F32 => self.used::<f32, E>(kind, slots, take),
            KvDtype::F16 => self.used::<f16, E>(kind, slots, take),
            KvDtype::Q8_0 => self.used::<u8, E>(kind, slots, take),
        }
    }

    fn used<K: KvElement, E>(
        &self,
        kind: PageKind,
        slots: usize,
        mut take: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut take = |start: usize, elements: Range<usize>| {
            take((start + elements.start) * size_of::<K>()..(start + elements.end) * size_of::<K>())
        };
        if slots == KV_PAGE {
            return take(0, 0..self.elements(kind));
        }
        let (whole, rest) = (slots / TILE, slots % TILE);
        for LayerPlace { heads, elements: Range { start, .. }, .. } in self.of(kind).filter(|place| !place.borrowed) {
            let len = K::tile_len(heads.dim);
            for head in 0..heads.stored() {
                let tiles = start + head * TILES * len;
                let last = tiles + whole * len;
                take(tiles, 0..whole * len)?;
                if rest == 0 {
                    continue;
                }
                if head < heads.kv {
                    K::used_keys(heads.dim, rest).try_for_each(|elements| take(last, elements))?;
                } else {
                    K::used_values(heads.dim, rest).try_for_each(|elements| take(last, elements))?;
                }
            }
        }
        Ok(())
    }
}

/// Puts heads of `dim` floats, as `convert` writes them, into tiles; false where one of them is `infinite`.
fn float_putter<E: Element + Default>(
    dim: usize,
    convert: impl Fn(&[f32], &mut [E]),
    infinite: impl Fn(E) -> bool,
) -> impl FnMut(Part, &mut [E], usize, &[f32]) -> bool {
    let mut converted = vec![E::default(); dim];
    move |part, tile, position, head| {
        convert(head, &mut converted);
        match part {
            Part::Key => tile.chunks_exact_mut(TILE).zip(&converted).for_each(|(tile, &key)| tile[position] = key),
            Part::Value => tile[position * dim..][..dim].copy_from_slice(&converted),
        }
        !converted.iter().fold(false, |any, &x| any | infinite(x))
    }
}

/// `put(part, tile, position, head)` writes a head into a tile, and says whether the tile holds it.
fn store<E: KvElement>(
    layer: &mut [E],
    heads: Heads,
    slot: usize,
    KvRows { x, width, first }: KvRows<'_>,
    rows: Range<usize>,
    mut put: impl FnMut(Part, &mut [E], usize, &[f32]) -> bool,
) -> Result<(), (usize, f32)> {
    let Heads { kv, dim, .. } = heads;
    let len = E::tile_len(dim);
    let (keys, values) = layer.split_at_mut(kv * TILES * len);
    let mut beyond = Ok(());
    for (part, first, tiles) in [(Part::Key, first, keys), (Part::Value, first + kv * dim, values)] {
        for (head, tiles) in tiles.chunks_exact_mut(TILES * len).enumerate() {
            for (slot, index) in (slot..).zip(rows.clone()) {
                let head = &x[index * width..][..width][first + head * dim..][..dim];
                if !put(part, &mut tiles[slot / TILE * len..][..len], slot % TILE, head) {
                    // NaN counts as larger than all.
                    let larger = |a: f32, b: f32| if b.is_nan() || b.abs() > a.abs() { b } else { a };
                    beyond = Err((index, head.iter().fold(0.0, |a, &b| larger(a, b))));
                }
            }
        }
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 2, kv: 2, dim: 3, value_dim: 3, gated: false, gates: 0, cached: true };

    fn rows_of(heads: Heads, x: &[f32]) -> KvRows<'_> {
        KvRows { x, width: heads.qkv_width(), first: heads.keys() }
    }

    fn stored(dtype: KvDtype, at: usize, value: f32) -> Result<(), (usize, f32)> {
        let layout = PageLayout::of_layers(dtype, [((HEADS, None), PageKind::Full); 2].into_iter());
        let mut page = layout.page(PageKind::Full).unwrap();
        let mut qkv = vec![1f32; 4 * HEADS.qkv_width()];
        qkv[at] = value;
        layout.store(&mut page, 1, 7, rows_of(HEADS, &qkv), 0..4)
    }

    /// Whatever else lies in a page, its used bytes are those that storing its positions writes, each once.
    #[test]
    fn used_bytes_are_those_of_the_first_positions() {
        for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
            for (dim, slots) in
                [3, 32, 40].iter().flat_map(|dim| [1, 2, 63, 64, 65, 128, 200, 255, 256].map(|n| (dim, n)))
            {
                // Layers may differ, and one may have no keys at all.
                let heads = [(2, 2, *dim, 0), (0, 0, 0, 0), (3, 1, dim + 1, 0), (4, 1, dim + 2, 2)];
                let heads = heads.map(|(queries, kv, dim, rotated)| Heads {
                    queries,
                    kv,
                    dim,
                    value_dim: dim - rotated,
                    gated: kv == 1,
                    gates: queries,
                    cached: true,
                });
                // The last layer reads what the first stores.
                let last = (heads[0], Some(0));
                let layout = PageLayout::of_layers(
                    dtype,
                    heads.map(|heads| (heads, None)).into_iter().chain([last]).map(|layer| (layer, PageKind::Full)),
                );
                let mut page = layout.page(PageKind::Full).unwrap();
                // No byte of 2.5 is 255, as a float or in a block.
                page.words_mut().fill(f32::from_bits(u32::MAX));
                for (layer, heads) in heads.iter().enumerate().filter(|(_, heads)| heads.kv > 0) {
                    let qkv = vec![2.5; slots * heads.qkv_width()];
                    layout.store(&mut page, layer, 0, rows_of(*heads, &qkv), 0..slots).unwrap();
                }
                let mut used = vec![false; size_of_val(page.words())];
                let take = &mut |range: Range<usize>| {
                    assert!(used[range.clone()].iter().all(|used| !used), "{dtype}, {dim}: {slots}: twice");
                    used[range].fill(true);
                    Ok::<_, ()>(())
                };
                layout.each_used((PageKind::Full, slots), take).unwrap();
                let written: Vec<bool> =
                    bytemuck::cast_slice::<_, u8>(page.words()).iter().map(|byte| *byte != 255).collect();
                assert_eq!(used, written, "{dtype}, {dim}: {slots}");
                let bytes: usize = heads.iter().map(|heads| heads.stored() * slots * dtype.head_bytes(heads.dim)).sum();
                assert_eq!(used.iter().filter(|used| **used).count(), bytes, "{dtype}, {dim}: {slots}");
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
                (KvDtype::Q8_0, -8.3e6, 8.4e6),
                (KvDtype::Q8_0, 65504.0, f32::INFINITY),
            ] {
                assert_eq!(stored(dtype, at, fits), Ok(()));
                assert_eq!(stored(dtype, at, beyond), Err((2, beyond)));
            }
        }
        // A block has no NaN.
        let (row, value) = stored(KvDtype::Q8_0, 2 * 18 + 7, f32::NAN).unwrap_err();
        assert!(row == 2 && value.is_nan());
        // Queries are not kept.
        assert_eq!(stored(KvDtype::F16, 2 * 18, f32::INFINITY), Ok(()));
    }

    #[test]
    fn a_page_has_the_bytes_that_are_planned() {
        for dim in [3, 32, 64, 80] {
            let heads = Heads { dim, value_dim: dim, ..HEADS };
            for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
                let layout = PageLayout::of_layers(dtype, [((heads, None), PageKind::Full); 5].into_iter());
                let bytes = size_of_val(layout.page(PageKind::Full).unwrap().words());
                assert_eq!(bytes, 5 * 2 * heads.kv * KV_PAGE * dtype.head_bytes(dim), "{dtype} {dim}");
            }
        }
        assert_eq!((KvDtype::F32.head_bytes(64), KvDtype::Q8_0.head_bytes(64)), (256, 68));
    }
}
