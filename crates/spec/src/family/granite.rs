//! Granite, dense: Granite 3.0 to 3.3, and the Granite 4 models of this architecture. Llama's block with factors.

use super::*;

/// The default of transformers' GraniteConfig where `config.json` does not say otherwise.
const ONE: Option<(f64, &str)> = Some((1.0, "the default of transformers' GraniteConfig"));

#[rustfmt::skip]
pub(super) const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Embedding,    key: Key { gguf: ".embedding_scale", config: "embedding_multiplier" }, gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::Residual,     key: Key { gguf: ".residual_scale",  config: "residual_multiplier" },  gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::Scores,       key: Key { gguf: ".attention.scale", config: "attention_multiplier" }, gguf_default: None, config_default: ONE },
    Factor { of: FactorOf::LogitDivisor, key: Key { gguf: ".logit_scale",     config: "logits_scaling" },       gguf_default: None, config_default: ONE },
];

/// The second key is the switch that llama.cpp has for the rotation in this architecture.
pub(super) const REFUSED: &[Refusal] = &[
    Refusal::AbsentGguf(".logit_scale"),
    Refusal::Unset(Key::gguf(".rope.scaling.finetuned"), "layers that do not rotate"),
];

pub(super) const FAMILY: Family = Family {
    id: "granite",
    gguf_architectures: &["granite"],
    model_types: &[("granite", &["GraniteForCausalLM"])],
    files: FileTable { refused: REFUSED, ..FILES },
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    block: BlockTable { factors: FACTORS, ..BLOCK },
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' GraniteConfig and of llama.cpp")),
        ..PERMUTED
    },
    head: HeadTable { tied: (false, "the default of transformers' GraniteConfig"), ..HEAD },
    name: "Granite",
    ..LLAMA_LIKE
};
