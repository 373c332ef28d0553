//! gpt-oss: experts with biases and clamped gates, attention sinks, a window in every other layer.

use super::FactorOf::{GateAlpha, GateLimit};
use super::*;

/// Listed before Llama's names: the norm after attention has another name in GGUF.
#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Sinks,      gguf: "blk.{}.attn_sinks",          config: "model.layers.{}.self_attn.sinks" },
    TensorName { role: Role::MlpNorm,    gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",        config: "model.layers.{}.mlp.router" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",       config: "model.layers.{}.mlp.experts.gate_up_proj" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",         config: "model.layers.{}.mlp.experts.gate_up_proj" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",       config: "model.layers.{}.mlp.experts.down_proj" },
];

const CONFIG: &str = "the default of transformers' GptOssConfig";

pub(super) const FAMILY: Family = Family {
    id: "gptoss",
    gguf_architectures: &["gpt-oss"],
    model_types: &[("gpt_oss", &["GptOssForCausalLM"])],
    files: FileTable {
        keys: Keys { feed_forward: Key { gguf: EXPERT_WIDTH.gguf, ..KEYS.feed_forward }, ..KEYS },
        refused: &[Refusal::AbsentGguf(".attention.sliding_window")],
        ..FILES
    },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS],
    // In transformers' `GptOssAttention` one flag covers q, k, v and o; router and experts always have biases.
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::UnlessFlag("attention_bias")),
        (&[Role::Router, Role::ExpertGate, Role::ExpertUp, Role::ExpertDown], Bias::Always),
    ],
    window: Window::Pattern(WindowPattern {
        config_default: 128,
        source: "the default of transformers' GptOssConfig; every second in llama.cpp too",
        model_types: &["gpt_oss"],
        ..PATTERN
    }),
    block: BlockTable {
        activation: (Activation::ClampedSwiGlu { gate: (), limit: 7.0, alpha: 1.702 }, &["silu"]),
        factors: &[
            Factor { config_default: Some((7.0, CONFIG)), ..Factor::new(GateLimit, Key::config("swiglu_limit")) },
            Factor { config_default: Some((1.702, CONFIG)), ..Factor::new(GateAlpha, Key::config("swiglu_alpha")) },
        ],
        ..BLOCK
    },
    experts: Some(ExpertTable { score: RouterScore::SoftmaxOfChosen, interleaved: true, ..ROUTED }),
    rope: RopeTable {
        theta: Some((150_000.0, CONFIG)),
        unsaid_scaling: Some("transformers' GptOssConfig has a YaRN of its own"),
        // GGUF has no key for it. llama.cpp rounds the ends; transformers does not, as every published config.json asks.
        gguf_yarn_truncate: false,
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    variants: &[
        Variant { name: "gpt-oss-20b", any: &[&[Layers(24), Hidden(2880)]] },
        Variant { name: "gpt-oss-120b", any: &[&[Layers(36), Hidden(2880)]] },
    ],
    name: "gpt-oss",
    ..LLAMA_LIKE
};
