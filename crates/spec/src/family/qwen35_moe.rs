//! Qwen3.5 and Qwen3.6 with experts, text only: Qwen3.5-35B-A3B, Qwen3.6-35B-A3B, Qwen3.5-122B-A10B.

use super::qwen2_moe::{SHARED_EXPERT, SHARED_WIDTH};
use super::qwen35::{DELTA_NET, PREDICTOR};
use super::*;

const CONFIG: &str = "the default of transformers' Qwen3_5MoeTextConfig";

pub(super) const FAMILY: Family = Family {
    id: "qwen35moe",
    gguf_architectures: &["qwen35moe"],
    model_types: &[("qwen3_5_moe_text", &["Qwen3_5MoeForCausalLM"])],
    wrappers: &[("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe")],
    files: FileTable {
        keys: Keys { feed_forward: EXPERT_WIDTH, ..KEYS },
        defaults: &[&[("num_key_value_heads", 2.0)], qwen35::SIZES],
        defaults_source: CONFIG,
        ..qwen35::FAMILY.files
    },
    tensors: &[DELTA_NET, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, SHARED_EXPERT, PREDICTOR],
    fused: FUSED_EXPERTS,
    experts: Some(ExpertTable {
        shared_feed_forward: Some(SHARED_WIDTH),
        // As in transformers' `Qwen3_5MoeTopKRouter`: softmax over all experts, then the chosen weights divided by their sum.
        normalized: Normalized::Fixed(true),
        ..QWEN_ROUTED
    }),
    rope: RopeTable { rotary_part: Some((0.25, CONFIG)), ..qwen35::FAMILY.rope },
    head: HeadTable { tied: (false, CONFIG), ..qwen35::FAMILY.head },
    name: "Qwen3.5 MoE",
    ..qwen35::FAMILY
};
