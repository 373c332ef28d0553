//! StableLM: StableLM 3B, StableLM 2, Stable Code. LayerNorm, a quarter of a head rotated; the 12B has a parallel block and a
//! norm for each head.

use super::*;

#[rustfmt::skip]
const HEAD_NORMS: &[TensorName] = &[
    TensorName { role: Role::QNorm, gguf: "blk.{}.attn_q_norm", config: "" },
    TensorName { role: Role::KNorm, gguf: "blk.{}.attn_k_norm", config: "" },
];

const CONFIG: &str = "the default of transformers' StableLmConfig";

pub(super) const FAMILY: Family = Family {
    id: "stablelm",
    gguf_architectures: &["stablelm"],
    model_types: &[("stablelm", &["StableLmForCausalLM"])],
    files: FileTable {
        keys: LAYER_NORM_KEYS,
        refused: &[Refusal::Set("qk_layernorm", "norms of queries and keys with a tensor for each head")],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS],
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::Flag("use_qkv_bias"))],
    block: BlockTable {
        norm: NormKind::Layer,
        parallel: Parallel::Flag("use_parallel_residual"),
        head_norms: HeadNorms::OfEachHead,
        head_norm_flag: Some("qk_layernorm"),
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), rotary_part: Some((0.25, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "StableLM",
    ..LLAMA_LIKE
};
