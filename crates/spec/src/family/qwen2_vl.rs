//! Qwen2-VL and Qwen2.5-VL without their towers: Qwen2. Positions of text are the same in all sections of the rotation.

use super::*;

const TEXT: &str = "the default of transformers' Qwen2VLTextConfig and Qwen2_5_VLTextConfig";

pub(super) const FAMILY: Family = Family {
    id: "qwen2vl",
    gguf_architectures: &["qwen2vl"],
    // The first files have the keys of the language model at the top level.
    model_types: &[
        ("qwen2_vl", &["Qwen2VLForConditionalGeneration"]),
        ("qwen2_vl_text", &[]),
        ("qwen2_5_vl", &["Qwen2_5_VLForConditionalGeneration"]),
        ("qwen2_5_vl_text", &[]),
    ],
    wrappers: &[("Qwen2VLForConditionalGeneration", "qwen2_vl"), ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")],
    window: Window::Flagged { flag: FLAGGED, from: Some(80), source: TEXT },
    rope: RopeTable {
        theta: Some((1_000_000.0, TEXT)),
        sections: Some((false, [16, 24, 24], "the default of transformers' Qwen2VLRotaryEmbedding")),
        aliases: &[("mrope", "default")],
        ..qwen2::FAMILY.rope
    },
    head: HeadTable {
        tied: (false, "the default of transformers' Qwen2VLConfig and Qwen2_5_VLConfig"),
        images: Some(ImageRows::Causal),
        ..qwen2::FAMILY.head
    },
    variants: &[Variant {
        name: "Qwen2.5-VL",
        any: &[
            &[ModelType("qwen2_5_vl")],
            &[ModelType("qwen2_5_vl_text")],
            &[Name("qwen2.5-vl")],
            &[Name("qwen2.5 vl")],
        ],
    }],
    name: "Qwen2-VL",
    ..qwen2::FAMILY
};
