//! Apertus: Llama's block with norms of heads and an activation that each layer learns, without a gate.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm", config: "model.layers.{}.attention_layernorm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",  config: "model.layers.{}.feedforward_layernorm" },
    TensorName { role: Role::Curve,         gguf: "xielu",            config: "model.layers.{}.mlp.act_fn" },
];

const CONFIG: &str = "the default of transformers' ApertusConfig";

pub(super) const FAMILY: Family = Family {
    id: "apertus",
    gguf_architectures: &["apertus"],
    model_types: &[("apertus", &["ApertusForCausalLM"])],
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { activation: (Activation::XIelu, &["xielu"]), ..BLOCK },
    rope: RopeTable {
        theta: Some((12_000_000.0, CONFIG)),
        unsaid_scaling: Some("transformers' ApertusConfig has a scaling of its own"),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Apertus",
    ..LLAMA_LIKE
};
