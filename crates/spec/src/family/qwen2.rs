//! Qwen2: Qwen2 and Qwen2.5, DeepSeek-R1-Distill-Qwen.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "qwen2",
    gguf_architectures: &["qwen2"],
    model_types: &[("qwen2", &["Qwen2ForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, SCORE_TENSORS],
    // transformers' `Qwen2Attention` has no flag: q, k and v always have biases, the output projection never.
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::Always)],
    window: Window::Flagged { flag: FLAGGED, from: Some(28), source: "the default of transformers' Qwen2Config" },
    head: HeadTable {
        encoder: Encoder::UnlessCausal,
        tied: (false, "the default of transformers' Qwen2Config"),
        classifier: Some(SCORE),
        ..HEAD
    },
    variants: &[
        Variant {
            name: "DeepSeek-R1-Distill-Qwen",
            any: &[&[Template("<｜User｜>")], &[Pre("deepseek-r1-qwen")], &[EosText("<｜end▁of▁sentence｜>")]],
        },
        Variant {
            name: "Qwen2.5",
            any: &[&[Template("You are Qwen, created by Alibaba Cloud")], &[Name("qwen2.5")], &[Name("qwen 2.5")]],
        },
    ],
    name: "Qwen2",
    ..LLAMA_LIKE
};
