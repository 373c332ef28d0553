//! A tensor of another shape than the sizes ask for -> the absent keys whose defaults these sizes are, named in the error.

use super::Sizes;
use super::tensors::Tensors;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{Key, Role};

/// A size that has a default: its key, its value in words, and the sizes without it, which differ where something depends on it.
type Defaulted = (String, String, Sizes);

impl Tensors<'_> {
    /// `checked`, whose shape is made of the sizes of `roles`. Where it is not the stored one, and a size it is made of was taken
    /// for want of a key, the error says so.
    pub(super) fn explained<T>(&self, checked: Result<T>, roles: &[Role], layer: Option<usize>) -> Result<T> {
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
        let (files, sizes) = (&self.family.files, self.sizes(layer));
        let (keys, source, gguf) = (&files.keys, files.defaults_source, self.reader.is_gguf());
        let table = || files.defaults.iter().copied().flatten().filter(|_| !gguf);
        let key = |key: Key| self.reader.key(key);
        let of_key = |name: Key, value: usize, rule: &str, without: Sizes| {
            let in_table = table().any(|(known, _)| *known == name.config);
            let taken = if in_table { format!("{value} ({source})") } else { format!("{rule}, {value}") };
            (key(name), taken, without)
        };
        let Sizes { heads, kv_heads, head_dim, vocab, context, .. } = sizes;
        let width = format!("{} / {}", key(keys.hidden), key(keys.heads));
        // Of a layer with heads of its own the model's keys say nothing.
        let (of_model, headless) = (self.sizes, Sizes { head_dim: 0, ..sizes });
        let without_kv = if kv_heads == of_model.kv_heads { Sizes { kv_heads: 0, ..sizes } } else { sizes };
        let without_dim = if head_dim == of_model.head_dim { headless } else { sizes };
        let full = self.family.block.full_attention.filter(|_| !gguf && head_dim != of_model.head_dim);
        let full = full.map(|table| table.head_dim).filter(|(_, default, _)| head_dim == *default);
        let full = full.map(|(name, default, source)| (name.to_owned(), format!("{default} ({source})"), headless));
        let named = [
            of_key(keys.heads, heads, "", Sizes { heads: 0, ..sizes }),
            of_key(keys.kv_heads, kv_heads, &key(keys.heads), without_kv),
            of_key(keys.head_dim, head_dim, &width, without_dim),
            of_key(keys.vocab, vocab, "the entries of tokenizer.ggml.tokens", Sizes { vocab: 0, ..sizes }),
            of_key(keys.context, context, "", Sizes { context: 0, ..sizes }),
        ];
        let of_keys = [keys.heads, keys.kv_heads, keys.head_dim, keys.vocab, keys.context, keys.norm_eps];
        let others = table().filter(|(name, _)| of_keys.iter().all(|key| key.config != *name));
        // The other defaults of tables are of layers with a state.
        let of_states = others.map(|(name, value)| {
            (self.reader.config_key(name), format!("{value} ({source})"), Sizes { states: None, ..sizes })
        });
        let shape = |sizes: &Sizes, role: &Role| {
            let (rows, columns, _) = sizes.shape(*role, &self.family.block);
            (rows, columns)
        };
        let depends = |without: &Sizes| roles.iter().any(|role| shape(without, role) != shape(&sizes, role));
        let defaulted = named.into_iter().chain(full).chain(of_states);
        defaulted.filter(|(key, _, without)| !self.reader.fields().has(key) && depends(without)).collect()
    }
}
