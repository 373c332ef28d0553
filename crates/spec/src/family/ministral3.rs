//! Ministral 3: Llama's block with queries that grow beyond the original context.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "ministral3",
    gguf_architectures: &["mistral3"],
    model_types: &[("ministral3", &["Ministral3ForCausalLM"])],
    wrappers: &[("Mistral3ForConditionalGeneration", "mistral3")],
    window: Window::Honoured,
    rope: RopeTable {
        theta: None,
        query_scale: Some(QueryScaling::Rotated(Key {
            gguf: ".attention.temperature_scale",
            config: "llama_4_scaling_beta",
        })),
        unsaid_scaling: Some("transformers' Ministral3Config has a YaRN of its own"),
        ..PERMUTED
    },
    head: HeadTable {
        tied: (false, "the default of transformers' Ministral3Config"),
        images: Some(ImageRows::Causal),
        ..HEAD
    },
    name: "Ministral 3",
    ..LLAMA_LIKE
};
