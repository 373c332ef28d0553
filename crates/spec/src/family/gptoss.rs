//! gpt-oss: experts with biases and clamped gates, sinks of attention, a window in every other layer.

use super::experts::ROUTED;
use super::{
    Bias, Evidence, ExpertTable, Factor, FactorOf, Family, Key, Keys, LLAMA_LIKE, LLAMA_LIKE_KEYS, LLAMA_LIKE_TENSORS,
    Role, TensorName, Variant, Window,
};
use crate::block::{Activation, RouterScore};

/// Before Llama's names: its norm behind attention has another name in GGUF.
#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Sinks,      gguf: "blk.{}.attn_sinks",          config: "model.layers.{}.self_attn.sinks" },
    TensorName { role: Role::MlpNorm,    gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",        config: "model.layers.{}.mlp.router" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",       config: "model.layers.{}.mlp.experts.gate_up_proj" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",         config: "model.layers.{}.mlp.experts.gate_up_proj" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",       config: "model.layers.{}.mlp.experts.down_proj" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "gptoss",
    gguf_architectures: &["gpt-oss"],
    model_types: &[("gpt_oss", &["GptOssForCausalLM"])],
    keys: Keys {
        feed_forward: Key { gguf: ".expert_feed_forward_length", config: "intermediate_size" },
        ..LLAMA_LIKE_KEYS
    },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS],
    // transformers `GptOssAttention`: one flag covers q, k, v and o; router and experts are always biased.
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::UnlessFlag("attention_bias")),
        (&[Role::Router, Role::ExpertGate, Role::ExpertUp, Role::ExpertDown], Bias::Always),
    ],
    activation: (Activation::ClampedSwiGlu { gate: (), limit: 7.0, alpha: 1.702 }, &["silu"]),
    factors: &[
        Factor {
            of: FactorOf::GateLimit,
            key: Key { gguf: "", config: "swiglu_limit" },
            gguf_default: None,
            config_default: Some((7.0, "the default of transformers' GptOssConfig")),
        },
        Factor {
            of: FactorOf::GateAlpha,
            key: Key { gguf: "", config: "swiglu_alpha" },
            gguf_default: None,
            config_default: Some((1.702, "the default of transformers' GptOssConfig")),
        },
    ],
    experts: Some(ExpertTable { score: RouterScore::SoftmaxOfChosen, interleaved: true, ..ROUTED }),
    window: Window::Pattern {
        full_every: 2,
        last_is_full: false,
        first_is_full: false,
        config_key: "",
        config_default: 128,
        gguf_default: 0,
        source: "the default of transformers' GptOssConfig; every second in llama.cpp too",
        model_types: &["gpt_oss"],
    },
    gguf_needed_keys: &[".attention.sliding_window"],
    // No key of GGUF. llama.cpp rounds the ends, transformers does not, as every published config.json has it.
    gguf_yarn_truncate: false,
    unsaid_scaling: Some("transformers' GptOssConfig has a YaRN of its own"),
    default_theta: Some((150_000.0, "the default of transformers' GptOssConfig")),
    default_tied: (false, "the default of transformers' GptOssConfig"),
    variants: &[
        Variant { name: "gpt-oss-20b", any: &[&[Evidence::Layers(24), Evidence::Hidden(2880)]] },
        Variant { name: "gpt-oss-120b", any: &[&[Evidence::Layers(36), Evidence::Hidden(2880)]] },
    ],
    name: "gpt-oss",
    ..LLAMA_LIKE
};
