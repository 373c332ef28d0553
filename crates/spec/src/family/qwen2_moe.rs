//! Qwen2 with experts: Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B.

use super::experts::{EXPERT_WIDTH, FUSED_EXPERTS, QWEN_COUNT, QWEN_DENSE_LAYERS, QWEN_EXPERTS, ROUTED};
use super::{Bias, ExpertTable, Family, Key, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Normalized, Role, TensorName};

/// Tensors of the expert that every token is given to.
#[rustfmt::skip]
pub(super) const SHARED_EXPERT: &[TensorName] = &[
    TensorName { role: Role::SharedRouter, gguf: "blk.{}.ffn_gate_inp_shexp", config: "model.layers.{}.mlp.shared_expert_gate" },
    TensorName { role: Role::SharedGate,   gguf: "blk.{}.ffn_gate_shexp",     config: "model.layers.{}.mlp.shared_expert.gate_proj" },
    TensorName { role: Role::SharedUp,     gguf: "blk.{}.ffn_up_shexp",       config: "model.layers.{}.mlp.shared_expert.up_proj" },
    TensorName { role: Role::SharedDown,   gguf: "blk.{}.ffn_down_shexp",     config: "model.layers.{}.mlp.shared_expert.down_proj" },
];

/// Width of that expert.
pub(super) const SHARED_WIDTH: Key =
    Key { gguf: ".expert_shared_feed_forward_length", config: "shared_expert_intermediate_size" };

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen2moe",
    gguf_architectures: &["qwen2moe"],
    model_types: &[("qwen2_moe", &["Qwen2MoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, QWEN_EXPERTS, SHARED_EXPERT],
    fused: FUSED_EXPERTS,
    // transformers `Qwen2MoeAttention`.
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::UnlessFlag("qkv_bias"))],
    refused_flags: &[("use_sliding_window", "a sliding window in some layers")],
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(EXPERT_WIDTH),
        shared_feed_forward: Some(SHARED_WIDTH),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..ROUTED
    }),
    default_tied: (false, "the default of transformers' Qwen2MoeConfig"),
    name: "Qwen2 MoE",
    ..LLAMA_LIKE
};
