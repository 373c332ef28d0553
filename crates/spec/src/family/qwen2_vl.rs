//! Qwen2-VL and Qwen2.5-VL, their text: Qwen2. Positions of text are the same in all sections of the rotation.

use super::{Evidence, Family, Variant, Window, qwen2};

const TEXT: &str = "the default of transformers' Qwen2VLTextConfig and Qwen2_5_VLTextConfig";

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "qwen2vl",
    gguf_architectures: &["qwen2vl"],
    // The first files have the keys of the text at the top.
    model_types: &[
        ("qwen2_vl", &["Qwen2VLForConditionalGeneration"]),
        ("qwen2_vl_text", &[]),
        ("qwen2_5_vl", &["Qwen2_5_VLForConditionalGeneration"]),
        ("qwen2_5_vl_text", &[]),
    ],
    wrappers: &[("Qwen2VLForConditionalGeneration", "qwen2_vl"), ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")],
    window: Window::Flagged {
        flag: "use_sliding_window",
        from: Some(("max_window_layers", 80)),
        config_default: 4096,
        source: TEXT,
    },
    rope_aliases: &[("mrope", "default")],
    default_theta: Some((1_000_000.0, TEXT)),
    default_tied: (false, "the default of transformers' Qwen2VLConfig and Qwen2_5_VLConfig"),
    variants: &[Variant {
        name: "Qwen2.5-VL",
        any: &[
            &[Evidence::ModelType("qwen2_5_vl")],
            &[Evidence::ModelType("qwen2_5_vl_text")],
            &[Evidence::Name("qwen2.5-vl")],
            &[Evidence::Name("qwen2.5 vl")],
        ],
    }],
    name: "Qwen2-VL",
    ..qwen2::FAMILY
};
