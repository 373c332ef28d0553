//! Metadata -> what differs from layer to layer: windows, rotation, and states in place of keys and values.

use super::Sizes;
use super::kinds::{Kinds, Which};
use super::reader::Reader;
use crate::error::Result;
use crate::family::{Family, Key, RotationSwitch, Unrotated, Window};
use crate::header::config::wrong_type;
use crate::header::{Header, Metadata};
use serde_json::Value;

/// What differs from layer to layer. It takes no more than the file's lists do, however many layers the file claims.
pub(super) struct Layers {
    window: Option<usize>,
    with_window: Which,
    rotated: Which,
    /// The rotary embedding of layers with a window.
    window_rope: usize,
    with_state: Which,
    kinds: Kinds,
}

impl Layers {
    /// Positions that a token attends to in `layer`.
    pub(super) fn window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.with_window.has(layer))
    }

    /// Takes a window that no sequence of `context` positions exceeds for none.
    pub(super) fn bound_window(&mut self, context: usize) {
        self.window = self.window.filter(|window| *window < context);
    }

    /// Which rotary embedding `layer` has.
    pub(super) fn rope(&self, layer: usize) -> Option<usize> {
        self.rotated.has(layer).then_some(if self.with_window.has(layer) { self.window_rope } else { 0 })
    }

    /// Whether `layer` has a state in place of keys and values.
    pub(super) fn has_state(&self, layer: usize) -> bool {
        self.with_state.has(layer)
    }

    /// Whether any of `layers` has one.
    pub(super) fn have_states(&self, layers: usize) -> bool {
        self.with_state.any(layers)
    }

    /// Whether any layer rotates queries and keys.
    pub(super) fn rotate(&self) -> bool {
        !matches!(self.rotated, Which::None)
    }

    /// The sizes of `layer`, of a model that has `sizes`.
    pub(super) fn sizes(&self, sizes: &Sizes, layer: usize) -> Sizes {
        self.kinds.sizes(sizes, layer, self.with_window.has(layer))
    }

    /// The layer whose keys and values `layer` uses in place of its own.
    pub(super) fn source(&self, layer: usize) -> Option<usize> {
        self.kinds.source(layer, self.with_window.has(layer))
    }

    /// Whether `layer` is one of those whose keys may be their values, and `config.json` says that they are.
    pub(super) fn keys_are_values(&self, layer: usize) -> (bool, bool) {
        let full = !self.with_window.has(layer);
        (full, full && self.kinds.keys_are_values)
    }

    /// What differs between kinds of layers.
    pub(super) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Whether a layer rotates as those with a window do.
    pub(super) fn rotates_windows(&self) -> bool {
        !matches!(self.with_window, Which::None)
    }
}

/// What each layer's attention is in `config.json`.
const LAYER_TYPES: &str = "layer_types";
pub(super) const WITH_WINDOW: &str = "sliding_attention";
pub(super) const WITHOUT: &str = "full_attention";

