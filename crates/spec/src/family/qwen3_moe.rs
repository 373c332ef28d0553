//! Qwen3 with experts: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder.

use super::experts::{EXPERT_WIDTH, FUSED_EXPERTS, QWEN_COUNT, QWEN_DENSE_LAYERS, QWEN_EXPERTS, ROUTED};
use super::qwen3::HEAD_NORMS;
use super::{Bias, ExpertTable, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Normalized, Role, Window};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen3moe",
    gguf_architectures: &["qwen3moe"],
    model_types: &[("qwen3_moe", &["Qwen3MoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    // transformers `Qwen3MoeAttention`: one flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    window: Window::Flagged {
        flag: "use_sliding_window",
        from: None,
        config_default: 4096,
        source: "the default of transformers' Qwen3MoeConfig",
    },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(EXPERT_WIDTH),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: true },
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..ROUTED
    }),
    default_tied: (false, "the default of transformers' Qwen3MoeConfig"),
    name: "Qwen3 MoE",
    ..LLAMA_LIKE
};
