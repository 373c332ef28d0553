//! HyperCLOVA X SEED: Granite's block with norms around the sub-layers, and logits multiplied in place of divided.

use super::*;

#[rustfmt::skip]
const NORMS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "", config: "model.layers.{}.post_norm1" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "", config: "model.layers.{}.post_norm2" },
];

const CONFIG: &str = "the default of transformers' HyperCLOVAXConfig";

const ONE: Option<(f64, &str)> = Some((1.0, CONFIG));

#[rustfmt::skip]
const FACTORS: &[Factor] = &[
    Factor { config_default: ONE, ..Factor::new(FactorOf::Embedding, Key::config("embedding_multiplier")) },
    Factor { config_default: ONE, ..Factor::new(FactorOf::Residual, Key::config("residual_multiplier")) },
    Factor::new(FactorOf::Scores, Key::config("attention_multiplier")),
    Factor { config_default: ONE, ..Factor::new(FactorOf::Logits, Key::config("logits_scaling")) },
];

pub(super) const FAMILY: Family = Family {
    id: "hyperclovax",
    gguf_architectures: &[],
    model_types: &[("hyperclovax", &["HyperCLOVAXForCausalLM"])],
    files: FileTable {
        refused: &[Refusal::Unset(Key::config("use_post_norm"), "norms in front of the sub-layers only")],
        ..FILES
    },
    tensors: &[NORMS, LLAMA_LIKE_TENSORS],
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    block: BlockTable { factors: FACTORS, ..BLOCK },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "HyperCLOVA X",
    ..LLAMA_LIKE
};
