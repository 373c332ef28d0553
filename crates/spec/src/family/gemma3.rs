//! Gemma 3, its text: norms around the sub-layers and of heads, windows in five of six layers with a rotary base of their own.

use super::gemma2::{self, NORMS, SCORE_SCALE};
use super::qwen3::HEAD_NORMS;
use super::{Factor, FactorOf, Family, GgufScoreScale, Key, LLAMA_LIKE_TENSORS, Window, WindowRope};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "gemma3",
    gguf_architectures: &["gemma3"],
    model_types: &[("gemma3_text", &["Gemma3ForCausalLM"])],
    wrappers: &[("Gemma3ForConditionalGeneration", "gemma3")],
    // Published files leave out what transformers' Gemma3TextConfig has as a default.
    config_defaults: &[
        ("num_attention_heads", 8.0),
        ("num_key_value_heads", 4.0),
        ("head_dim", 256.0),
        ("vocab_size", 262_208.0),
        ("max_position_embeddings", 131_072.0),
        ("rms_norm_eps", 1e-6),
    ],
    config_defaults_source: "the default of transformers' Gemma3TextConfig",
    tensors: &[NORMS, LLAMA_LIKE_TENSORS, HEAD_NORMS],
    factors: &[
        SCORE_SCALE,
        Factor {
            of: FactorOf::LogitCap,
            key: Key { gguf: ".final_logit_softcapping", config: "final_logit_softcapping" },
            gguf_default: None,
            config_default: None,
        },
    ],
    gguf_score_scale: &[GgufScoreScale { layers: 62, source: "Gemma 3 27B, as in llama.cpp" }],
    window: Window::Pattern {
        full_every: 6,
        config_key: "sliding_window_pattern",
        config_default: 4096,
        gguf_default: 0,
        source: "the default of transformers' Gemma3TextConfig and of llama.cpp",
        model_types: &["gemma3_text"],
        last_is_full: false,
        first_is_full: false,
    },
    window_rope: Some(WindowRope {
        key: Key { gguf: ".rope.freq_base_swa", config: "rope_local_base_freq" },
        default_theta: Some((10_000.0, "the default of transformers' Gemma3TextConfig and of llama.cpp")),
    }),
    default_theta: Some((1_000_000.0, "the default of transformers' Gemma3TextConfig")),
    default_tied: (true, "the default of transformers' Gemma3TextConfig"),
    name: "Gemma 3",
    ..gemma2::FAMILY
};
