//! Gemma 2: norms around the sub-layers, capped scores and logits, a window in every other layer.

use super::{
    Bias, EmbeddingScale, Factor, FactorOf, Family, GgufScoreScale, Key, LLAMA_LIKE, NormKind, Role, TensorName, Window,
};
use crate::block::Activation;

#[rustfmt::skip]
pub(super) const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,           gguf: "token_embd",                  config: "model.embed_tokens" },
    TensorName { role: Role::FinalNorm,           gguf: "output_norm",                 config: "model.norm" },
    TensorName { role: Role::Head,                gguf: "output",                      config: "lm_head" },
    TensorName { role: Role::AttentionNorm,       gguf: "blk.{}.attn_norm",            config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::Q,                   gguf: "blk.{}.attn_q",               config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,                   gguf: "blk.{}.attn_k",               config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,                   gguf: "blk.{}.attn_v",               config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,                   gguf: "blk.{}.attn_output",          config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm",  config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::MlpNorm,             gguf: "blk.{}.ffn_norm",             config: "model.layers.{}.pre_feedforward_layernorm" },
    TensorName { role: Role::Gate,                gguf: "blk.{}.ffn_gate",             config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,                  gguf: "blk.{}.ffn_up",               config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,                gguf: "blk.{}.ffn_down",             config: "model.layers.{}.mlp.down_proj" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",        config: "model.layers.{}.post_feedforward_layernorm" },
];

/// Of models whose files do not say it: the default of transformers' Gemma2Config and Gemma3TextConfig.
pub(super) const SCORE_SCALE: Factor = Factor {
    of: FactorOf::ScoresByRoot,
    key: Key { gguf: "", config: "query_pre_attn_scalar" },
    gguf_default: None,
    config_default: Some((256.0, "the default of transformers' config of this family")),
};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "gemma2",
    gguf_architectures: &["gemma2"],
    model_types: &[("gemma2", &["Gemma2ForCausalLM"])],
    tensors: &[TENSORS],
    // One flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    norm: NormKind::RmsFromOne,
    activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh"]),
    factors: &[
        SCORE_SCALE,
        Factor {
            of: FactorOf::ScoreCap,
            key: Key { gguf: ".attn_logit_softcapping", config: "attn_logit_softcapping" },
            gguf_default: Some((50.0, "the default of llama.cpp")),
            config_default: Some((50.0, "the default of transformers' Gemma2Config")),
        },
        Factor {
            of: FactorOf::LogitCap,
            key: Key { gguf: ".final_logit_softcapping", config: "final_logit_softcapping" },
            gguf_default: Some((30.0, "the default of llama.cpp")),
            config_default: Some((30.0, "the default of transformers' Gemma2Config")),
        },
    ],
    embedding_scale: EmbeddingScale::RootOfWidth,
    gguf_score_scale: &[GgufScoreScale { layers: 46, source: "Gemma 2 27B, as in llama.cpp" }],
    window: Window::Pattern {
        full_every: 2,
        config_default: 4096,
        gguf_default: 4096,
        source: "the default of transformers' Gemma2Config and of llama.cpp",
        model_types: &["gemma2"],
    },
    refused_flags: &[("use_bidirectional_attention", "attention to later positions")],
    default_theta: Some((10_000.0, "the default of transformers' Gemma2Config and of llama.cpp")),
    default_tied: (true, "the default of transformers' Gemma2Config"),
    name: "Gemma 2",
    ..LLAMA_LIKE
};