impl Reader<'_> {
    /// What differs from layer to layer. Those with a window have the last of the family's rotary embeddings.
    pub(super) fn layers(
        &self,
        family: &Family,
        header: &Header,
        sizes: &Sizes,
        assumptions: &mut Vec<String>,
    ) -> Result<Layers> {
        let window = self.sliding_window(family, assumptions)?;
        let with_window = match (family.window, window) {
            (_, None) => Which::None,
            (Window::Pattern { full_every, config_key, source, last_is_full, first_is_full, .. }, Some(_)) => {
                let last = (last_is_full && !self.is_gguf()).then(|| sizes.layers - 1);
                match self.pattern(header, sizes, (full_every, config_key, source), last, assumptions)? {
                    Which::AllBut(every, _) if first_is_full => Which::AllButFirst(every),
                    with_window => with_window,
                }
            }
            (Window::Flagged { from: Some(from), source, .. }, Some(_)) => {
                self.windows_from(sizes, from, source, assumptions)?
            }
            (_, Some(_)) => Which::All,
        };
        let rotated = match (&family.unrotated, &family.rotation) {
            (Some(unrotated), _) => self.rotated(unrotated, sizes, assumptions)?,
            (None, Some(switch)) if !self.rotates(switch, assumptions)? => Which::None,
            (None, _) => Which::All,
        };
        let with_state = self.state_layers(family, header, sizes, assumptions)?;
        // Of an encoder it is that of both sides together.
        let window = window.map(|window| if family.encoder { window / 2 + 1 } else { window });
        let kinds = self.kinds(family, header, sizes, &with_window, assumptions)?;
        let window_rope = usize::from(family.window_rope.is_some());
        Ok(Layers { window, with_window, rotated, window_rope, with_state, kinds })
    }

    /// The window, where the family has one. 0 in GGUF and null are none.
    fn sliding_window(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<Option<usize>> {
        let of_type = |types: &[&str]| self.model_type().is_some_and(|kind| types.contains(&kind));
        let (honoured, default) = match family.window {
            Window::Honoured => (true, (0, "llama.cpp and transformers default")),
            Window::Pattern { gguf_default, source, .. } if self.is_gguf() => (true, (gguf_default, source)),
            Window::Pattern { config_default, source, model_types, .. } => {
                (of_type(model_types), (config_default, source))
            }
            Window::OfModelTypes(model_types, default) => (!self.is_gguf() && of_type(model_types), default),
            Window::Flagged { flag, config_default, source, .. } => {
                let is_on = !self.is_gguf() && self.fields().boolean(flag)? == Some(true);
                (is_on, (config_default, source))
            }
            Window::Unused => (false, (0, "")),
        };
        if !honoured && !self.is_gguf() {
            return Ok(None);
        }
        let key = self.key(Key { gguf: ".attention.sliding_window", config: "sliding_window" });
        match self.fields().unsigned(&key)? {
            None if honoured && !self.is_null(&key) => {
                let (tokens, why) = default;
                let what =
                    if tokens == 0 { "no sliding window".into() } else { format!("a sliding window of {tokens}") };
                assumptions.push(format!("{what}: {key} is absent ({why})"));
                Ok(usize::try_from(tokens).ok().filter(|tokens| *tokens > 0))
            }
            Some(0) if !self.is_gguf() => Err(self.value(&key, 0, "a positive number or null".into())),
            None | Some(0) => Ok(None),
            Some(tokens) if honoured => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
            Some(tokens) => Err(self.feature(&format!("a sliding window of {tokens} tokens"), &key, "none")),
        }
    }

    /// Which layers have the window; `full` has none.
    fn pattern(
        &self,
        header: &Header,
        sizes: &Sizes,
        (every, config_key, source): (usize, &'static str, &str),
        full: Option<usize>,
        assumptions: &mut Vec<String>,
    ) -> Result<Which> {
        let key = self.key(Key { gguf: ".attention.sliding_window_pattern", config: config_key });
        let listed = match &header.metadata {
            Metadata::Gguf(metadata) if metadata.array_len(&key).is_some() => metadata.booleans(&key)?,
            Metadata::Gguf(_) => None,
            Metadata::Config(_) => self.listed_windows()?,
        };
        if let Some(mut listed) = listed {
            if let Some(full) = full.and_then(|full| listed.get_mut(full)) {
                *full = false;
            }
            let key = if self.is_gguf() { &key } else { LAYER_TYPES };
            return self.of_each_layer(key, listed, sizes.layers);
        }
        let every = match self.fields().unsigned(&key)? {
            Some(every @ 1..) => every as usize,
            Some(0) => return Err(self.value(&key, 0, "a positive number".into())),
            None => {
                let key = if key.is_empty() { LAYER_TYPES } else { &key };
                assumptions.push(format!("a window in all but one of {every} layers: {key} is absent ({source})"));
                every
            }
        };
        Ok(Which::AllBut(every, full))
    }

    /// The layers that `layer_types` of `config.json` gives a window.
    fn listed_windows(&self) -> Result<Option<Vec<bool>>> {
        self.listed(LAYER_TYPES, &format!("{WITH_WINDOW} or {WITHOUT}"), |kind| match kind.as_str()? {
            WITH_WINDOW => Some(true),
            WITHOUT => Some(false),
            _ => None,
        })
    }

    /// Which layers have the window where those do from a first one on.
    fn windows_from(
        &self,
        sizes: &Sizes,
        (key, default): (&str, u64),
        source: &str,
        assumptions: &mut Vec<String>,
    ) -> Result<Which> {
        if let Some(listed) = self.listed_windows()? {
            return self.of_each_layer(LAYER_TYPES, listed, sizes.layers);
        }
        let first = self.fields().unsigned(key)?.unwrap_or_else(|| {
            assumptions.push(format!("a window from layer {default} on: {key} is absent ({source})"));
            default
        });
        Ok(Which::From(usize::try_from(first).unwrap_or(usize::MAX)))
    }

    /// Which layers rotate queries and keys.
    fn rotated(&self, unrotated: &Unrotated, sizes: &Sizes, assumptions: &mut Vec<String>) -> Result<Which> {
        let flag = |entry: &Value| entry.as_u64().filter(|flag| *flag < 2).map(|flag| flag == 1);
        if let Some(mut listed) = self.listed(unrotated.list, "0 or 1", flag)? {
            if listed.len() > sizes.layers {
                assumptions.push(format!(
                    "the first {} of {} entries of {}: the model has no more layers (transformers looks each up)",
                    sizes.layers,
                    listed.len(),
                    unrotated.list
                ));
                listed.truncate(sizes.layers);
            }
            return self.of_each_layer(unrotated.list, listed, sizes.layers);
        }
        let stored = if self.is_gguf() { None } else { self.fields().unsigned(unrotated.interval)? };
        let every = match stored {
            Some(every @ 1..) => every as usize,
            Some(0) => return Err(self.value(unrotated.interval, 0, "a positive number".into())),
            None => {
                let (every, source) = unrotated.default_interval;
                let absent = if self.is_gguf() { "no key says it" } else { "its keys are absent" };
                assumptions.push(format!("no rotation in one of {every} layers: {absent} ({source})"));
                every
            }
        };
        Ok(Which::AllBut(every, None))
    }

    /// Whether queries and keys are rotated, as the files say.
    fn rotates(&self, switch: &RotationSwitch, assumptions: &mut Vec<String>) -> Result<bool> {
        if self.is_gguf() {
            let flag = self.key(Key { gguf: switch.gguf_flag, config: "" });
            return Ok(self.fields().boolean(&flag)?.unwrap_or_else(|| {
                assumptions.push(format!("queries and keys are rotated: {flag} is absent (the default of llama.cpp)"));
                true
            }));
        }
        match self.fields().text(switch.text)? {
            Some("rope") => Ok(true),
            Some("nope") => Ok(false),
            None => {
                let (key, class) = (switch.text, &self.architecture);
                assumptions.push(format!("no rotation: {key} is absent (the default of transformers' {class})"));
                Ok(false)
            }
            Some(other) => Err(self.value(switch.text, other, "rope, nope or null".into())),
        }
    }

    /// A list of `config.json`, each entry as `read` understands it; `None` in GGUF, and where it is absent or null.
    pub(super) fn listed(
        &self,
        key: &str,
        known: &str,
        read: impl Fn(&Value) -> Option<bool>,
    ) -> Result<Option<Vec<bool>>> {
        let Some(list) = self.config().and_then(|config| config.object().get(key)) else { return Ok(None) };
        let entry = |(index, entry): (usize, &Value)| {
            read(entry).ok_or_else(|| self.value(&format!("{key}[{index}]"), entry, known.to_owned()))
        };
        match list {
            Value::Null => Ok(None),
            Value::Array(list) => list.iter().enumerate().map(entry).collect::<Result<_>>().map(Some),
            other => Err(wrong_type(self.fields().file(), key, other, "a list")),
        }
    }

    /// `listed`, if it has an entry for every one of `layers`.
    pub(super) fn of_each_layer(&self, key: &str, listed: Vec<bool>, layers: usize) -> Result<Which> {
        if listed.len() == layers {
            return Ok(Which::Listed(listed));
        }
        let found = format!("{key} has {} entries", listed.len());
        Err(self.contradiction(format!("the model has {layers} layers"), found))
    }
}
