//! Qwen3, dense: Qwen3 and DeepSeek-R1-0528-Qwen3.

use super::{Bias, Evidence, Family, LLAMA_LIKE, Role, TensorName, Variant};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "model.embed_tokens" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "model.norm" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::QNorm,         gguf: "blk.{}.attn_q_norm",  config: "model.layers.{}.self_attn.q_norm" },
    TensorName { role: Role::KNorm,         gguf: "blk.{}.attn_k_norm",  config: "model.layers.{}.self_attn.k_norm" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",     config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "model.layers.{}.mlp.down_proj" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen3",
    gguf_architectures: &["qwen3"],
    model_types: &["qwen3"],
    classes: &["Qwen3ForCausalLM"],
    tensors: TENSORS,
    // transformers `Qwen3Attention`: one flag covers q, k, v and o.
    biases: &[
        (Role::Q, Bias::Flag("attention_bias")),
        (Role::K, Bias::Flag("attention_bias")),
        (Role::V, Bias::Flag("attention_bias")),
        (Role::O, Bias::Flag("attention_bias")),
    ],
    refused_flags: &[("use_sliding_window", "a sliding window in some layers")],
    default_tied: (false, "the default of transformers' Qwen3Config"),
    variants: &[Variant {
        name: "DeepSeek-R1-0528-Qwen3",
        any: &[&[Evidence::Template("<｜User｜>")], &[Evidence::EosText("<｜end▁of▁sentence｜>")]],
    }],
    name: "Qwen3",
    ..LLAMA_LIKE
};
