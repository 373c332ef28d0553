//! Qwen3-VL without its tower: Qwen3. Positions of text are the same in all sections of the rotation.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "qwen3vl",
    gguf_architectures: &["qwen3vl"],
    model_types: &[("qwen3_vl_text", &[])],
    wrappers: &[("Qwen3VLForConditionalGeneration", "qwen3_vl")],
    window: Window::Unused,
    rope: RopeTable {
        theta: Some((500_000.0, "the default of transformers' Qwen3VLTextConfig")),
        sections: Some((true, [24, 20, 20], "the default of transformers' Qwen3VLTextRotaryEmbedding")),
        ..qwen3::FAMILY.rope
    },
    head: HeadTable {
        tied: (false, "the default of transformers' Qwen3VLConfig"),
        images: Some(ImageRows::Causal),
        ..qwen3::FAMILY.head
    },
    variants: &[],
    name: "Qwen3-VL",
    ..qwen3::FAMILY
};
