//! Gemma 3, text only: norms around the sub-layers and of heads, windows in five of six layers with a rotary base of their own.

use super::gemma2::{LOGIT_CAP, NORMS, SCORE_SCALE};
use super::*;

pub(super) const SIZES: &[(&str, f64)] = &[
    ("num_attention_heads", 8.0),
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("vocab_size", 262_208.0),
    ("max_position_embeddings", 131_072.0),
    ("rms_norm_eps", 1e-6),
];

const CONFIG: &str = "the default of transformers' Gemma3TextConfig";

pub(super) const FAMILY: Family = Family {
    id: "gemma3",
    gguf_architectures: &["gemma3"],
    model_types: &[("gemma3_text", &["Gemma3ForCausalLM"])],
    wrappers: &[("Gemma3ForConditionalGeneration", "gemma3")],
    files: FileTable {
        // Published files leave out values that are defaults of transformers' Gemma3TextConfig.
        defaults: &[SIZES],
        defaults_source: CONFIG,
        ..gemma2::FAMILY.files
    },
    tensors: &[NORMS, LLAMA_LIKE_TENSORS, HEAD_NORMS],
    window: Window::Pattern(WindowPattern {
        full_every: 6,
        config_key: "sliding_window_pattern",
        source: "the default of transformers' Gemma3TextConfig and of llama.cpp",
        model_types: &["gemma3_text"],
        ..PATTERN
    }),
    block: BlockTable {
        factors: &[SCORE_SCALE, LOGIT_CAP],
        gguf_score_scale: &[(62, "Gemma 3 27B, as in llama.cpp")],
        ..gemma2::FAMILY.block
    },
    rope: RopeTable {
        theta: Some((1_000_000.0, CONFIG)),
        window: Some(WindowRope {
            key: Key { gguf: ".rope.freq_base_swa", config: "rope_local_base_freq" },
            default_theta: Some((10_000.0, "the default of transformers' Gemma3TextConfig and of llama.cpp")),
        }),
        ..gemma2::FAMILY.rope
    },
    head: HeadTable {
        tied: (true, CONFIG),
        // `mm_tokens_per_image` of all published models.
        images: Some(ImageRows::BothSides { most: 256 }),
        ..gemma2::FAMILY.head
    },
    name: "Gemma 3",
    ..gemma2::FAMILY
};
