//! Llama 4, text only: Scout, Maverick; and without experts, MobileLLM-R1. Layers that rotate attend within chunks and norm heads
//! without weights; in the others queries grow with their position. An expert's weight multiplies its input.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Gate,       gguf: "blk.{}.ffn_gate",       config: "model.layers.{}.feed_forward.gate_proj" },
    TensorName { role: Role::Up,         gguf: "blk.{}.ffn_up",         config: "model.layers.{}.feed_forward.up_proj" },
    TensorName { role: Role::Down,       gguf: "blk.{}.ffn_down",       config: "model.layers.{}.feed_forward.down_proj" },
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",   config: "model.layers.{}.feed_forward.router" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",  config: "model.layers.{}.feed_forward.experts.{expert}.gate_proj" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",    config: "model.layers.{}.feed_forward.experts.{expert}.up_proj" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",  config: "model.layers.{}.feed_forward.experts.{expert}.down_proj" },
    TensorName { role: Role::SharedGate, gguf: "blk.{}.ffn_gate_shexp", config: "model.layers.{}.feed_forward.shared_expert.gate_proj" },
    TensorName { role: Role::SharedUp,   gguf: "blk.{}.ffn_up_shexp",   config: "model.layers.{}.feed_forward.shared_expert.up_proj" },
    TensorName { role: Role::SharedDown, gguf: "blk.{}.ffn_down_shexp", config: "model.layers.{}.feed_forward.shared_expert.down_proj" },
];

const CONFIG: &str = "the default of transformers' Llama4TextConfig, and always in llama.cpp";

/// Width of an expert, and of the shared one.
const WIDTH: Key = Key { config: "intermediate_size", ..EXPERT_WIDTH };

pub(super) const FAMILY: Family = Family {
    id: "llama4",
    gguf_architectures: &["llama4"],
    model_types: &[("llama4_text", &["Llama4ForCausalLM"])],
    wrappers: &[("Llama4ForConditionalGeneration", "llama4")],
    files: FileTable {
        keys: Keys { feed_forward: Key { config: "intermediate_size_mlp", ..KEYS.feed_forward }, ..KEYS },
        defaults: &[&[
            ("max_position_embeddings", 131_072.0),
            ("head_dim", 128.0),
            ("num_key_value_heads", 8.0),
            ("num_experts_per_tok", 1.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[Refusal::Unless(Key::gguf(".attention.sliding_window_pattern"), &["4"], "chunks in other layers")],
        ..FILES
    },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS],
    fused: &[
        FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "model.layers.{}.feed_forward.experts.gate_up_proj"),
        FusedName::new(&[Role::ExpertDown], "", "model.layers.{}.feed_forward.experts.down_proj"),
    ],
    biases: &[ATTENTION_BIAS],
    window: Window::Chunks { key: "attention_chunk_size", size: 8192, source: CONFIG },
    block: BlockTable { norms_rotated: true, plain_head_norms: Some(("use_qk_norm", 128)), ..BLOCK },
    experts: Some(ExpertTable {
        optional: true,
        feed_forward: Some(WIDTH),
        shared_feed_forward: Some(WIDTH),
        score: RouterScore::Sigmoid,
        by_inputs: ByInputs::All,
        input: ExpertInput::Weighed,
        dense_layers: Some(DenseLayers {
            step: Key { gguf: ".interleave_moe_layer_step", config: "interleave_moe_layer_step" },
            others: "moe_layers",
            ..DENSE
        }),
        ..ROUTED
    }),
    rope: RopeTable {
        theta: Some((500_000.0, CONFIG)),
        unrotated: Some(Unrotated::Listed {
            list: "no_rope_layers",
            interval: "no_rope_layer_interval",
            default_interval: (4, CONFIG),
        }),
        query_scale: Some(QueryScaling::Unrotated {
            flag: "attn_temperature_tuning",
            beta: ("attn_scale", 0.1),
            period: ("floor_scale", 8192),
            source: CONFIG,
        }),
        ..INTERLEAVED
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    variants: &[
        Variant { name: "Llama 4 Scout", any: &[&[Layers(48), Hidden(5120), RopeScaled]] },
        Variant { name: "Llama 4 Maverick", any: &[&[Layers(48), Hidden(5120)]] },
    ],
    name: "Llama 4",
};
