//! Metadata -> what differs between layers with and without a window, and between the last layers and the others: heads
//! of keys and values, widths of feed-forward layers, and whose keys and values a layer uses.

use super::Sizes;
use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::{FullAttention, Key};
use crate::header::Fields;
use crate::header::config::Section;
use serde_json::Value;

/// Values of a layer's keys in `config.json`, where they differ from the model's.
const LAYER_CONFIG: &str = "per_layer_config";

#[derive(Clone)]
pub(super) enum Which {
    None,
    All,
    /// All layers but every n-th, and but this one.
    AllBut(usize, Option<usize>),
    /// All layers but one of every n, at this place.
    AllButAt(usize, usize),
    /// This layer and those after it.
    From(usize),
    /// All layers but these, in order.
    AllButThese(Vec<u64>),
    /// An entry for each layer.
    Listed(Vec<bool>),
}

impl Which {
    pub(super) fn has(&self, layer: usize) -> bool {
        match self {
            Which::None => false,
            Which::All => true,
            Which::AllBut(every, other) => !(layer + 1).is_multiple_of(*every) && Some(layer) != *other,
            Which::AllButAt(every, at) => layer % every != *at,
            Which::From(first) => layer >= *first,
            Which::AllButThese(others) => others.binary_search(&(layer as u64)).is_err(),
            Which::Listed(listed) => listed.get(layer).is_some_and(|has| *has),
        }
    }

    pub(super) fn any(&self, layers: usize) -> bool {
        (0..layers).any(|layer| self.has(layer))
    }
}

/// What differs between layers with and without a window, and between the last layers and the others.
pub(super) struct Kinds {
    pub(super) with_window: Which,
    windowed: HeadSizes,
    full: HeadSizes,
    /// Heads of layers, where a file lists them; 0 where a layer has no attention.
    heads: Vec<usize>,
    /// Heads of keys and values of layers, where a file lists them and each layer has its own.
    kv_heads: Vec<usize>,
    /// Widths of feed-forward layers, where a file lists them; 0 where a layer has none.
    widths: Vec<usize>,
    /// The factor of the width in layers that use keys and values of another layer.
    shared_widening: usize,
    /// The first layer that uses keys and values of another layer.
    first_shared: usize,
    /// The last layer before `first_shared` without a window, and the last one with a window.
    sources: [Option<usize>; 2],
    /// Whether layers without a window use their keys as values; in GGUF only layers without a stored tensor of values do.
    keys_are_values: bool,
}

#[derive(Clone, Copy, PartialEq)]
struct HeadSizes {
    kv_heads: usize,
    head_dim: usize,
}

impl HeadSizes {
    fn of_model(sizes: &Sizes) -> HeadSizes {
        HeadSizes { kv_heads: sizes.kv_heads, head_dim: sizes.head_dim }
    }
}

impl Kinds {
    /// The sizes of `layer` in a model of `sizes`.
    pub(super) fn sizes(&self, sizes: &Sizes, layer: usize) -> Sizes {
        let HeadSizes { kv_heads, head_dim } = if self.with_window.has(layer) { self.windowed } else { self.full };
        let widening = if layer >= self.first_shared { self.shared_widening } else { 1 };
        let of_layer = |listed: &[usize], other| listed.get(layer).copied().unwrap_or(other);
        let feed_forward = of_layer(&self.widths, widening * sizes.feed_forward);
        let (heads, kv_heads) = (of_layer(&self.heads, sizes.heads), of_layer(&self.kv_heads, kv_heads));
        Sizes { heads, kv_heads, head_dim, feed_forward, ..*sizes }
    }

    /// Whether `layer` has a mixer and whether it has a feed-forward layer.
    pub(super) fn sub_layers(&self, layer: usize) -> (bool, bool) {
        let has = |listed: &[usize]| listed.get(layer).is_none_or(|size| *size > 0);
        (has(&self.heads), has(&self.widths))
    }

    /// The layer whose keys and values `layer` uses in place of its own.
    pub(super) fn source(&self, layer: usize) -> Option<usize> {
        let source = self.sources[usize::from(self.with_window.has(layer))];
        source.filter(|_| layer >= self.first_shared)
    }

    /// Whether `layer` uses its keys as values; in GGUF not where a tensor of values is stored.
    pub(super) fn keys_are_values(&self, layer: usize) -> bool {
        self.keys_are_values && !self.with_window.has(layer)
    }

    pub(super) fn window_head_dim(&self) -> usize {
        self.windowed.head_dim
    }

    /// Sizes of the model for reports: heads of layers without a window, and the widest feed-forward layer.
    pub(super) fn described(&self, sizes: &Sizes) -> Sizes {
        let widest = self.widths.iter().copied().max();
        let feed_forward = widest.unwrap_or(self.shared_widening * sizes.feed_forward);
        Sizes { kv_heads: self.full.kv_heads, head_dim: self.full.head_dim, feed_forward, ..*sizes }
    }
}

