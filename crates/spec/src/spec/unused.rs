//! Stored tensors that no role asked for: which may be ignored, kind by kind with the reason. Any other may change the
//! result, and is refused by name.

use super::names::suffix;
use super::tensors::Tensors;
use crate::error::{Error, Result};
use crate::family::{Bias, Role};
use crate::header::TensorInfo;
use crate::quantization::Scheme;
use model_factory_dtypes::DType;

/// Prefixes of tensors that text generation does not need, in safetensors; `model.` may come before them.
const BESIDE_TEXT: &[&str] = &[
    // Images and sound reach the language model as rows in place of embeddings: a text has none.
    "vision_tower.",
    "vision_model.",
    "vision_adapter.",
    "vision_projection.",
    "connector.",
    "multi_modal_projector.",
    "mlp_AR.",
    "embed_vision.",
    "visual.",
    "audio_tower.",
    "embed_audio.",
    // Other heads read hidden states and do not change them: for further tokens, for labels, for values in reinforcement learning.
    "mtp.",
    "score.",
    "v_head.",
];

/// Prefixes of such tensors in GGUF: images and sound by llama.cpp's names, which some writers put into the model's own file.
const BESIDE_TEXT_GGUF: &[&str] = &["v.", "mm.", "a."];

/// Suffixes of buffers that transformers and llama.cpp's converter compute again from the configuration. All of them
/// are in checkpoints written by earlier releases of transformers.
const BUFFERS: &[&str] = &[
    // Rotary frequencies.
    "rotary_emb.inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
    // Position numbers 0, 1, 2 and so on.
    ".position_ids",
    // The value of masked scores.
    ".attn.masked_bias",
    ".attention.masked_bias",
];

/// Suffixes of causal masks, which are `[1, 1, context, context]`.
const MASKS: &[&str] = &[".attn.bias", ".attention.bias"];

/// Suffixes that tensors of a module switched off by keys may have: a scale of another kind is unknown there too.
const OF_MODULE: &[&str] = &["", ".weight", ".bias", ".weight_scale", ".weight_scale_inv"];

/// Suffixes of scales for activations in FP8 or FP4, which are floats here, as caches are (vLLM, ModelOpt, compressed-tensors and
/// transformers have these names).
const FLOAT_ACTIVATIONS: &[&str] = &[
    ".input_scale",
    ".input_global_scale",
    ".activation_scale",
    "_proj_activation_scale",
    ".act_scale",
    ".input_scale_ub",
    ".q_scale",
    ".prob_output_scale",
];

/// Suffixes of scales for caches in FP8.
pub(super) const CACHE_SCALES: &[&str] =
    &[".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale", ".v_proj.output_scale"];

