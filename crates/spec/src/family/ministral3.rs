//! Ministral 3: Llama's block with queries that grow beyond the original context.

use super::{Family, Key, LLAMA_LIKE, Window};
use crate::block::RopeLayout;

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "ministral3",
    gguf_architectures: &["mistral3"],
    model_types: &[("ministral3", &["Ministral3ForCausalLM"])],
    wrappers: &[("Mistral3ForConditionalGeneration", "mistral3")],
    window: Window::Honoured,
    query_scale: Some(Key { gguf: ".attention.temperature_scale", config: "llama_4_scaling_beta" }),
    // As in Llama, the converter permutes the rows of q and k.
    gguf_rope: RopeLayout::Interleaved,
    unsaid_scaling: Some("transformers' Ministral3Config has a YaRN of its own"),
    default_theta: None,
    default_tied: (false, "the default of transformers' Ministral3Config"),
    name: "Ministral 3",
    ..LLAMA_LIKE
};
