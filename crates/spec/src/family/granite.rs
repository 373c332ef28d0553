//! Granite, dense: Granite 3.0 to 3.3 and 4 of this architecture. Llama's block with factors.

use super::{Bias, Factor, FactorOf, Family, Key, LLAMA_LIKE, Role};
use crate::block::RopeLayout;

/// The default of transformers' GraniteConfig where `config.json` does not say otherwise.
const ONE: Option<(f64, &str)> = Some((1.0, "the default of transformers' GraniteConfig"));

/// Factors of all Granites.
#[rustfmt::skip]
pub(super) const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Embedding,    key: Key { gguf: ".embedding_scale", config: "embedding_multiplier" }, gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::Residual,     key: Key { gguf: ".residual_scale",  config: "residual_multiplier" },  gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::Scores,       key: Key { gguf: ".attention.scale", config: "attention_multiplier" }, gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::LogitDivisor, key: Key { gguf: ".logit_scale",     config: "logits_scaling" },       gguf_default: None, config_default: ONE },
];

/// Llama's, and the switch of the rotation that llama.cpp has in this architecture.
pub(super) const GGUF_FLAGS: &[(&str, &str)] =
    &[(".attention.causal", "attention to later positions"), (".rope.scaling.finetuned", "layers that do not rotate")];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "granite",
    gguf_architectures: &["granite"],
    model_types: &[("granite", &["GraniteForCausalLM"])],
    // transformers `GraniteAttention` and `GraniteMLP`.
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias")),
        (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias")),
    ],
    factors: FACTORS,
    gguf_needed_flags: GGUF_FLAGS,
    gguf_needed_keys: &[".logit_scale"],
    // As in Llama, the converter permutes the rows of q and k.
    gguf_rope: RopeLayout::Interleaved,
    default_theta: Some((10_000.0, "the default of transformers' GraniteConfig and of llama.cpp")),
    default_tied: (false, "the default of transformers' GraniteConfig"),
    name: "Granite",
    ..LLAMA_LIKE
};
