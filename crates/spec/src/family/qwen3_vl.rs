//! Qwen3-VL, text only: Qwen3. Positions of text are the same in all sections of the rotation.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "qwen3vl",
    gguf_architectures: &["qwen3vl"],
    model_types: &[("qwen3_vl_text", &[])],
    wrappers: &[("Qwen3VLForConditionalGeneration", "qwen3_vl")],
    window: Window::Unused,
    rope: RopeTable {
        theta: Some((500_000.0, "the default of transformers' Qwen3VLTextConfig")),
        ..qwen3::FAMILY.rope
    },
    head: HeadTable { tied: (false, "the default of transformers' Qwen3VLConfig"), ..qwen3::FAMILY.head },
    variants: &[],
    name: "Qwen3-VL",
    ..qwen3::FAMILY
};
