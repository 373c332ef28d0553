//! Values of keys that a family refuses by name.

use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::{Encoder, Key, Refusal};
use serde_json::Value;

/// The key that says whether tokens attend only to earlier ones.
const CAUSAL: Key = Key { gguf: ".attention.causal", config: "is_causal" };

impl Reader<'_> {
    /// Whether the model is an encoder.
    pub(super) fn encodes(&self) -> Result<bool> {
        Ok(match self.family.head.encoder {
            Encoder::No => false,
            Encoder::Yes { .. } => true,
            Encoder::UnlessCausal => self.fields().boolean(&self.key(CAUSAL))? == Some(false),
            Encoder::Flag(flag) => self.is_gguf() || self.fields().boolean(flag)? == Some(true),
        })
    }

    /// Refuses GGUF files whose values of a head are longer or shorter than its keys.
    pub(super) fn refuse_other_values(&self, key: &'static str, head_dim: usize) -> Result<()> {
        let (key, length) = self.gguf_number(key)?;
        match length {
            Some(length) if length != head_dim as u64 => {
                let feature = format!("values of {length} elements a head with keys of {head_dim}");
                Err(self.feature(&feature, &key, "keys and values of one length"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses experts in a family without them: the model is not this dense block, whatever its architecture is called.
    pub(super) fn refuse_experts(&self) -> Result<()> {
        let key = self.key(Key { gguf: ".expert_count", config: "num_local_experts" });
        match self.family.experts.map_or_else(|| self.fields().unsigned(&key), |_| Ok(None))? {
            Some(experts @ 1..) => Err(self.feature(&format!("a mixture of {experts} experts"), &key, "dense models")),
            _ => Ok(()),
        }
    }

    /// Refuses values of keys that would change the block.
    pub(super) fn refuse_flags(&self) -> Result<()> {
        let fields = self.fields();
        let causal = self.key(CAUSAL);
        match (fields.boolean(&causal)?, self.encodes()?) {
            (None, true) if self.is_gguf() && self.family.head.encoder == (Encoder::Yes { by_name: false }) => {
                return Err(missing(fields, &causal, "whether tokens attend to later ones is not known"));
            }
            (Some(true), true) => return Err(self.feature("attention only to earlier positions", &causal, "false")),
            (Some(false), false) => return Err(self.feature("attention to later positions", &causal, "true")),
            _ => {}
        }
        for refusal in self.family.files.refused {
            match (*refusal, self.is_gguf()) {
                (Refusal::Set(key, feature), false) => {
                    // Some values are numbers, of which 0 means off, or lists.
                    let listed = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
                    if self.config.and_then(|config| config.object().get(key)).is_some_and(listed) {
                        return Err(self.feature(feature, key, "none"));
                    }
                    let number = fields.number(key).ok().flatten();
                    if number.is_some_and(|number| number != 0.0)
                        || number.is_none() && fields.boolean(key)? == Some(true)
                    {
                        return Err(self.feature(feature, key, "false"));
                    }
                }
                (Refusal::Unset(key, feature), _) => {
                    let key = self.key(key);
                    // Null is off in transformers, where what is absent has a default.
                    if !key.is_empty() && (fields.boolean(&key)? == Some(false) || self.is_null(&key)) {
                        return Err(self.feature(feature, &key, "true"));
                    }
                }
                (Refusal::Text(key, text, feature), false) if fields.text(key)? == Some(text) => {
                    return Err(self.feature(feature, key, "null, or another"));
                }
                (Refusal::Unless(key, values, feature), _) => {
                    let key = self.key(key);
                    let number = fields.number(&key).ok().flatten().map(|number| number.to_string());
                    let text = if number.is_none() { fields.text(&key)? } else { None };
                    let found = number.as_deref().or(text).filter(|found| !key.is_empty() && !values.contains(found));
                    if let Some(found) = found {
                        return Err(self.feature(&format!("{feature} ({found})"), &key, values[0]));
                    }
                }
                (Refusal::Unlike(key, other, feature), false) => {
                    let (found, other) = (fields.unsigned(key)?, self.key(other));
                    if found.is_some_and(|found| fields.unsigned(&other).ok().flatten() != Some(found)) {
                        return Err(self.feature(feature, key, &other));
                    }
                }
                (Refusal::AbsentGguf(key), true) if !fields.has(&self.gguf_key(key)) => {
                    return Err(missing(fields, &self.gguf_key(key), "models of this family differ in it"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
