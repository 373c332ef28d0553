//! LFM3: as LFM2 with longer convolutions, windows in half of the layers of attention, gates of heads, and norms around the
//! sub-layers.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::O,                   gguf: "", config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::AttentionGate,       gguf: "", config: "model.layers.{}.self_attn.gate_proj" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "", config: "model.layers.{}.post_operator_norm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "", config: "model.layers.{}.post_ffn_norm" },
];

const CONFIG: &str = "the default of transformers' Lfm3Config";

pub(super) const FAMILY: Family = Family {
    id: "lfm3",
    gguf_architectures: &[],
    model_types: &[("lfm3", &["Lfm3ForCausalLM"])],
    files: FileTable {
        defaults: &[&[("head_dim", 128.0), ("conv_L_cache", 7.0), ("norm_eps", 1e-5)]],
        defaults_source: CONFIG,
        adjusted_width: None,
        refused: &[
            Refusal::Unset(Key::config("use_sandwich_norm"), "norms in front of the sub-layers only"),
            Refusal::Unset(Key::config("use_attention_gate"), "attention without gates"),
        ],
        ..lfm2::FAMILY.files
    },
    tensors: &[TENSORS, EMBEDDING_TO_VALUES, HEAD_NORMS, lfm2::TENSORS],
    biases: &[ATTENTION_BIAS, lfm2::CONV_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 0,
        config_default: 256,
        source: CONFIG,
        model_types: &["lfm3"],
        ..PATTERN
    }),
    block: BlockTable {
        attention_gate: Some(GateWidth::Head),
        states: Some(StateTable {
            attention: &["sliding_attention", "full_attention"],
            layers: StateLayers::All("a model whose layers are not listed"),
            ..lfm2::STATES
        }),
        ..BLOCK
    },
    rope: RopeTable {
        theta: None,
        window: Some(WindowRope { key: Key::gguf(""), default_theta: Some((10_000.0, CONFIG)) }),
        unsaid_scaling: Some("transformers' Lfm3Config has a rotation of its own"),
        ..ROPE
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "LFM3",
    ..LLAMA_LIKE
};
