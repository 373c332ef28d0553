//! OLMo 2 and OLMo 3: norms after the sub-layers, and over all heads of queries and keys; in OLMo 3 windows.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,           gguf: "token_embd",                  config: "model.embed_tokens" },
    TensorName { role: Role::FinalNorm,           gguf: "output_norm",                 config: "model.norm" },
    TensorName { role: Role::Head,                gguf: "output",                      config: "lm_head" },
    TensorName { role: Role::Q,                   gguf: "blk.{}.attn_q",               config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,                   gguf: "blk.{}.attn_k",               config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,                   gguf: "blk.{}.attn_v",               config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,                   gguf: "blk.{}.attn_output",          config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm",  config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Gate,                gguf: "blk.{}.ffn_gate",             config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,                  gguf: "blk.{}.ffn_up",               config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,                gguf: "blk.{}.ffn_down",             config: "model.layers.{}.mlp.down_proj" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",        config: "model.layers.{}.post_feedforward_layernorm" },
];

pub(super) const FAMILY: Family = Family {
    id: "olmo2",
    gguf_architectures: &["olmo2"],
    model_types: &[("olmo2", &["Olmo2ForCausalLM"]), ("olmo3", &["Olmo3ForCausalLM"])],
    tensors: &[TENSORS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        source: "the default of transformers' Olmo3Config and of llama.cpp",
        model_types: &["olmo3"],
        ..PATTERN
    }),
    block: BlockTable { whole_head_norms: true, ..BLOCK },
    rope: RopeTable {
        // The defaults of transformers' Olmo2Config and Olmo3Config differ.
        theta: None,
        window: Some(WindowRope { key: Key { gguf: ".rope.freq_base_swa", config: "" }, default_theta: None }),
        ..ROPE
    },
    head: HeadTable { tied: (false, "the default of transformers' Olmo2Config and Olmo3Config"), ..HEAD },
    variants: &[Variant { name: "OLMo 3", any: &[&[Evidence::Windowed]] }],
    name: "OLMo 2",
    ..LLAMA_LIKE
};
