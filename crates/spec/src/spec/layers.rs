//! Metadata -> what differs from layer to layer: windows, rotation, and states in place of keys and values.

use super::kinds::{Kinds, Which};
use super::reader::Reader;
use super::single::SubLayer;
use super::{QueryScale, Sizes};
use crate::error::Result;
use crate::family::{Encoder, Key, QueryScaling, Role, RopeTable, StateLayers, Unrotated, Window, WindowPattern};
use crate::header::Fields;
use crate::header::config::wrong_type;
use serde_json::Value;

/// What differs from layer to layer. It takes no more memory than the file's lists do, however many layers the file claims.
pub(super) struct Layers {
    window: Option<usize>,
    pub(super) rotated: Which,
    window_rope: usize,
    /// Whether windows are chunks.
    chunked: bool,
    /// The factor of queries that depends on their position, in some layers.
    pub(super) query_scale: Option<QueryScale>,
    pub(super) with_state: Which,
    /// Where each layer is one sub-layer.
    single: Option<Vec<SubLayer>>,
    /// Whether all layers are mixers alone.
    only_mixers: bool,
    /// How many deviations above their mean gates count from, in each of the first layers.
    sparsity: Vec<f32>,
    pub(super) kinds: Kinds,
}

impl Layers {
    pub(super) fn window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.kinds.with_window.has(layer))
    }

    /// Whether its window is a chunk.
    pub(super) fn chunked(&self, layer: usize) -> bool {
        self.chunked && self.window(layer).is_some()
    }

    /// The factor of its queries.
    pub(super) fn query_scale(&self, layer: usize, table: &RopeTable) -> Option<QueryScale> {
        let rotated = matches!(table.query_scale, Some(QueryScaling::Rotated(_)));
        self.query_scale.filter(|_| self.rotated.has(layer) == rotated)
    }

    /// Whether it has a mixer and whether it has a feed-forward layer.
    pub(super) fn sub_layers(&self, layer: usize) -> (bool, bool) {
        let Some(single) = self.single.as_ref().and_then(|single| single.get(layer)) else {
            let (mixes, feeds) = self.kinds.sub_layers(layer);
            return (mixes, feeds && !self.only_mixers);
        };
        let mixes = matches!(single, SubLayer::State | SubLayer::Attention);
        (mixes, !mixes)
    }

    /// How many deviations above their mean the gates of `layer` count from, where not all do.
    pub(super) fn sparsity(&self, layer: usize) -> Option<f32> {
        self.sparsity.get(layer).copied().filter(|deviations| deviations.is_finite())
    }

    /// Drops a window that no sequence of `context` positions exceeds.
    pub(super) fn bound_window(&mut self, context: usize) {
        self.window = self.window.filter(|window| *window < context);
    }

    pub(super) fn rope(&self, layer: usize) -> Option<usize> {
        self.rotated.has(layer).then_some(if self.kinds.with_window.has(layer) { self.window_rope } else { 0 })
    }
}

/// The key of `config.json` for each layer's token mixer.
pub(super) const LAYER_TYPES: &str = "layer_types";
pub(super) const WITH_WINDOW: &str = "sliding_attention";
pub(super) const WITHOUT: &str = "full_attention";

