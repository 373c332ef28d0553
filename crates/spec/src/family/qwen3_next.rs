//! Qwen3-Next: Qwen3-Next-80B-A3B. Like Qwen3.5 with experts, but the rows that delta nets read have another order.

use super::qwen2_moe::{SHARED_EXPERT, SHARED_WIDTH};
use super::qwen35::{DELTA_NET, PREDICTOR};
use super::*;

/// Listed before Qwen3.5's names. Safetensors files have only these; GGUF files have the first where an early converter wrote them.
#[rustfmt::skip]
const BY_KEY_HEAD: &[TensorName] = &[
    TensorName { role: Role::DeltaQkvz,      gguf: "blk.{}.ssm_in",    config: "model.layers.{}.linear_attn.in_proj_qkvz" },
    TensorName { role: Role::DeltaBetaAlpha, gguf: "blk.{}.ssm_ba",    config: "model.layers.{}.linear_attn.in_proj_ba" },
    TensorName { role: Role::DeltaQkv,       gguf: "blk.{}.attn_qkv",  config: "" },
    TensorName { role: Role::StateGate,      gguf: "blk.{}.attn_gate", config: "" },
    TensorName { role: Role::DeltaBeta,      gguf: "",                 config: "" },
    TensorName { role: Role::DeltaAlpha,     gguf: "",                 config: "" },
];

const CONFIG: &str = "the default of transformers' Qwen3NextConfig";

pub(super) const FAMILY: Family = Family {
    id: "qwen3next",
    gguf_architectures: &["qwen3next"],
    model_types: &[("qwen3_next", &["Qwen3NextForCausalLM"])],
    wrappers: &[],
    files: FileTable { keys: KEYS, defaults_source: CONFIG, ..qwen35_moe::FAMILY.files },
    tensors: &[BY_KEY_HEAD, DELTA_NET, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, SHARED_EXPERT, PREDICTOR],
    block: BlockTable { states: Some(qwen35::UNMOVED_STATES), ..qwen35_moe::FAMILY.block },
    experts: Some(ExpertTable {
        shared_feed_forward: Some(SHARED_WIDTH),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: true },
        dense_layers: Some(QWEN_DENSE_LAYERS),
        ..QWEN_ROUTED
    }),
    rope: RopeTable { rotary_part: Some((0.25, CONFIG)), sections: None, ..qwen35_moe::FAMILY.rope },
    head: HeadTable { tied: (false, CONFIG), images: None, ..qwen35_moe::FAMILY.head },
    name: "Qwen3-Next",
    ..qwen35_moe::FAMILY
};
