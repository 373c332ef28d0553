//! Hunyuan with experts: A13B. As the dense one, with a shared expert in every layer.

use super::*;

#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",   config: "model.layers.{}.mlp.gate.wg" },
    TensorName { role: Role::SharedGate, gguf: "blk.{}.ffn_gate_shexp", config: "model.layers.{}.mlp.shared_mlp.gate_proj" },
    TensorName { role: Role::SharedUp,   gguf: "blk.{}.ffn_up_shexp",   config: "model.layers.{}.mlp.shared_mlp.up_proj" },
    TensorName { role: Role::SharedDown, gguf: "blk.{}.ffn_down_shexp", config: "model.layers.{}.mlp.shared_mlp.down_proj" },
];

pub(super) const FAMILY: Family = Family {
    id: "hunyuanmoe",
    gguf_architectures: &["hunyuan-moe"],
    model_types: &[("hunyuan_v1_moe", &["HunYuanMoEV1ForCausalLM"])],
    // transformers reads none of these, and computes what they say.
    files: FileTable {
        refused: &[
            Refusal::Set("use_cla", "keys and values of other layers"),
            Refusal::Set("use_mla", "latent attention"),
            Refusal::Unset(Key::config("use_qk_norm"), "no norms of queries and keys"),
            Refusal::Unset(Key::config("use_mixed_mlp_moe"), "no shared expert"),
            Refusal::Set("moe_layer_num_skipped", "layers without experts"),
            Refusal::Set("group_limited_greedy", "experts in groups"),
        ],
        ..FILES
    },
    tensors: &[EXPERTS, LLAMA_LIKE_TENSORS, hunyuan::HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        chosen: Key { gguf: ".expert_used_count", config: "moe_topk" },
        shared_feed_forward: Some(Key { config: "intermediate_size", ..SHARED_WIDTH }),
        normalized: Normalized::Fixed(true),
        ..ROUTED
    }),
    name: "Hunyuan MoE",
    ..hunyuan::FAMILY
};
