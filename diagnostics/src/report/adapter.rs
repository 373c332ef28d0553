//! AdapterSpec -> the entry of `adapters` in the report.

use crate::adapter::AdapterSpec;
use crate::source::Format;
use crate::spec::{LinearWeights, ModelSpec};
use model_factory_dtypes::DType;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An adapter that belongs to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterSummary {
    /// The path as the user gave it.
    pub path: String,
    /// `peft` or `gguf`.
    pub kind: &'static str,
    /// The model that it says it was made for.
    pub base: Option<String>,
    /// The ranks of its matrices, ascending.
    pub ranks: Vec<usize>,
    /// The number of linear layers that it changes.
    pub changed: usize,
    /// The number of linear layers of the model that adapters may change.
    pub changeable: usize,
    /// What it changes: linear layers by name, with the number of those that it changes.
    pub layers: BTreeMap<String, usize>,
    /// The dtypes of its tensors.
    pub dtypes: Vec<DType>,
    /// Bytes of its tensors.
    pub bytes: u64,
}

impl AdapterSummary {
    /// What `adapter`, which was given as `path`, changes in `model`.
    pub(crate) fn new(path: &Path, adapter: &AdapterSpec, model: &ModelSpec) -> AdapterSummary {
        let matrices: Vec<&LinearWeights> = model.weights.matrices().collect();
        let name = |matrix: &&LinearWeights| matrix.module.as_ref().map(|module| module.name.clone());
        let changed = adapter.changes.iter().filter_map(|change| name(matrices.get(change.matrix)?));
        let changed: BTreeSet<String> = changed.collect();
        let mut layers = BTreeMap::new();
        changed.iter().for_each(|module| *layers.entry(without_numbers(module)).or_default() += 1);
        let dtypes: BTreeSet<DType> =
            adapter.changes.iter().flat_map(|change| [change.a.dtype, change.b.dtype]).collect();
        let ranks: BTreeSet<usize> = adapter.changes.iter().map(|change| change.rank).collect();
        AdapterSummary {
            path: path.display().to_string(),
            kind: if adapter.source.format == Format::Gguf { "gguf" } else { "peft" },
            base: adapter.base.clone(),
            ranks: ranks.into_iter().collect(),
            changed: changed.len(),
            changeable: matrices.iter().filter_map(name).collect::<BTreeSet<String>>().len(),
            layers,
            dtypes: dtypes.into_iter().collect(),
            bytes: adapter.bytes(),
        }
    }

    /// `q_proj 2, v_proj 2`.
    pub(super) fn layers_in_words(&self) -> String {
        let each: Vec<String> = self.layers.iter().map(|(name, count)| format!("{name} {count}")).collect();
        each.join(", ")
    }
}

/// What follows the last number in the name of a layer: `self_attn.q_proj`.
fn without_numbers(module: &str) -> String {
    let parts: Vec<&str> = module.split('.').collect();
    let last = parts.iter().rposition(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    parts[last.map_or(0, |last| last + 1)..].join(".")
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn layers_are_named_without_their_numbers() {
        assert_eq!(without_numbers("model.layers.11.self_attn.q_proj"), "self_attn.q_proj");
        assert_eq!(without_numbers("model.layers.1.mlp.experts.7.up_proj"), "up_proj");
        assert_eq!(without_numbers("blk.0.ffn_up_exps"), "ffn_up_exps");
        assert_eq!(without_numbers("lm_head"), "lm_head");
    }
}
