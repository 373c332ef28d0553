//! Qwen3, dense: Qwen3 and DeepSeek-R1-0528-Qwen3.

use super::{
    Bias, Evidence, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Role, SCORE, SCORE_TENSORS, TensorName, Variant, Window,
};

/// Norms of the query and key heads.
pub(super) const HEAD_NORMS: &[TensorName] = &[
    TensorName { role: Role::QNorm, gguf: "blk.{}.attn_q_norm", config: "model.layers.{}.self_attn.q_norm" },
    TensorName { role: Role::KNorm, gguf: "blk.{}.attn_k_norm", config: "model.layers.{}.self_attn.k_norm" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen3",
    gguf_architectures: &["qwen3"],
    model_types: &[("qwen3", &["Qwen3ForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, SCORE_TENSORS],
    classifier: Some(SCORE),
    // transformers `Qwen3Attention`: one flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    window: Window::Flagged {
        flag: "use_sliding_window",
        from: Some(("max_window_layers", 28)),
        config_default: 4096,
        source: "the default of transformers' Qwen3Config",
    },
    default_tied: (false, "the default of transformers' Qwen3Config"),
    variants: &[Variant {
        name: "DeepSeek-R1-0528-Qwen3",
        any: &[&[Evidence::Template("<｜User｜>")], &[Evidence::EosText("<｜end▁of▁sentence｜>")]],
    }],
    name: "Qwen3",
    ..LLAMA_LIKE
};
