//! OLMo 2 and OLMo 3: norms behind the sub-layers, and over all heads of queries and keys; in OLMo 3 windows.

use super::{Bias, Evidence, Family, Key, LLAMA_LIKE, Role, TensorName, Variant, Window, WindowRope};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,           gguf: "token_embd",                  config: "model.embed_tokens" },
    TensorName { role: Role::FinalNorm,           gguf: "output_norm",                 config: "model.norm" },
    TensorName { role: Role::Head,                gguf: "output",                      config: "lm_head" },
    TensorName { role: Role::Q,                   gguf: "blk.{}.attn_q",               config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,                   gguf: "blk.{}.attn_k",               config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,                   gguf: "blk.{}.attn_v",               config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::QNorm,               gguf: "blk.{}.attn_q_norm",          config: "model.layers.{}.self_attn.q_norm" },
    TensorName { role: Role::KNorm,               gguf: "blk.{}.attn_k_norm",          config: "model.layers.{}.self_attn.k_norm" },
    TensorName { role: Role::O,                   gguf: "blk.{}.attn_output",          config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm",  config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Gate,                gguf: "blk.{}.ffn_gate",             config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,                  gguf: "blk.{}.ffn_up",               config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,                gguf: "blk.{}.ffn_down",             config: "model.layers.{}.mlp.down_proj" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",        config: "model.layers.{}.post_feedforward_layernorm" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "olmo2",
    gguf_architectures: &["olmo2"],
    model_types: &[("olmo2", &["Olmo2ForCausalLM"]), ("olmo3", &["Olmo3ForCausalLM"])],
    tensors: &[TENSORS],
    // transformers `Olmo2Attention`: one flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    whole_head_norms: true,
    window: Window::Pattern {
        full_every: 4,
        config_key: "",
        config_default: 4096,
        gguf_default: 0,
        source: "the default of transformers' Olmo3Config and of llama.cpp",
        model_types: &["olmo3"],
        last_is_full: false,
        first_is_full: false,
    },
    window_rope: Some(WindowRope { key: Key { gguf: ".rope.freq_base_swa", config: "" }, default_theta: None }),
    // The defaults of transformers' Olmo2Config and Olmo3Config differ.
    default_theta: None,
    default_tied: (false, "the default of transformers' Olmo2Config and Olmo3Config"),
    variants: &[Variant { name: "OLMo 3", any: &[&[Evidence::Windowed]] }],
    name: "OLMo 2",
    ..LLAMA_LIKE
};
