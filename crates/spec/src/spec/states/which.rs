//! Which layers have a state, by the family's keys.

use crate::error::Result;
use crate::family::{PlaceOfLayers, StateLayers, StateTable};
use crate::spec::Sizes;
use crate::spec::kinds::Which;
use crate::spec::layers::LAYER_TYPES;
use crate::spec::reader::{Reader, missing};

impl Reader<'_> {
    pub(in crate::spec) fn state_layers(&self, sizes: &Sizes) -> Result<Which> {
        let Some(StateTable { layers: rule, layer_types, attention, .. }) = self.family.block.states else {
            return Ok(Which::None);
        };
        let known = [layer_types, attention].concat().join(" or ");
        let list = self.config_key(LAYER_TYPES);
        let listed = self.listed(&list, &known, |kind| {
            let kind = kind.as_str()?;
            if attention.contains(&kind) { Some(false) } else { layer_types.contains(&kind).then_some(true) }
        })?;
        if let Some(listed) = listed {
            return self.of_each_layer(&list, listed, sizes.layers);
        }
        match (rule, self.gguf()) {
            (StateLayers::AllButEvery { every: key, list, default: (default, source) }, metadata) => {
                let list = self.gguf_key(list);
                if let Some(flags) = metadata.map_or(Ok(None), |metadata| metadata.booleans(&list))? {
                    return self.of_each_layer(&list, flags, sizes.blocks);
                }
                let every = self.size(key)?.unwrap_or_else(|| {
                    let (absent, key) = (if self.is_gguf() { &list } else { LAYER_TYPES }, self.key(key));
                    self.assume(format!(
                        "a state in all but one of {default} layers: {absent} and {key} are absent ({source})"
                    ));
                    default
                });
                Ok(Which::AllBut(every, None))
            }
            (StateLayers::All(source), None) => {
                Ok(self.or_absent(None, Which::All, "a state in every layer", LAYER_TYPES, source))
            }
            (StateLayers::Beside | StateLayers::Only, _) => Ok(Which::All),
            // Read by `single_layers`.
            (StateLayers::Single { .. }, _) => Ok(Which::None),
            (StateLayers::Numbered { of_states, of_others }, None) => {
                self.of_each_layer(of_states, self.numbered(of_states, of_others, sizes.layers)?, sizes.layers)
            }
            (
                StateLayers::AllButListed(_)
                | StateLayers::AllButAt(_)
                | StateLayers::All(_)
                | StateLayers::Numbered { .. },
                Some(metadata),
            ) => {
                let key = self.key(self.family.files.keys.kv_heads);
                // One number for all layers means that all of them have keys.
                if metadata.array_len(&key).is_none() {
                    return Ok(Which::None);
                }
                let heads = metadata.integers(&key)?.unwrap_or_default();
                self.of_each_layer(&key, heads.iter().map(|heads| *heads == 0).collect(), sizes.blocks)
            }
            (StateLayers::AllButAt(place), None) => {
                let [every, at] = self.place(&place)?;
                Ok(Which::AllButAt(every, at))
            }
            (StateLayers::AllButListed(key), None) => match self.listed_layers(key, sizes.layers)? {
                Some(listed) => Ok(Which::AllButThese(listed)),
                None => {
                    let (absent, why) = (format!("{LAYER_TYPES} and {key} are absent"), self.class_default());
                    self.assume(format!("no layer with a state: {absent} ({why})"));
                    Ok(Which::None)
                }
            },
        }
    }

    /// The number of layers of a group, and of the one among them.
    pub(in crate::spec) fn place(&self, place: &PlaceOfLayers) -> Result<[usize; 2]> {
        let PlaceOfLayers { every: (every, default), at: (at, default_at), source } = *place;
        let of_group = self.or_default(self.interval(every)?, every, (default, source));
        let found = self.fields().unsigned(at)?.map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        match self.or_default(found, at, (default_at, source)) {
            found if found < of_group => Ok([of_group, found]),
            found => Err(self.value(at, found, format!("a number below {of_group}, which {every} is"))),
        }
    }

    /// Whether each layer is in the first list of numbers from 1 on, or else in the second.
    fn numbered(&self, of_states: &str, of_others: &str, layers: usize) -> Result<Vec<bool>> {
        let list = |key: &str| {
            let listed = self.config.map_or(Ok(None), |config| config.integers(key))?;
            listed.ok_or_else(|| missing(self.fields(), key, "which layers have a state is never guessed"))
        };
        let (states, others) = (list(of_states)?, list(of_others)?);
        if let Some(unknown) = states.iter().chain(&others).find(|number| !(1..=layers as u64).contains(number)) {
            let key = if states.contains(unknown) { of_states } else { of_others };
            return Err(self.value(key, unknown, format!("numbers of layers, from 1 to {layers}")));
        }
        if states.len() + others.len() != layers {
            return Err(self.entries(&format!("{of_states} and {of_others}"), states.len() + others.len(), layers));
        }
        let mut listed = vec![None; layers];
        for (number, has) in states.iter().map(|of| (*of, true)).chain(others.iter().map(|of| (*of, false))) {
            if listed[number as usize - 1].replace(has).is_some() {
                let once = format!("{of_others} has each other layer once");
                return Err(self.contradiction(format!("layer {number} is in {of_states} or {of_others} again"), once));
            }
        }
        Ok(listed.into_iter().map(|has| has == Some(true)).collect())
    }

    /// The numbers of layers that `config.json` lists, in order.
    pub(in crate::spec) fn listed_layers(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>> {
        let Some(mut listed) = self.config.map_or(Ok(None), |config| config.integers(key))? else { return Ok(None) };
        listed.sort_unstable();
        match listed.iter().find(|layer| **layer >= layers as u64) {
            Some(layer) => Err(self.value(key, layer, format!("numbers of layers, below {layers}"))),
            None => Ok(Some(listed)),
        }
    }
}
