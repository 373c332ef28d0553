//! Hunyuan, dense, and the text of HunyuanOCR: Llama's block with norms of heads after the rotation, whose base `alpha` raises.

use super::*;

pub(super) const HEAD_NORMS: &[TensorName] = &[
    TensorName { role: Role::QNorm, gguf: "blk.{}.attn_q_norm", config: "model.layers.{}.self_attn.query_layernorm" },
    TensorName { role: Role::KNorm, gguf: "blk.{}.attn_k_norm", config: "model.layers.{}.self_attn.key_layernorm" },
];

const CONFIG: &str = "the default of transformers' config of this family";

pub(super) const FAMILY: Family = Family {
    id: "hunyuan",
    gguf_architectures: &["hunyuan-dense", "hunyuan_vl"],
    model_types: &[("hunyuan_v1_dense", &["HunYuanDenseV1ForCausalLM"]), ("hunyuan_vl_text", &[])],
    wrappers: &[("HunYuanVLForConditionalGeneration", "hunyuan_vl")],
    // transformers reads neither, and computes what the second says.
    files: FileTable {
        refused: &[
            Refusal::Set("use_cla", "keys and values of other layers"),
            Refusal::Unset(Key::config("use_qk_norm"), "no norms of queries and keys"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { norms_rotated: true, ..BLOCK },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), alpha: true, aliases: &[("xdrope", "dynamic")], ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Hunyuan",
    ..LLAMA_LIKE
};
