//! Qwen2 with experts: Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B.

use super::*;

#[rustfmt::skip]
pub(super) const SHARED_EXPERT: &[TensorName] = &[
    TensorName { role: Role::SharedRouter, gguf: "blk.{}.ffn_gate_inp_shexp", config: "model.layers.{}.mlp.shared_expert_gate" },
    TensorName { role: Role::SharedGate,   gguf: "blk.{}.ffn_gate_shexp",     config: "model.layers.{}.mlp.shared_expert.gate_proj" },
    TensorName { role: Role::SharedUp,     gguf: "blk.{}.ffn_up_shexp",       config: "model.layers.{}.mlp.shared_expert.up_proj" },
    TensorName { role: Role::SharedDown,   gguf: "blk.{}.ffn_down_shexp",     config: "model.layers.{}.mlp.shared_expert.down_proj" },
];

pub(super) const SHARED_WIDTH: Key =
    Key { gguf: ".expert_shared_feed_forward_length", config: "shared_expert_intermediate_size" };

pub(super) const FAMILY: Family = Family {
    id: "qwen2moe",
    gguf_architectures: &["qwen2moe"],
    model_types: &[("qwen2_moe", &["Qwen2MoeForCausalLM"])],
    files: FileTable { refused: &[Refusal::Set("use_sliding_window", "a sliding window in some layers")], ..FILES },
    tensors: &[LLAMA_LIKE_TENSORS, QWEN_EXPERTS, SHARED_EXPERT],
    fused: FUSED_EXPERTS,
    // As in transformers' `Qwen2MoeAttention`.
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::UnlessFlag("qkv_bias"))],
    experts: Some(ExpertTable {
        shared_feed_forward: Some(SHARED_WIDTH),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..QWEN_ROUTED
    }),
    head: HeadTable { tied: (false, "the default of transformers' Qwen2MoeConfig"), ..HEAD },
    name: "Qwen2 MoE",
    ..LLAMA_LIKE
};
