//! Qwen3-VL with experts, text only: Qwen3 with experts, which published files have by inputs.

use super::*;

const TEXT: &str = "the default of transformers' Qwen3VLMoeTextConfig";

pub(super) const FAMILY: Family = Family {
    id: "qwen3vlmoe",
    gguf_architectures: &["qwen3vlmoe"],
    model_types: &[("qwen3_vl_moe_text", &[])],
    wrappers: &[("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe")],
    window: Window::Unused,
    experts: Some(ExpertTable {
        // As in transformers' `Qwen3VLMoeTextTopKRouter`, whatever `norm_topk_prob` says.
        normalized: Normalized::Fixed(true),
        by_inputs: ByInputs::Some,
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..QWEN_ROUTED
    }),
    rope: RopeTable { theta: Some((500_000.0, TEXT)), ..qwen3_vl::FAMILY.rope },
    head: HeadTable {
        tied: (false, "the default of transformers' Qwen3VLMoeConfig"),
        images: Some(ImageRows::Causal),
        ..HEAD
    },
    name: "Qwen3-VL MoE",
    ..qwen3_moe::FAMILY
};
