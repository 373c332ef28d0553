//! The text of Gemma 4 12B: as Gemma 4 without experts and embeddings of layers. In GGUF it is a Gemma 4.

use super::*;

const CONFIG: &str = "the default of transformers' Gemma4UnifiedTextConfig";

pub(super) const FAMILY: Family = Family {
    id: "gemma4unified",
    gguf_architectures: &[],
    model_types: &[("gemma4_unified_text", &["Gemma4UnifiedForCausalLM"])],
    wrappers: &[("Gemma4UnifiedForConditionalGeneration", "gemma4_unified")],
    files: FileTable {
        defaults_source: CONFIG,
        refused: &[
            gemma4::BIDIRECTIONAL,
            Refusal::Set("hidden_size_per_layer_input", "embeddings of layers"),
            Refusal::Set("enable_moe_block", "experts"),
        ],
        ..gemma4::FAMILY.files
    },
    window: Window::Pattern(WindowPattern {
        full_every: 6,
        config_default: 1024,
        source: CONFIG,
        model_types: &["gemma4_unified_text"],
        last_is_full: true,
        ..PATTERN
    }),
    block: BlockTable { layer_embedding: None, ..gemma4::FAMILY.block },
    experts: None,
    ..gemma4::FAMILY
};
