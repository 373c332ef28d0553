//! Qwen3.5 and Qwen3.6 with experts, their text: Qwen3.5-35B-A3B, Qwen3.6-35B-A3B, Qwen3.5-122B-A10B.

use super::experts::{EXPERT_WIDTH, FUSED_EXPERTS, QWEN_COUNT, QWEN_EXPERTS, ROUTED};
use super::qwen2_moe::{SHARED_EXPERT, SHARED_WIDTH};
use super::qwen3::HEAD_NORMS;
use super::qwen35::{self, DELTA_NET, PREDICTOR};
use super::{ExpertTable, Family, LLAMA_LIKE_TENSORS, Normalized};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen35moe",
    gguf_architectures: &["qwen35moe"],
    model_types: &[("qwen3_5_moe_text", &["Qwen3_5MoeForCausalLM"])],
    wrappers: &[("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe")],
    config_defaults: &[
        ("num_attention_heads", 16.0),
        ("num_key_value_heads", 2.0),
        ("head_dim", 256.0),
        ("linear_conv_kernel_dim", 4.0),
        ("linear_key_head_dim", 128.0),
        ("linear_value_head_dim", 128.0),
        ("linear_num_key_heads", 16.0),
        ("linear_num_value_heads", 32.0),
        ("rms_norm_eps", 1e-6),
    ],
    config_defaults_source: "the default of transformers' Qwen3_5MoeTextConfig",
    tensors: &[DELTA_NET, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, SHARED_EXPERT, PREDICTOR],
    fused: FUSED_EXPERTS,
    keys: super::Keys { feed_forward: EXPERT_WIDTH, ..super::LLAMA_LIKE_KEYS },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(EXPERT_WIDTH),
        shared_feed_forward: Some(SHARED_WIDTH),
        // transformers `Qwen3_5MoeTopKRouter`: the softmax over all, then the chosen divided by their sum.
        normalized: Normalized::Fixed(true),
        ..ROUTED
    }),
    rotary_part: Some((0.25, "the default of transformers' Qwen3_5MoeTextConfig")),
    default_tied: (false, "the default of transformers' Qwen3_5MoeTextConfig"),
    name: "Qwen3.5 MoE",
    ..qwen35::FAMILY
};
