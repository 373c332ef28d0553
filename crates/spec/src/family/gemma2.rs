//! Gemma 2: norms around the sub-layers, capped scores and logits, a window in every other layer.

use super::{
    Bias, EmbeddingScale, Factor, FactorOf, Family, GgufScoreScale, Key, LLAMA_LIKE, LLAMA_LIKE_TENSORS, NormKind,
    Role, TensorName, Window,
};
use crate::block::Activation;

/// Before Llama's names: its norm in front of the feed-forward layer has the name of this one behind attention.
#[rustfmt::skip]
pub(super) const NORMS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::MlpNorm,             gguf: "blk.{}.ffn_norm",            config: "model.layers.{}.pre_feedforward_layernorm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",       config: "model.layers.{}.post_feedforward_layernorm" },
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
    tensors: &[NORMS, LLAMA_LIKE_TENSORS],
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
        config_key: "",
        config_default: 4096,
        gguf_default: 4096,
        source: "the default of transformers' Gemma2Config and of llama.cpp",
        model_types: &["gemma2"],
        last_is_full: false,
        first_is_full: false,
    },
    refused_flags: &[("use_bidirectional_attention", "attention to later positions")],
    default_theta: Some((10_000.0, "the default of transformers' Gemma2Config and of llama.cpp")),
    default_tied: (true, "the default of transformers' Gemma2Config"),
    name: "Gemma 2",
    ..LLAMA_LIKE
};
