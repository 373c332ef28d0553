//! SmolLM3: Llama's block, where every fourth layer does not rotate.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "smollm3",
    gguf_architectures: &["smollm3"],
    model_types: &[("smollm3", &["SmolLM3ForCausalLM"])],
    files: FileTable { refused: &[Refusal::Set("use_sliding_window", "a sliding window in some layers")], ..FILES },
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    rope: RopeTable {
        theta: Some((2_000_000.0, "the default of transformers' SmolLM3Config")),
        unrotated: Some(Unrotated::Listed {
            list: "no_rope_layers",
            interval: "no_rope_layer_interval",
            default_interval: (4, "the default of transformers' SmolLM3Config, and always in llama.cpp"),
        }),
        ..PERMUTED
    },
    head: HeadTable { tied: (true, "the default of transformers' SmolLM3Config"), ..HEAD },
    name: "SmolLM3",
    ..LLAMA_LIKE
};
