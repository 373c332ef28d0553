//! Qwen3, dense: Qwen3 and DeepSeek-R1-0528-Qwen3.

use super::*;

pub(super) const HEAD_NORMS: &[TensorName] = &[
    TensorName { role: Role::QNorm, gguf: "blk.{}.attn_q_norm", config: "model.layers.{}.self_attn.q_norm" },
    TensorName { role: Role::KNorm, gguf: "blk.{}.attn_k_norm", config: "model.layers.{}.self_attn.k_norm" },
];

pub(super) const FAMILY: Family = Family {
    id: "qwen3",
    gguf_architectures: &["qwen3"],
    model_types: &[("qwen3", &["Qwen3ForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, SCORE_TENSORS],
    biases: &[ATTENTION_BIAS],
    window: Window::Flagged { flag: FLAGGED, from: Some(28), source: "the default of transformers' Qwen3Config" },
    head: HeadTable {
        encoder: Encoder::UnlessCausal,
        tied: (false, "the default of transformers' Qwen3Config"),
        classifier: Some(SCORE),
        ..HEAD
    },
    variants: &[Variant {
        name: "DeepSeek-R1-0528-Qwen3",
        any: &[&[Template("<｜User｜>")], &[EosText("<｜end▁of▁sentence｜>")]],
    }],
    name: "Qwen3",
    ..LLAMA_LIKE
};
