//! Metadata -> what differs between layers with a window and those without, and between the last layers and the others: heads of
//! keys and values, widths of feed-forward layers, and whose keys and values a layer uses.

use super::Sizes;
use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::{Family, FullAttention, Key, SharedLayers};
use crate::header::config::Section;
use crate::header::{Header, Metadata};

/// Values of a layer's keys in `config.json`, where they are others than the model's.
const LAYER_CONFIG: &str = "per_layer_config";

/// Some of the layers.
pub(super) enum Which {
    /// None of them.
    None,
    /// All of them.
    All,
    /// All but every so many, and but this one.
    AllBut(usize, Option<usize>),
    /// All but the first of every so many.
    AllButFirst(usize),
    /// This one and those behind it.
    From(usize),
    /// All but these, in order.
    AllButThese(Vec<u64>),
    /// An entry for each.
    Listed(Vec<bool>),
}

impl Which {
    pub(super) fn has(&self, layer: usize) -> bool {
        match self {
            Which::None => false,
            Which::All => true,
            Which::AllBut(every, other) => !(layer + 1).is_multiple_of(*every) && Some(layer) != *other,
            Which::AllButFirst(every) => !layer.is_multiple_of(*every),
            Which::From(first) => layer >= *first,
            Which::AllButThese(others) => others.binary_search(&(layer as u64)).is_err(),
            Which::Listed(listed) => listed.get(layer).is_some_and(|has| *has),
        }
    }

    /// Whether any of `layers` is among them.
    pub(super) fn any(&self, layers: usize) -> bool {
        (0..layers).any(|layer| self.has(layer))
    }
}

/// What a table's keys say of kinds of layers.
pub(super) struct Kinds {
    /// Heads of layers with a window.
    windowed: HeadSizes,
    /// Heads of the others.
    full: HeadSizes,
    widths: Widths,
    /// The first layer that uses keys and values of another.
    first_shared: usize,
    /// The last layer before it, with a window and without.
    sources: [Option<usize>; 2],
    /// Whether layers without a window have no values but their keys; GGUF says it by the tensors.
    pub(super) keys_are_values: bool,
}

/// The heads of keys and values.
#[derive(Clone, Copy, PartialEq)]
struct HeadSizes {
    kv_heads: usize,
    head_dim: usize,
}

/// The widths of feed-forward layers.
enum Widths {
    Same,
    /// Of each layer.
    Listed(Vec<usize>),
    /// Twice as wide where keys and values are another layer's.
    Doubled,
}

impl Kinds {
    /// The sizes of a layer, of a model that has `sizes`.
    pub(super) fn sizes(&self, sizes: &Sizes, layer: usize, windowed: bool) -> Sizes {
        let HeadSizes { kv_heads, head_dim } = if windowed { self.windowed } else { self.full };
        let feed_forward = match &self.widths {
            Widths::Same => sizes.feed_forward,
            Widths::Listed(listed) => listed.get(layer).copied().unwrap_or(sizes.feed_forward),
            Widths::Doubled if layer >= self.first_shared => 2 * sizes.feed_forward,
            Widths::Doubled => sizes.feed_forward,
        };
        Sizes { kv_heads, head_dim, feed_forward, ..*sizes }
    }

    /// The layer whose keys and values `layer` uses in place of its own.
    pub(super) fn source(&self, layer: usize, windowed: bool) -> Option<usize> {
        if layer < self.first_shared { None } else { self.sources[usize::from(windowed)] }
    }

    /// Elements of a head in layers with a window.
    pub(super) fn window_head_dim(&self) -> usize {
        self.windowed.head_dim
    }

    /// Sizes of the model as a report has them: heads of layers without a window, and the widest feed-forward layer.
    pub(super) fn described(&self, sizes: &Sizes) -> Sizes {
        let feed_forward = match &self.widths {
            Widths::Same => sizes.feed_forward,
            Widths::Listed(listed) => listed.iter().copied().max().unwrap_or(sizes.feed_forward),
            Widths::Doubled => 2 * sizes.feed_forward,
        };
        Sizes { kv_heads: self.full.kv_heads, head_dim: self.full.head_dim, feed_forward, ..*sizes }
    }
}

