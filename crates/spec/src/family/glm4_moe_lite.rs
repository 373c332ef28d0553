//! GLM-4.7-Flash: DeepSeek V3's layers by other keys. Its GGUF files are those of the table `deepseek2`.

use super::*;

const CONFIG: &str = "the default of transformers' Glm4MoeLiteConfig";

pub(super) const FAMILY: Family = Family {
    model_types: &[("glm4_moe_lite", &["Glm4MoeLiteForCausalLM"])],
    wrappers: &[],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 202_752.0),
            ("q_lora_rank", 768.0),
            ("kv_lora_rank", 512.0),
            ("qk_nope_head_dim", 192.0),
            ("qk_rope_head_dim", 64.0),
            ("v_head_dim", 256.0),
            ("moe_intermediate_size", 1536.0),
            ("n_shared_experts", 1.0),
            ("n_group", 1.0),
            ("topk_group", 1.0),
            ("num_experts_per_tok", 4.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        ..deepseek3::FAMILY.files
    },
    block: BlockTable {
        factors: &[Factor { config_default: Some((1.8, CONFIG)), ..ROUTED_SCALE }],
        ..deepseek2::FAMILY.block
    },
    experts: Some(ExpertTable {
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (1, CONFIG), kinds: MLP_KINDS, ..DENSE }),
        ..deepseek3::ROUTING
    }),
    head: HeadTable { tied: (false, CONFIG), ..deepseek2::PREDICTED },
    variants: &[],
    name: "GLM 4.7 Flash",
    ..deepseek3::FAMILY
};
