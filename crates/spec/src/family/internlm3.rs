//! InternLM3: Llama's block with biases by keys of other names. In GGUF it is a Llama.

use super::*;

const CONFIG: &str = "the default of transformers' InternLM3Config";

pub(super) const FAMILY: Family = Family {
    id: "internlm3",
    model_types: &[("internlm3", &["InternLM3ForCausalLM", "LlamaForCausalLM"])],
    files: FileTable {
        aliases: &[("attention_bias", "qkv_bias"), ("mlp_bias", "bias")],
        defaults: &[&[("head_dim", 128.0)]],
        defaults_source: CONFIG,
        ..FILES
    },
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "InternLM3",
    ..LLAMA_LIKE
};