impl Reader<'_> {
    /// What the family's keys say of kinds of layers.
    pub(super) fn kinds(
        &self,
        family: &Family,
        header: &Header,
        sizes: &Sizes,
        with_window: &Which,
        assumptions: &mut Vec<String>,
    ) -> Result<Kinds> {
        let base = HeadSizes { kv_heads: sizes.kv_heads, head_dim: sizes.head_dim };
        let keys_are_values = match (&family.full_attention, self.is_gguf()) {
            (Some(table), false) => self.fields().boolean(table.keys_are_values)?.unwrap_or(false),
            _ => false,
        };
        let (windowed, full) = match (&family.full_attention, &header.metadata) {
            (None, _) => (base, base),
            (Some(_), Metadata::Gguf(_)) => self.gguf_heads(family, header, sizes, with_window)?,
            (Some(table), Metadata::Config(_)) => {
                (base, self.config_heads(table, keys_are_values, sizes, with_window, assumptions)?)
            }
        };
        for HeadSizes { kv_heads, .. } in [windowed, full] {
            if !sizes.heads.is_multiple_of(kv_heads) {
                let (heads, key) = (sizes.heads, self.key(family.keys.kv_heads));
                let one = format!("{} is {heads}", self.key(family.keys.heads));
                return Err(self.contradiction(one, format!("{key} is {kv_heads} in some layers, no divisor of it")));
            }
        }
        let mut kinds = Kinds {
            windowed,
            full,
            widths: Widths::Same,
            first_shared: sizes.layers,
            sources: [None, None],
            keys_are_values,
        };
        if let Some(shared) = &family.shared_layers {
            self.shared_layers(family, shared, header, sizes, with_window, &mut kinds)?;
        }
        Ok(kinds)
    }

    /// Heads of layers with a window and without, of a GGUF file.
    fn gguf_heads(
        &self,
        family: &Family,
        header: &Header,
        sizes: &Sizes,
        with_window: &Which,
    ) -> Result<(HeadSizes, HeadSizes)> {
        let key = Key { gguf: ".attention.key_length_swa", config: "" };
        let window_dim = self.size(key)?;
        let window_dim =
            window_dim.ok_or_else(|| missing(self.fields(), &self.key(key), "heads differ in this family"))?;
        self.refuse_other_values(".attention.value_length_swa", window_dim)?;
        let mut kinds = [sizes.kv_heads; 2];
        if let Some(listed) = self.listed_sizes(family.keys.kv_heads, header, sizes.layers)? {
            let mut found = [None, None];
            for (layer, heads) in listed.into_iter().enumerate() {
                let first = found[usize::from(with_window.has(layer))].get_or_insert(heads);
                if *first != heads {
                    let key = self.key(family.keys.kv_heads);
                    let feature = "a number that differs between layers with a window, or between those without";
                    return Err(self.feature(feature, &key, "one number for each kind"));
                }
            }
            kinds = found.map(|heads| heads.unwrap_or(sizes.kv_heads));
        }
        let [full, windowed] = kinds;
        let windowed = HeadSizes { kv_heads: windowed, head_dim: window_dim };
        Ok((windowed, HeadSizes { kv_heads: full, head_dim: sizes.head_dim }))
    }

    /// Heads of layers without a window, of `config.json`: by layer as transformers 5 writes it, or by keys of their own.
    fn config_heads(
        &self,
        table: &FullAttention,
        keys_are_values: bool,
        sizes: &Sizes,
        with_window: &Which,
        assumptions: &mut Vec<String>,
    ) -> Result<HeadSizes> {
        let base = HeadSizes { kv_heads: sizes.kv_heads, head_dim: sizes.head_dim };
        if let Some(by_layer) = self.config().map_or(Ok(None), |config| config.section(LAYER_CONFIG))? {
            return self.heads_by_layer(&by_layer, base, sizes.layers, with_window);
        }
        let config = |key| Key { gguf: "", config: key };
        let (key, default, why) = table.head_dim;
        let head_dim = match self.size(config(key))? {
            Some(head_dim) => head_dim,
            None => {
                assumptions.push(format!("{key} {default}: it is absent ({why})"));
                default
            }
        };
        let kv_heads = if keys_are_values { self.size(config(table.kv_heads))? } else { None };
        Ok(HeadSizes { kv_heads: kv_heads.unwrap_or(base.kv_heads), head_dim })
    }

    /// Heads of layers without a window, where `by_layer` has what differs from the model's keys.
    fn heads_by_layer(
        &self,
        by_layer: &Section<'_>,
        base: HeadSizes,
        layers: usize,
        with_window: &Which,
    ) -> Result<HeadSizes> {
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
            let path = of_layer.path();
            if let Some(other) =
                of_layer.object().keys().find(|key| !["head_dim", "num_key_value_heads"].contains(&&***key))
            {
                let feature = format!("{other} of a layer");
                return Err(self.feature(&feature, &format!("{path}.{other}"), "head_dim and num_key_value_heads"));
            }
            let size = |name: &str, base: usize| match crate::header::Fields::unsigned(&of_layer, name)? {
                Some(size) => self.bounded(&format!("{path}.{name}"), size),
                None => Ok(base),
            };
            let found = HeadSizes {
                kv_heads: size("num_key_value_heads", base.kv_heads)?,
                head_dim: size("head_dim", base.head_dim)?,
            };
            let windowed = with_window.has(layer);
            named += usize::from(!windowed);
            if found != if windowed { base } else { *full.get_or_insert(found) } {
                return Err(one_kind(&path));
            }
        }
        let full = full.unwrap_or(base);
        // One more than are named: a file may claim more layers than can be counted.
        if full != base && (0..layers).filter(|layer| !with_window.has(*layer)).nth(named).is_some() {
            return Err(one_kind(&by_layer.path()));
        }
        Ok(full)
    }

    /// Which layers use the keys and values of others, and how wide feed-forward layers are.
    fn shared_layers(
        &self,
        family: &Family,
        shared: &SharedLayers,
        header: &Header,
        sizes: &Sizes,
        with_window: &Which,
        kinds: &mut Kinds,
    ) -> Result<()> {
        let key = self.key(shared.count);
        if let Some(count) = self.fields().unsigned(&key)?.filter(|count| *count > 0) {
            let layers = sizes.layers;
            let stored = header.tensors.len();
            if layers > stored {
                return Err(self.contradiction(format!("the model has {layers} layers"), format!("{stored} tensors")));
            }
            let rest = usize::try_from(count).ok().and_then(|count| layers.checked_sub(count)).filter(|rest| *rest > 0);
            let Some(first) = rest else {
                return Err(self.contradiction(format!("{key} is {count}"), format!("the model has {layers} layers")));
            };
            kinds.first_shared = first;
            for windowed in [false, true] {
                if windowed && matches!(with_window, Which::None) {
                    continue;
                }
                let source = (0..first).rev().find(|layer| with_window.has(*layer) == windowed);
                if source.is_none() && (first..layers).any(|layer| with_window.has(layer) == windowed) {
                    let without = if windowed { "with a window" } else { "without a window" };
                    let one = format!("{key} is {count}, with layers {without} among them");
                    return Err(self.contradiction(one, format!("there is no layer {without} before them")));
                }
                kinds.sources[usize::from(windowed)] = source;
            }
        }
        kinds.widths = if self.is_gguf() {
            let listed = self.listed_sizes(family.keys.feed_forward, header, sizes.layers)?;
            listed.map_or(Widths::Same, Widths::Listed)
        } else if kinds.first_shared < sizes.layers && self.fields().boolean(shared.double_wide)? == Some(true) {
            Widths::Doubled
        } else {
            Widths::Same
        };
        Ok(())
    }
}
