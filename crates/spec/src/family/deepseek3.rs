//! DeepSeek V3 and R1, Moonlight; the text of Kimi-VL. Their GGUF files are those of the table `deepseek2`.

use super::*;

const CONFIG: &str = "the default of transformers' DeepseekV3Config";

pub(super) const LATENT_SIZES: &[(&str, f64)] = &[
    ("q_lora_rank", 1536.0),
    ("kv_lora_rank", 512.0),
    ("qk_nope_head_dim", 128.0),
    ("qk_rope_head_dim", 64.0),
    ("v_head_dim", 128.0),
    ("rms_norm_eps", 1e-6),
];

pub(super) const HALVES: Refusal = Refusal::Unset(Key::config("rope_interleave"), "rotation of the halves of a head");

pub(super) const ROUTING: ExpertTable = ExpertTable {
    score: RouterScore::Sigmoid,
    scores: None,
    groups: Some(GROUPS),
    normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: false },
    dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (3, CONFIG), ..DENSE }),
    ..deepseek2::ROUTING
};

const REFUSED: &[Refusal] = &[
    Refusal::Unless(Key::config("moe_layer_freq"), &["1"], "experts in some layers"),
    Refusal::Unless(Key::config("scoring_func"), &["sigmoid"], "other scores of experts"),
    Refusal::Unless(Key::config("topk_method"), &["noaux_tc"], "another choice of experts"),
    HALVES,
];

pub(super) const FAMILY: Family = Family {
    id: "deepseek2",
    gguf_architectures: &[],
    model_types: &[("deepseek_v3", &["DeepseekV3ForCausalLM"])],
    wrappers: &[("KimiVLForConditionalGeneration", "kimi_vl")],
    files: FileTable {
        defaults: &[
            LATENT_SIZES,
            &[
                ("max_position_embeddings", 4096.0),
                ("moe_intermediate_size", 2048.0),
                ("n_shared_experts", 1.0),
                ("n_group", 8.0),
                ("topk_group", 4.0),
                ("num_experts_per_tok", 8.0),
            ],
        ],
        defaults_source: CONFIG,
        refused: REFUSED,
        ..FILES
    },
    biases: &[deepseek2::BIAS, (&[Role::ChoiceBias], Bias::Always)],
    block: BlockTable {
        factors: &[Factor { config_default: Some((2.5, CONFIG)), ..ROUTED_SCALE }],
        ..deepseek2::FAMILY.block
    },
    experts: Some(ROUTING),
    head: HeadTable { tied: (false, CONFIG), ..deepseek2::PREDICTED },
    variants: &[deepseek2::MOONLIGHT],
    name: "DeepSeek V3",
    ..deepseek2::FAMILY
};