impl Tensors<'_> {
    /// The stored tensors that no role asked for and that may be ignored.
    ///
    /// # Errors
    /// `Incomplete` for a tensor of a layer past the last, and in GGUF for a bias of a module that has none;
    /// `UnknownTensors` for all others.
    pub(super) fn unused(&self) -> Result<Vec<String>> {
        // Tensors that the family is known to store for something that is not computed here.
        let unneeded: Vec<String> = self.family.files.unneeded.iter().map(|known| self.pattern(known, known)).collect();
        let is_left = |TensorInfo { name, .. }: &&TensorInfo| {
            !self.used.contains(name) && !unneeded.iter().any(|known| name.starts_with(known))
        };
        let unused: Vec<&TensorInfo> = self.table.values().filter(is_left).collect();
        for TensorInfo { name, .. } in &unused {
            // transformers ignores such a tensor, llama.cpp refuses the file.
            if self.reader.is_gguf()
                && let Some(stem) = name.strip_suffix(".bias")
                && self.used.contains(&format!("{stem}.weight"))
            {
                let found = format!("{stem}.weight has no bias in {}", self.family.name);
                return Err(self.reader.contradiction(format!("tensor {name} is stored"), found));
            }
            let layers = self.sizes.blocks;
            if let Some(layer) = self.layer_of(name)
                && layer >= layers
            {
                let key = self.reader.key(self.family.files.keys.layers);
                return Err(self.reader.contradiction(
                    format!("{key} is {layers}"),
                    format!("tensor {name} belongs to layer {layer}, counted from 0"),
                ));
            }
        }
        let (aside, unknown): (Vec<_>, Vec<_>) = unused.into_iter().partition(|tensor| self.is_aside(tensor));
        let named = |tensors: Vec<&TensorInfo>| tensors.into_iter().map(|tensor| tensor.name.clone()).collect();
        match unknown.first() {
            None => Ok(named(aside)),
            Some(first) => Err(Error::UnknownTensors {
                file: self.file_of(first).into(),
                family: self.family.id,
                names: named(unknown),
            }),
        }
    }

    fn is_aside(&self, tensor: &TensorInfo) -> bool {
        let name = tensor.name.as_str();
        let begins = |fronts: &[&str], name: &str| fronts.iter().any(|front| name.starts_with(front));
        // Blocks after the decoder's predict further tokens.
        if self.layer_of(name).is_some_and(|layer| layer >= self.sizes.layers) {
            return true;
        }
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        if self.reader.is_gguf() {
            // What llama.cpp writes next to NVFP4 for activations in FP4, which it does not compute on a processor.
            let is_nvfp4 = |weight: &TensorInfo| weight.dtype == DType::NVFP4;
            let module = name.strip_suffix(".input_scale").map(|module| format!("{module}.weight"));
            let scales_activations = module.is_some_and(|weight| self.table.get(&weight).is_some_and(is_nvfp4));
            return scales_activations || begins(BESIDE_TEXT_GGUF, name) || self.is_left_out(name);
        }
        let is_mask = matches!(*tensor.shape, [1, 1, rows, columns] if rows == columns) && ends(MASKS);
        let within = name.strip_prefix("model.").unwrap_or(name);
        let of_floats = self.scheme.is_some_and(Scheme::is_of_floats);
        let scales_activations = of_floats && (ends(FLOAT_ACTIVATIONS) || ends(CACHE_SCALES));
        begins(BESIDE_TEXT, within) || ends(BUFFERS) || is_mask || scales_activations || self.is_left_out(name)
    }

    /// Whether the tables name the tensor and the file's keys switch it off: keys and values of layers that reuse those
    /// of others, experts, heads, and biases that a flag denies. transformers ignores the same ones. In GGUF, where
    /// llama.cpp refuses most of them, these are keys and values, and a classification head of an embedding model.
    fn is_left_out(&self, name: &str) -> bool {
        let borrows = || self.layer_of(name).is_some_and(|layer| self.options.layers.kinds.source(layer).is_some());
        // A number of shared experts that denies stored ones is no switch: transformers does not load such a file.
        let numbered = self.family.experts.is_some_and(|experts| experts.shared_count.is_some());
        let counts = |role: &Role| match role {
            Role::SharedGate | Role::SharedUp | Role::SharedDown if numbered => false,
            _ if !self.reader.is_gguf() => true,
            Role::K | Role::V | Role::KNorm => borrows(),
            Role::Classifier | Role::ClassifierDense | Role::ClassifierNorm => true,
            _ => false,
        };
        let denied = |role: &Role| {
            let mut biases = self.family.biases.iter().filter(|(roles, _)| roles.contains(role));
            name.ends_with(".bias") && biases.any(|(_, bias)| !matches!(bias, Bias::Always))
        };
        let is_used = |module: &str| {
            let within = format!("{module}.");
            let first = self.used.range(within.clone()..).next();
            self.used.contains(module) || first.is_some_and(|used| used.starts_with(&within))
        };
        let tables = self.family.tensors.iter().copied().flatten();
        let tables = tables.map(|names| (std::slice::from_ref(&names.role), names.gguf, names.config));
        let fused = self.family.fused.iter().map(|fused| (fused.roles, fused.gguf, fused.config));
        tables.chain(fused).filter(|(roles, ..)| roles.iter().all(counts)).any(|(roles, gguf, config)| {
            let suffix = suffix(name, &self.pattern(gguf, config)).filter(|suffix| OF_MODULE.contains(suffix));
            let module = suffix.and_then(|suffix| name.strip_suffix(suffix));
            module.is_some_and(|module| !is_used(module) || roles.iter().all(denied))
        })
    }

    /// The number of the tensor's layer, by the tables.
    fn layer_of(&self, name: &str) -> Option<usize> {
        self.family.tensors.iter().copied().flatten().find_map(|names| {
            let pattern = self.pattern(names.gguf, names.config);
            let (prefix, _) = pattern.split_once("{}")?;
            name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok()
        })
    }
}
