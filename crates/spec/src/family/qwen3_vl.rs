//! Qwen3-VL, its text: Qwen3. Positions of text are the same in all sections of the rotation.

use super::{Family, Window, qwen3};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen3vl",
    gguf_architectures: &["qwen3vl"],
    model_types: &[("qwen3_vl_text", &[])],
    wrappers: &[("Qwen3VLForConditionalGeneration", "qwen3_vl")],
    window: Window::Unused,
    default_theta: Some((500_000.0, "the default of transformers' Qwen3VLTextConfig")),
    default_tied: (false, "the default of transformers' Qwen3VLConfig"),
    variants: &[],
    name: "Qwen3-VL",
    ..qwen3::FAMILY
};