impl Reader<'_> {
    /// Reads what differs from layer to layer. Layers with a window use the last of the family's rotary embeddings.
    pub(super) fn layers(&self, sizes: &Sizes) -> Result<Layers> {
        let family = self.family;
        let (window, chunks) = (self.sliding_window()?, matches!(family.window, Window::Chunks { .. }));
        let listed = match &family.rope.unrotated {
            // In llama.cpp all layers rotate where none has chunks.
            Some(Unrotated::Listed { .. }) if self.is_gguf() && chunks && window.is_none() => Some(Which::All),
            Some(Unrotated::Listed { list, interval, default_interval }) => {
                Some(self.rotated(list, interval, *default_interval, sizes)?)
            }
            _ => None,
        };
        let with_window = match (family.window, window) {
            (_, None) => Which::None,
            (Window::Chunks { .. }, Some(_)) => match self.listed_windows()? {
                Some(windows) => self.of_each_layer(LAYER_TYPES, windows, sizes.layers)?,
                None => listed.clone().unwrap_or(Which::All),
            },
            (Window::Pattern(pattern), Some(_)) => self.pattern(&pattern, sizes)?,
            (Window::Flagged { from: Some(from), source, .. }, Some(_)) => self.windows_from(sizes, from, source)?,
            (_, Some(_)) => Which::All,
        };
        let places_otherwise = family.name_of(Role::Positions).is_some() || self.alibi(sizes.layers)?.is_some();
        let rotated = match (&family.rope.unrotated, &family.rope.switch) {
            _ if places_otherwise => Which::None,
            (Some(Unrotated::WithoutWindow { unless_all: true, .. }), _) if window.is_none() => Which::All,
            (Some(Unrotated::WithoutWindow { but_dense: true, .. }), _) => {
                let with_experts = self.layers_with_experts(sizes.layers)?;
                let rotates = |layer: usize| with_window.has(layer) || !with_experts(layer);
                Which::Listed((0..sizes.layers).map(rotates).collect())
            }
            (Some(Unrotated::WithoutWindow { .. }), _) => with_window.clone(),
            (Some(Unrotated::Bases { list, gguf, windowed }), _) => {
                let absent = if *windowed { with_window.clone() } else { Which::All };
                self.with_base(list, gguf, sizes)?.unwrap_or(absent)
            }
            (Some(Unrotated::Listed { .. }), _) => listed.unwrap_or(Which::All),
            (None, Some(switch)) if !self.rotates(*switch)? => Which::None,
            (None, _) if family.rope.never || family.rope.unrotated_by_null && self.has_null_base()? => Which::None,
            (None, _) => Which::All,
        };
        let single = self.single_layers()?;
        let with_state = match &single {
            Some(single) => Which::Listed(single.iter().map(|layer| *layer == SubLayer::State).collect()),
            None => self.state_layers(sizes)?,
        };
        // An encoder's window covers both sides together.
        let encodes = self.encodes()?;
        let window = window.map(|window| match family.head.encoder {
            _ if !encodes => window,
            Encoder::UnlessCausal => window.saturating_add(1),
            _ => window / 2 + 1,
        });
        let kinds = self.kinds(sizes, with_window)?;
        let window_rope = usize::from(family.rope.window.is_some());
        let only_mixers = self.only_states();
        let (chunked, sparsity) = (chunks, self.sparsity(sizes.layers)?);
        Ok(Layers {
            window,
            rotated,
            window_rope,
            chunked,
            query_scale: None,
            with_state,
            single,
            only_mixers,
            sparsity,
            kinds,
        })
    }

    /// The window, where the family has one. 0 in GGUF and null mean no window.
    fn sliding_window(&self) -> Result<Option<usize>> {
        let of_type = |types: &[&str]| self.model_type.as_deref().is_some_and(|kind| types.contains(&kind));
        let (honoured, default) = match self.family.window {
            Window::Honoured => (true, (0, "llama.cpp and transformers default")),
            Window::Pattern(pattern) if self.is_gguf() => (true, (pattern.gguf_default, pattern.source)),
            Window::Pattern(pattern) => (of_type(pattern.model_types), (pattern.config_default, pattern.source)),
            Window::OfModelTypes(model_types, default) => (!self.is_gguf() && of_type(model_types), default),
            Window::Flagged { flag, source, .. } => {
                let is_on = !self.is_gguf() && (flag.is_empty() || self.fields().boolean(flag)? == Some(true));
                (is_on, (4096, source))
            }
            Window::Chunks { size, source, .. } => (true, (size, source)),
            Window::Unused => (false, (0, "")),
        };
        if !honoured && !self.is_gguf() {
            return Ok(None);
        }
        let config = if let Window::Chunks { key, .. } = self.family.window { key } else { "sliding_window" };
        let of_chunks = if let Window::Chunks { size, .. } = self.family.window { Some(size) } else { None };
        let key = self.key(Key { gguf: ".attention.sliding_window", config });
        match self.fields().unsigned(&key)? {
            Some(tokens) if self.is_gguf() && tokens > 0 && of_chunks.is_some_and(|size| size != tokens) => {
                Err(self.feature(&format!("chunks of {tokens} positions"), &key, "8192, which llama.cpp has always"))
            }
            None if honoured && !self.is_null(&key) => {
                let (tokens, why) = default;
                let what =
                    if tokens == 0 { "no sliding window".into() } else { format!("a sliding window of {tokens}") };
                let tokens = self.or_absent(None, tokens, what, &key, why);
                Ok(usize::try_from(tokens).ok().filter(|tokens| *tokens > 0))
            }
            Some(0) if !self.is_gguf() => Err(self.value(&key, 0, "a positive number or null".into())),
            None if of_chunks.is_some() && !self.is_gguf() => {
                Err(self.value(&key, "null", "a positive number, without which transformers does not run".into()))
            }
            None | Some(0) => Ok(None),
            Some(tokens) if honoured => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
            Some(tokens) => Err(self.feature(&format!("a sliding window of {tokens} tokens"), &key, "none")),
        }
    }

    fn pattern(&self, pattern: &WindowPattern, sizes: &Sizes) -> Result<Which> {
        // The last layer has no window, whatever `config.json` says.
        let full = (pattern.last_is_full && !self.is_gguf()).then(|| sizes.layers - 1);
        let key = self.key(Key { gguf: ".attention.sliding_window_pattern", config: pattern.config_key });
        let listed = match self.gguf() {
            Some(metadata) if metadata.array_len(&key).is_some() => metadata.booleans(&key)?,
            Some(_) => None,
            None => self.listed_windows()?,
        };
        if let Some(mut listed) = listed {
            if let Some(full) = full.and_then(|full| listed.get_mut(full)) {
                *full = false;
            }
            let key = if self.is_gguf() { &key } else { LAYER_TYPES };
            return self.of_each_layer(key, listed, sizes.layers);
        }
        if pattern.config_listed_only && !self.is_gguf() {
            self.assume(format!("no window: {LAYER_TYPES} is absent ({})", self.class_default()));
            return Ok(Which::None);
        }
        if pattern.full_every == 0 {
            self.assume(format!("a window in every layer: {LAYER_TYPES} is absent ({})", pattern.source));
            return Ok(Which::All);
        }
        let what = format_args!("a window in all but one of {} layers", pattern.full_every);
        let absent = if key.is_empty() { LAYER_TYPES } else { &key };
        let every = self.or_absent(self.interval(&key)?, pattern.full_every, what, absent, pattern.source);
        if pattern.after_dense {
            let with_experts = self.layers_with_experts(sizes.layers)?;
            let dense = (0..sizes.layers).take_while(|layer| !with_experts(*layer)).count();
            let windowed = |layer: usize| layer >= dense && !(layer - dense + 1).is_multiple_of(every);
            return Ok(Which::Listed((0..sizes.layers).map(windowed).collect()));
        }
        Ok(if pattern.first_is_full { Which::AllButAt(every, 0) } else { Which::AllBut(every, full) })
    }

    /// The interval of layers that differ, read from `key`.
    pub(super) fn interval(&self, key: &str) -> Result<Option<usize>> {
        match self.fields().unsigned(key)? {
            Some(0) => Err(self.value(key, 0, "a positive number".into())),
            every => Ok(every.map(|every| every as usize)),
        }
    }

    fn listed_windows(&self) -> Result<Option<Vec<bool>>> {
        let states = self.family.block.states.map_or(&[][..], |states| states.layer_types);
        let with = if matches!(self.family.window, Window::Chunks { .. }) { "chunked_attention" } else { WITH_WINDOW };
        self.listed(LAYER_TYPES, &format!("{with} or {WITHOUT}"), |kind| match kind.as_str()? {
            kind if kind == with => Some(true),
            WITHOUT => Some(false),
            kind => states.contains(&kind).then_some(false),
        })
    }

    /// Which layers have a window where all from a certain one on do.
    fn windows_from(&self, sizes: &Sizes, default: u64, source: &str) -> Result<Which> {
        const KEY: &str = "max_window_layers";
        if let Some(listed) = self.listed_windows()? {
            return self.of_each_layer(LAYER_TYPES, listed, sizes.layers);
        }
        let what = format_args!("a window from layer {default} on");
        let first = self.or_absent(self.fields().unsigned(KEY)?, default, what, KEY, source);
        Ok(Which::From(usize::try_from(first).unwrap_or(usize::MAX)))
    }

    /// The layers that rotate: by a `list`, or all but one of so many by the key `interval` or the default.
    fn rotated(&self, list: &str, interval: &str, default: (usize, &str), sizes: &Sizes) -> Result<Which> {
        let flag = |entry: &Value| entry.as_u64().filter(|flag| *flag < 2).map(|flag| flag == 1);
        // An empty list is none, as published for Llama 4.
        if let Some(mut listed) = self.listed(list, "0 or 1", flag)?.filter(|listed| !listed.is_empty()) {
            let (layers, entries) = (sizes.layers, listed.len());
            if entries > layers {
                self.assume(format!(
                    "the first {layers} of {entries} entries of {list}: the model has no more layers (transformers \
                     looks each up)"
                ));
                listed.truncate(layers);
            }
            return self.of_each_layer(list, listed, layers);
        }
        let stored = if self.is_gguf() { None } else { self.interval(interval)? };
        let every = stored.unwrap_or_else(|| {
            let (every, source) = default;
            let absent = if self.is_gguf() { "no key says it" } else { "its keys are absent" };
            self.assume(format!("no rotation in one of {every} layers: {absent} ({source})"));
            every
        });
        Ok(Which::AllBut(every, None))
    }

    /// The layers that rotate, by a `list` of bases in `config.json`, which are one or 0, or a list of flags in `gguf`.
    fn with_base(&self, list: &str, gguf: &'static str, sizes: &Sizes) -> Result<Option<Which>> {
        let key = self.gguf_key(gguf);
        let (key, rotate) = match self.gguf() {
            Some(metadata) if !gguf.is_empty() && metadata.array_len(&key).is_some() => {
                (key.as_str(), metadata.booleans(&key)?.unwrap_or_default())
            }
            Some(_) => return Ok(None),
            None => {
                let Some(bases) = self.listed(list, "a base or 0", Value::as_f64)? else { return Ok(None) };
                let section = self.config.as_ref().map_or(Ok(None), |config| config.section("rope_parameters"))?;
                let nested = section.map_or(Ok(None), |section| section.number("rope_theta"))?;
                let theta =
                    nested.or(self.fields().number("rope_theta")?).or(self.family.rope.theta.map(|theta| theta.0));
                if let Some(other) = bases.iter().find(|base| **base != 0.0 && Some(**base) != theta) {
                    let feature = format!("a layer with a rotary base of its own, {other},");
                    return Err(self.feature(&feature, list, "0 or rope_theta"));
                }
                (list, bases.iter().map(|base| *base != 0.0).collect())
            }
        };
        self.of_each_layer(key, rotate, sizes.layers).map(Some)
    }

    /// Whether `config.json` has null for the rotary base.
    fn has_null_base(&self) -> Result<bool> {
        let Some(config) = self.config else { return Ok(false) };
        let section = config.section("rope_parameters")?;
        let object = section.as_ref().map_or(config.object(), |section| section.object());
        Ok(object.get("rope_theta").is_some_and(Value::is_null))
    }

    /// Whether all layers have a state and nothing else.
    pub(super) fn only_states(&self) -> bool {
        self.family.block.states.is_some_and(|states| matches!(states.layers, StateLayers::Only))
    }

    fn rotates(&self, switch: Key) -> Result<bool> {
        let key = self.key(switch);
        if self.is_gguf() {
            let stored = self.fields().boolean(&key)?;
            return Ok(self.or_absent(stored, true, "queries and keys are rotated", &key, "the default of llama.cpp"));
        }
        match self.fields().text(&key)? {
            Some("rope") => Ok(true),
            Some("nope") => Ok(false),
            None => Ok(self.or_absent(None, false, "no rotation", &key, &self.class_default())),
            Some(other) => Err(self.value(&key, other, "rope, nope or null".into())),
        }
    }

    /// A list of `config.json`, each entry parsed by `has`; `None` in GGUF, and where it is absent or null.
    pub(super) fn listed<T>(
        &self,
        key: &str,
        known: &str,
        has: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(list) = self.config.and_then(|config| config.object().get(key)) else { return Ok(None) };
        let entry = |(index, entry): (usize, &Value)| {
            has(entry).ok_or_else(|| self.value(&format!("{key}[{index}]"), entry, known.to_owned()))
        };
        match list {
            Value::Null => Ok(None),
            Value::Array(list) => list.iter().enumerate().map(entry).collect::<Result<_>>().map(Some),
            other => Err(wrong_type(self.fields().file(), key, other, "a list")),
        }
    }

    /// Returns `listed` if it has an entry for each of the `layers`.
    pub(super) fn of_each_layer(&self, key: &str, listed: Vec<bool>, layers: usize) -> Result<Which> {
        if listed.len() == layers { Ok(Which::Listed(listed)) } else { Err(self.entries(key, listed.len(), layers)) }
    }
}
