//! MiniCPM3: latent attention with halves rotated, and multipliers of embeddings, residuals and logits.

use super::*;

const CONFIG: &str = "the default of transformers' MiniCPM3Config";
const LLAMA_CPP: &str = "llama.cpp";

/// GGUF files have no keys for them.
#[rustfmt::skip]
pub(super) const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Embedding, key: Key::config("scale_emb"), gguf_default: Some((12.0, LLAMA_CPP)), config_default: Some((12.0, CONFIG)) },
    Factor { of: FactorOf::ResidualByRootOfLayers, key: Key::config("scale_depth"), gguf_default: Some((1.4, LLAMA_CPP)), config_default: Some((1.4, CONFIG)) },
    Factor { of: FactorOf::LogitWidth, key: Key::config("dim_model_base"), gguf_default: Some((256.0, LLAMA_CPP)), config_default: Some((256.0, CONFIG)) },
];

pub(super) const FAMILY: Family = Family {
    id: "minicpm3",
    gguf_architectures: &["minicpm3"],
    model_types: &[("minicpm3", &["MiniCPM3ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 32_768.0),
            ("q_lora_rank", 768.0),
            ("kv_lora_rank", 256.0),
            ("qk_nope_head_dim", 64.0),
            ("qk_rope_head_dim", 32.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, deepseek2::LATENTS],
    biases: &[deepseek2::BIAS, MLP_BIAS],
    block: BlockTable { factors: FACTORS, latent_eps: deepseek2::FAMILY.block.latent_eps, ..BLOCK },
    rope: RopeTable { scores_by_magnitude: true, gguf_original_is_context: true, ..ROPE },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "MiniCPM3",
    ..LLAMA_LIKE
};
