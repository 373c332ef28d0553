//! A tensor of another shape than the sizes ask for -> the absent keys whose defaults these sizes are, named in the error.

use super::Sizes;
use super::tensors::Tensors;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{Key, Role};
use crate::header::TensorInfo;

/// A size that has a default: its key, its value in words, and the sizes without it, which differ where something depends on it.
type Defaulted = (String, String, Sizes);

impl Tensors<'_> {
    /// `checked`, whose shape is made of the sizes of `roles`. Where it is not the stored one, and a size it is made of was taken
    /// for want of a key, the error says so.
    pub(super) fn explained(
        &self,
        checked: Result<TensorInfo>,
        roles: &[Role],
        layer: Option<usize>,
    ) -> Result<TensorInfo> {
        checked.map_err(|mut error| {
            if let Error::Incomplete { kind: IncompleteKind::TensorShape { because, .. }, .. } = &mut error {
                for (key, taken, _) in self.defaulted(roles, layer) {
                    because.push_str(&format!("; {key} is absent and was taken as {taken}"));
                }
            }
            error
        })
    }

    /// The absent keys whose defaults the sizes of `roles` depend on.
    fn defaulted(&self, roles: &[Role], layer: Option<usize>) -> Vec<Defaulted> {
        let (keys, sizes) = (&self.family.files.keys, self.sizes(layer));
        let table = if self.reader.is_gguf() { &[] } else { self.family.files.defaults };
        let source = self.family.files.defaults_source;
        let of_table = |key: &str| table.iter().find(|(name, _)| *name == key);
        let key = |key: Key| self.reader.key(key);
        let of_key = |name: Key, value: usize, rule: &str, without: Sizes| {
            let taken = match of_table(name.config) {
                Some(_) => format!("{value} ({source})"),
                None => format!("{rule}, {value}"),
            };
            (key(name), taken, without)
        };
        let Sizes { heads, kv_heads, head_dim, vocab, context, .. } = sizes;
        let width = format!("{} / {}", key(keys.hidden), key(keys.heads));
        // Of a layer with heads of its own the model's keys say nothing.
        let (of_model, headless) = (self.sizes, Sizes { head_dim: 0, ..sizes });
        let without_kv = if kv_heads == of_model.kv_heads { Sizes { kv_heads: 0, ..sizes } } else { sizes };
        let without_dim = if head_dim == of_model.head_dim { headless } else { sizes };
        let full =
            self.family.block.full_attention.as_ref().filter(|_| !self.reader.is_gguf()).map(|table| table.head_dim);
        let full = full.filter(|(_, default, _)| head_dim == *default && head_dim != of_model.head_dim);
        let full = full.map(|(name, default, source)| (name.to_owned(), format!("{default} ({source})"), headless));
        let named = [
            of_key(keys.heads, heads, "", Sizes { heads: 0, ..sizes }),
            of_key(keys.kv_heads, kv_heads, &key(keys.heads), without_kv),
            of_key(keys.head_dim, head_dim, &width, without_dim),
            of_key(keys.vocab, vocab, "the entries of tokenizer.ggml.tokens", Sizes { vocab: 0, ..sizes }),
            of_key(keys.context, context, "", Sizes { context: 0, ..sizes }),
        ];
        let others = table.iter().filter(|(name, _)| {
            let of_keys = [keys.heads, keys.kv_heads, keys.head_dim, keys.vocab, keys.context, keys.norm_eps];
            of_keys.iter().all(|key| key.config != *name)
        });
        // The other defaults of tables are of layers with a state.
        let of_states = others.map(|(name, value)| {
            (self.reader.config_key(name), format!("{value} ({source})"), Sizes { states: None, ..sizes })
        });
        let shape = |sizes: &Sizes, role: Role| {
            let (outputs, inputs, _) = sizes.shape(role);
            (outputs, inputs)
        };
        let depends = |without: &Sizes| roles.iter().any(|role| shape(without, *role) != shape(&sizes, *role));
        let defaulted = named.into_iter().chain(full).chain(of_states);
        defaulted.filter(|(key, _, without)| !self.reader.fields().has(key) && depends(without)).collect()
    }
}
