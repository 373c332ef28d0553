//! Nemotron 4 and Minitron: LayerNorm as offsets from one, a squared ReLU without a gate, a part of each head rotated.

use super::*;

const CONFIG: &str = "the default of transformers' NemotronConfig";

pub(super) const FAMILY: Family = Family {
    id: "nemotron",
    gguf_architectures: &["nemotron"],
    model_types: &[("nemotron", &["NemotronForCausalLM"])],
    files: FileTable {
        keys: Keys { norm_eps: Key { config: "norm_eps", ..LAYER_NORM_KEYS.norm_eps }, ..KEYS },
        defaults: &[&[("norm_eps", 1e-5)]],
        defaults_source: CONFIG,
        ..FILES
    },
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    block: BlockTable { norm: NormKind::LayerFromOne, activation: (Activation::ReluSquared, &["relu2"]), ..BLOCK },
    rope: RopeTable { rotary_part: Some((0.5, CONFIG)), theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Nemotron 4",
    ..LLAMA_LIKE
};
