//! Arcee: AFM-4.5B. Llama's block with a squared ReLU and no gate.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "arcee",
    gguf_architectures: &["arcee"],
    model_types: &[("arcee", &["ArceeForCausalLM"])],
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    block: BlockTable { activation: (Activation::ReluSquared, &["relu2"]), ..BLOCK },
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' ArceeConfig and of llama.cpp")),
        ..PERMUTED
    },
    head: HeadTable { tied: (false, "the default of transformers' ArceeConfig"), ..HEAD },
    name: "Arcee",
    ..LLAMA_LIKE
};