impl Reader<'_> {
    pub(super) fn kinds(&self, sizes: &Sizes, with_window: Which) -> Result<Kinds> {
        let (block, keys) = (&self.family.block, &self.family.files.keys);
        let base = HeadSizes::of_model(sizes);
        let (windowed, full, keys_are_values) = match &block.full_attention {
            None => (base, base, false),
            Some(_) if self.is_gguf() => self.gguf_heads(sizes, &with_window)?,
            Some(table) => {
                let keys_are_values = self.fields().boolean(table.keys_are_values)?.unwrap_or(false);
                (base, self.config_heads(table, keys_are_values, sizes, &with_window)?, keys_are_values)
            }
        };
        for HeadSizes { kv_heads, .. } in [windowed, full] {
            if !sizes.heads.is_multiple_of(kv_heads) && block.sizes_by_layer.is_none() {
                let one = format!("{} is {}", self.key(keys.heads), sizes.heads);
                let key = self.key(keys.kv_heads);
                return Err(self.contradiction(one, format!("{key} is {kv_heads} in some layers, no divisor of it")));
            }
        }
        let (first_shared, sources) = (sizes.layers, [None, None]);
        let (heads, kv_heads, widths, shared_widening) = (Vec::new(), Vec::new(), Vec::new(), 1);
        let mut kinds = Kinds {
            with_window,
            windowed,
            full,
            heads,
            kv_heads,
            widths,
            shared_widening,
            first_shared,
            sources,
            keys_are_values,
        };
        if let Some(list) = block.sizes_by_layer {
            self.sizes_by_layer(list, sizes, &mut kinds)?;
        }
        if let Some((count, double_wide)) = block.shared_layers {
            self.shared_layers(&self.key(count), double_wide, sizes.layers, &mut kinds)?;
        }
        Ok(kinds)
    }

    /// Reads the sizes that each layer has for itself: those of GGUF's lists, and the heads in a `list` of `config.json`.
    fn sizes_by_layer(&self, list: &str, sizes: &Sizes, kinds: &mut Kinds) -> Result<()> {
        let keys = &self.family.files.keys;
        let listed = |key: Key| {
            let name = self.key(key);
            let size = |size: i64| if size == 0 { Ok(0) } else { self.bounded(&name, size) };
            let listed = self.listed_numbers(key, sizes.layers)?.unwrap_or_default();
            listed.into_iter().map(size).collect::<Result<Vec<_>>>()
        };
        (kinds.heads, kinds.kv_heads, kinds.widths) =
            (listed(keys.heads)?, listed(keys.kv_heads)?, listed(keys.feed_forward)?);
        let heads = |entry: &Value| entry.as_u64().and_then(|heads| self.bounded(list, heads).ok());
        if let Some(heads) = self.listed(list, "a number of heads", heads)? {
            if heads.len() != sizes.layers {
                return Err(self.entries(list, heads.len(), sizes.layers));
            }
            kinds.heads = heads;
        }
        for layer in 0..kinds.heads.len().max(kinds.kv_heads.len()) {
            let Sizes { heads, kv_heads, .. } = kinds.sizes(sizes, layer);
            if heads > 0 && kv_heads == 0 {
                let key = self.key(keys.kv_heads);
                return Err(self.feature("a layer with a linear map in place of attention", &key, "heads of keys"));
            }
            if heads > 0 && !heads.is_multiple_of(kv_heads) {
                let one = format!("layer {layer} has {heads} heads");
                return Err(self.contradiction(one, format!("it has {kv_heads} of keys and values, no divisor of it")));
            }
        }
        Ok(())
    }

    /// Heads of layers with a window, of the others, and whether these may use their keys as values.
    fn gguf_heads(&self, sizes: &Sizes, with_window: &Which) -> Result<(HeadSizes, HeadSizes, bool)> {
        const WINDOW_DIM: Key = Key::gguf(".attention.key_length_swa");
        let absent = || missing(self.fields(), &self.key(WINDOW_DIM), "heads differ in this family");
        let window_dim = self.size(WINDOW_DIM)?.ok_or_else(absent)?;
        self.refuse_other_values(".attention.value_length_swa", window_dim)?;
        let kv_heads = self.family.files.keys.kv_heads;
        let mut found = [None, None];
        for (layer, heads) in self.listed_sizes(kv_heads, sizes.layers)?.into_iter().flatten().enumerate() {
            if *found[usize::from(with_window.has(layer))].get_or_insert(heads) != heads {
                let feature = "a number that differs between layers with a window, or between those without";
                return Err(self.feature(feature, &self.key(kv_heads), "one number for each kind"));
            }
        }
        let [full, windowed] = found.map(|heads| heads.unwrap_or(sizes.kv_heads));
        let windowed = HeadSizes { kv_heads: windowed, head_dim: window_dim };
        Ok((windowed, HeadSizes { kv_heads: full, head_dim: sizes.head_dim }, true))
    }

    /// Heads of layers without a window in `config.json`: by layer, as transformers 5 writes them, or by keys of their own.
    fn config_heads(
        &self,
        table: &FullAttention,
        keys_are_values: bool,
        sizes: &Sizes,
        with_window: &Which,
    ) -> Result<HeadSizes> {
        if let Some(by_layer) = self.config.as_ref().map_or(Ok(None), |config| config.section(LAYER_CONFIG))? {
            return self.heads_by_layer(&by_layer, sizes, with_window);
        }
        let (key, default, why) = table.head_dim;
        let head_dim = self.or_default(self.size(Key::config(key))?, key, (default, why));
        let kv_heads = if keys_are_values { self.size(Key::config(table.kv_heads))? } else { None };
        Ok(HeadSizes { kv_heads: kv_heads.unwrap_or(sizes.kv_heads), head_dim })
    }

    /// Heads of layers without a window, where `by_layer` has the values that differ from the model's keys.
    fn heads_by_layer(&self, by_layer: &Section<'_>, sizes: &Sizes, with_window: &Which) -> Result<HeadSizes> {
        const KNOWN: [&str; 2] = ["head_dim", "num_key_value_heads"];
        let (base, layers) = (HeadSizes::of_model(sizes), sizes.layers);
        let (mut full, mut named) = (None, 0);
        let one_kind = |path: &str| {
            let feature = "heads that differ between layers with a window, or between those without";
            self.feature(feature, path, "the same heads in each kind of layer")
        };
        for key in by_layer.object().keys() {
            let Some(layer) = key.parse::<usize>().ok().filter(|layer| *layer < layers) else {
                let expected = format!("the number of a layer, below {layers}");
                return Err(self.value(&by_layer.path(), format!("{key:?}"), expected));
            };
            let Some(of_layer) = by_layer.section(key)? else { continue };
            if let Some(other) = of_layer.object().keys().find(|key| !KNOWN.contains(&key.as_str())) {
                let (feature, path) = (format!("{other} of a layer"), of_layer.dotted(other));
                return Err(self.feature(&feature, &path, &KNOWN.join(" and ")));
            }
            let size = |name: &str, base: usize| {
                let stored = of_layer.unsigned(name)?;
                stored.map_or(Ok(base), |size| self.bounded(&of_layer.dotted(name), size))
            };
            let kv_heads = size("num_key_value_heads", base.kv_heads)?;
            let found = HeadSizes { kv_heads, head_dim: size("head_dim", base.head_dim)? };
            let windowed = with_window.has(layer);
            named += usize::from(!windowed);
            if found != if windowed { base } else { *full.get_or_insert(found) } {
                return Err(one_kind(&of_layer.path()));
            }
        }
        let full = full.unwrap_or(base);
        // One more than are named in messages: a file may claim more layers than can be counted.
        if full != base && (0..layers).filter(|layer| !with_window.has(*layer)).nth(named).is_some() {
            return Err(one_kind(&by_layer.path()));
        }
        Ok(full)
    }

    /// Reads which layers use the keys and values of others, and how wide feed-forward layers are.
    fn shared_layers(&self, key: &str, double_wide: &str, layers: usize, kinds: &mut Kinds) -> Result<()> {
        let with_window = &kinds.with_window;
        if let Some(count) = self.fields().unsigned(key)?.filter(|count| *count > 0) {
            let of_model = format!("the model has {layers} layers");
            let stored = self.header.tensors.len();
            if layers > stored {
                return Err(self.contradiction(of_model, format!("{stored} tensors")));
            }
            let rest = usize::try_from(count).ok().and_then(|count| layers.checked_sub(count)).filter(|rest| *rest > 0);
            let Some(first) = rest else {
                return Err(self.contradiction(format!("{key} is {count}"), of_model));
            };
            kinds.first_shared = first;
            for windowed in [false, true] {
                let source = (0..first).rev().find(|layer| with_window.has(*layer) == windowed);
                if source.is_none() && (first..layers).any(|layer| with_window.has(layer) == windowed) {
                    let kind = if windowed { "with a window" } else { "without a window" };
                    let one = format!("{key} is {count}, with layers {kind} among them");
                    return Err(self.contradiction(one, format!("there is no layer {kind} before them")));
                }
                kinds.sources[usize::from(windowed)] = source;
            }
        }
        kinds.widths = self.listed_sizes(self.family.files.keys.feed_forward, layers)?.unwrap_or_default();
        if !self.is_gguf() && kinds.first_shared < layers && self.fields().boolean(double_wide)? == Some(true) {
            kinds.shared_widening = 2;
        }
        Ok(())
    }
}
