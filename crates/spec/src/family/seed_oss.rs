//! Seed-OSS: Llama's block with biases of q, k and v.

use super::*;

/// Listed before Llama's names: the norm before the feed-forward layer has another name in GGUF.
const NORM: &[TensorName] = &[TensorName {
    role: Role::MlpNorm,
    gguf: "blk.{}.post_attention_norm",
    config: "model.layers.{}.post_attention_layernorm",
}];

const CONFIG: &str = "the default of transformers' SeedOssConfig";

pub(super) const FAMILY: Family = Family {
    id: "seedoss",
    gguf_architectures: &["seed_oss"],
    model_types: &[("seed_oss", &["SeedOssForCausalLM"])],
    files: FileTable { defaults: &[&[("head_dim", 128.0)]], defaults_source: CONFIG, ..FILES },
    tensors: &[NORM, LLAMA_LIKE_TENSORS],
    biases: &[
        (&[Role::Q, Role::K, Role::V], Bias::UnlessFlag("attention_bias")),
        (&[Role::O], Bias::Flag("attention_out_bias")),
        MLP_BIAS,
    ],
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Seed-OSS",
    ..LLAMA_LIKE
};
