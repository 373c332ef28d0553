//! GLM-4 of 2025: GLM-4-9B-0414, GLM-4-32B-0414, GLM-Z1. As GLM-4, with norms around the sub-layers.

use super::*;

#[rustfmt::skip]
const NORMS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_self_attn_layernorm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",       config: "model.layers.{}.post_mlp_layernorm" },
];

pub(super) const FAMILY: Family = Family {
    id: "glm4",
    gguf_architectures: &["glm4"],
    model_types: &[("glm4", &["Glm4ForCausalLM"])],
    tensors: &[NORMS, LLAMA_LIKE_TENSORS],
    name: "GLM-4-0414",
    ..glm::FAMILY
};
