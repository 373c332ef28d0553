//! Spark 2.5: gates of heads, GELU with a gate, windows in most layers with a rotation of their own. A table of GGUF alone:
//! transformers has no such model.

use super::*;

#[rustfmt::skip]
const GATE: &[TensorName] = &[
    TensorName { role: Role::AttentionGate, gguf: "blk.{}.attn_gate", config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "spark2_5",
    gguf_architectures: &["spark2_5"],
    files: FileTable {
        refused: &[
            Refusal::AbsentGguf(".attention.sliding_window"),
            Refusal::AbsentGguf(".attention.sliding_window_pattern"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, GATE],
    fused: &[QKV],
    window: Window::Pattern(PATTERN),
    block: BlockTable {
        activation: (Activation::GeGlu { gate: () }, &[]),
        attention_gate: Some(GateWidth::Head),
        sizes_by_layer: Some(""),
        ..BLOCK
    },
    rope: RopeTable {
        rotary_part: Some((1.0, "the default of llama.cpp")),
        window: Some(WindowRope { key: Key::gguf(".rope.freq_base_swa"), default_theta: None }),
        ..ROPE
    },
    name: "Spark 2.5",
    ..LLAMA_LIKE
};
