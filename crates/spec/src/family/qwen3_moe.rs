//! Qwen3 with experts: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "qwen3moe",
    gguf_architectures: &["qwen3moe"],
    model_types: &[("qwen3_moe", &["Qwen3MoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS],
    window: Window::Flagged { flag: FLAGGED, from: None, source: "the default of transformers' Qwen3MoeConfig" },
    experts: Some(ExpertTable {
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: true },
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..QWEN_ROUTED
    }),
    head: HeadTable { tied: (false, "the default of transformers' Qwen3MoeConfig"), ..HEAD },
    name: "Qwen3 MoE",
    ..LLAMA_LIKE
};
