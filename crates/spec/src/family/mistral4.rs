//! Mistral 4, text only: DeepSeek V2's layers with queries that grow beyond the original context.

use super::*;

const CONFIG: &str = "the default of transformers' Mistral4Config";

pub(super) const FAMILY: Family = Family {
    id: "mistral4",
    gguf_architectures: &["mistral4"],
    model_types: &[("mistral4", &["Mistral4ForCausalLM"])],
    wrappers: &[("Mistral3ForConditionalGeneration", "mistral3")],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 1_048_576.0),
            ("q_lora_rank", 1024.0),
            ("kv_lora_rank", 256.0),
            ("qk_nope_head_dim", 64.0),
            ("qk_rope_head_dim", 64.0),
            ("v_head_dim", 128.0),
            ("moe_intermediate_size", 2048.0),
            ("n_shared_experts", 1.0),
            ("n_group", 1.0),
            ("topk_group", 1.0),
            ("num_experts_per_tok", 4.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        refused: &[deepseek3::HALVES],
        ..FILES
    },
    block: BlockTable {
        factors: &[Factor { config_default: Some((1.0, CONFIG)), ..ROUTED_SCALE }],
        ..deepseek2::FAMILY.block
    },
    experts: Some(ExpertTable {
        groups: Some(GROUPS),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: false },
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (0, CONFIG), ..DENSE }),
        ..deepseek2::ROUTING
    }),
    rope: RopeTable {
        query_scale: ministral3::FAMILY.rope.query_scale,
        // `partial_rotary_factor` says the same of a whole query.
        rotary_dim: Some(("qk_rope_head_dim", 64, CONFIG)),
        unsaid_scaling: Some("transformers' Mistral4Config has a YaRN of its own"),
        ..deepseek2::FAMILY.rope
    },
    head: HeadTable { tied: (false, CONFIG), images: Some(ImageRows::Causal), ..HEAD },
    variants: &[],
    name: "Mistral 4",
    ..deepseek2::FAMILY
};
