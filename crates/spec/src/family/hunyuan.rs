//! Hunyuan, dense: Llama's block with norms of heads after the rotation, whose base a factor of the context raises.

use super::*;

pub(super) const HEAD_NORMS: &[TensorName] = &[
    TensorName { role: Role::QNorm, gguf: "blk.{}.attn_q_norm", config: "model.layers.{}.self_attn.query_layernorm" },
    TensorName { role: Role::KNorm, gguf: "blk.{}.attn_k_norm", config: "model.layers.{}.self_attn.key_layernorm" },
];

const CONFIG: &str = "the default of transformers' config of this family";

pub(super) const FAMILY: Family = Family {
    id: "hunyuan",
    gguf_architectures: &["hunyuan-dense"],
    model_types: &[("hunyuan_v1_dense", &["HunYuanDenseV1ForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { norms_rotated: true, ..BLOCK },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), alpha: true, ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Hunyuan",
    ..LLAMA_LIKE
};
