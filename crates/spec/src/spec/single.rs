//! Metadata -> which sub-layer each layer is, in families whose layers are one sub-layer each.

use super::layers::LAYER_TYPES;
use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::{Key, Keys, StateLayers, StateTable};
use serde_json::Value;

/// The one sub-layer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubLayer {
    State,
    Attention,
    Dense,
    Experts,
}

use SubLayer::{Attention, Dense, Experts, State};

/// In the order of a table's letters.
const KINDS: [SubLayer; 4] = [State, Attention, Dense, Experts];

impl Reader<'_> {
    /// The sub-layer of each layer, of the prediction heads in a GGUF file too; `None` in families whose layers have a
    /// mixer and a feed-forward layer.
    pub(super) fn single_layers(&self) -> Result<Option<Vec<SubLayer>>> {
        let Some(StateTable { layer_types, attention, layers, .. }) = self.family.block.states else { return Ok(None) };
        let StateLayers::Single { dense, experts, letters: (key, letters) } = layers else { return Ok(None) };
        if self.is_gguf() {
            return self.single_layers_of_gguf().map(Some);
        }
        let list = self.config_key(LAYER_TYPES);
        let known = [layer_types, attention, &[dense, experts]].concat().join(", ");
        let kind = |entry: &Value| match entry.as_str()? {
            name if layer_types.contains(&name) => Some(State),
            name if attention.contains(&name) => Some(Attention),
            name if name == dense => Some(Dense),
            name => (name == experts).then_some(Experts),
        };
        let (source, kinds) = match (self.listed(&list, &known, kind)?, self.fields().text(key)?) {
            (Some(listed), _) => (list.as_str(), listed),
            (None, Some(text)) => {
                (key, text.chars().map(|letter| self.kind(key, &letters, letter)).collect::<Result<_>>()?)
            }
            (None, None) => return Err(missing(self.fields(), &list, "what each layer is, is never guessed")),
        };
        match self.size(self.family.files.keys.layers)? {
            Some(layers) if layers != kinds.len() => Err(self.entries(source, kinds.len(), layers)),
            _ if kinds.is_empty() => Err(self.value(source, "(empty)", "an entry for each layer".into())),
            _ => Ok(Some(kinds)),
        }
    }

    fn kind(&self, key: &str, letters: &[char; 4], letter: char) -> Result<SubLayer> {
        let place = letters.iter().position(|known| *known == letter);
        let expected = || format!("the letters {}", letters.map(String::from).join(", "));
        place.map(|place| KINDS[place]).ok_or_else(|| self.value(key, format!("{letter:?}"), expected()))
    }

    fn single_layers_of_gguf(&self) -> Result<Vec<SubLayer>> {
        let Keys { layers, kv_heads, feed_forward, .. } = self.family.files.keys;
        let blocks = self.present(layers, self.size(layers)?)?;
        let network = if self.gguf_experts()? > 0 { Experts } else { Dense };
        let listed = |key: Key| {
            let needed = "a list with a number for each layer says what it is";
            self.listed_numbers(key, blocks)?.ok_or_else(|| missing(self.fields(), &self.key(key), needed))
        };
        let kind = |numbers| match numbers {
            (0, 0) => State,
            (_, 0) => Attention,
            _ => network,
        };
        Ok(listed(kv_heads)?.into_iter().zip(listed(feed_forward)?).map(kind).collect())
    }
}
