//! Qwen2: Qwen2 and Qwen2.5, DeepSeek-R1-Distill-Qwen.

use super::{Bias, Evidence, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Role, SCORE, SCORE_TENSORS, Variant, Window};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen2",
    gguf_architectures: &["qwen2"],
    model_types: &[("qwen2", &["Qwen2ForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, SCORE_TENSORS],
    classifier: Some(SCORE),
    // transformers `Qwen2Attention`: no flag, always biased; the output projection never.
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::Always)],
    window: Window::Flagged {
        flag: "use_sliding_window",
        from: Some(("max_window_layers", 28)),
        config_default: 4096,
        source: "the default of transformers' Qwen2Config",
    },
    default_tied: (false, "the default of transformers' Qwen2Config"),
    variants: &[
        Variant {
            name: "DeepSeek-R1-Distill-Qwen",
            any: &[
                &[Evidence::Template("<｜User｜>")],
                &[Evidence::Pre("deepseek-r1-qwen")],
                &[Evidence::EosText("<｜end▁of▁sentence｜>")],
            ],
        },
        Variant {
            name: "Qwen2.5",
            any: &[
                &[Evidence::Template("You are Qwen, created by Alibaba Cloud")],
                &[Evidence::Name("qwen2.5")],
                &[Evidence::Name("qwen 2.5")],
            ],
        },
    ],
    name: "Qwen2",
    ..LLAMA_LIKE
};
