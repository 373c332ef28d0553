//! Kimi Linear: three of four layers are Kimi delta attention (arXiv 2510.26692), the fourth is DeepSeek's latent attention without
//! rotation; experts as in DeepSeek V3.

use super::*;

/// transformers 5.23 saves dense layers under the name of those with experts; published files have the usual one.
#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Gate,           gguf: "",                       config: "model.layers.{}.block_sparse_moe.gate_proj" },
    TensorName { role: Role::Up,             gguf: "",                       config: "model.layers.{}.block_sparse_moe.up_proj" },
    TensorName { role: Role::Down,           gguf: "",                       config: "model.layers.{}.block_sparse_moe.down_proj" },
    TensorName { role: Role::ChoiceBias,     gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias" },
    TensorName { role: Role::SharedGate,     gguf: "blk.{}.ffn_gate_shexp",  config: "model.layers.{}.block_sparse_moe.shared_experts.gate_proj" },
    TensorName { role: Role::SharedUp,       gguf: "blk.{}.ffn_up_shexp",    config: "model.layers.{}.block_sparse_moe.shared_experts.up_proj" },
    TensorName { role: Role::SharedDown,     gguf: "blk.{}.ffn_down_shexp",  config: "model.layers.{}.block_sparse_moe.shared_experts.down_proj" },
    TensorName { role: Role::DeltaQ,         gguf: "blk.{}.attn_q",          config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::DeltaK,         gguf: "blk.{}.attn_k",          config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::DeltaV,         gguf: "blk.{}.attn_v",          config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::ConvQ,          gguf: "blk.{}.ssm_conv1d_q",    config: "model.layers.{}.self_attn.q_conv1d" },
    TensorName { role: Role::ConvK,          gguf: "blk.{}.ssm_conv1d_k",    config: "model.layers.{}.self_attn.k_conv1d" },
    TensorName { role: Role::ConvV,          gguf: "blk.{}.ssm_conv1d_v",    config: "model.layers.{}.self_attn.v_conv1d" },
    TensorName { role: Role::StateGateDown,  gguf: "blk.{}.ssm_g_a",         config: "model.layers.{}.self_attn.g_a_proj" },
    TensorName { role: Role::StateGateUp,    gguf: "blk.{}.ssm_g_b",         config: "model.layers.{}.self_attn.g_b_proj" },
    TensorName { role: Role::DeltaAlphaDown, gguf: "blk.{}.ssm_f_a",         config: "model.layers.{}.self_attn.f_a_proj" },
    TensorName { role: Role::DeltaAlphaUp,   gguf: "blk.{}.ssm_f_b",         config: "model.layers.{}.self_attn.f_b_proj" },
    TensorName { role: Role::DeltaBeta,      gguf: "blk.{}.ssm_beta",        config: "model.layers.{}.self_attn.b_proj" },
    TensorName { role: Role::StateStepBias,  gguf: "blk.{}.ssm_dt.bias",     config: "model.layers.{}.self_attn.dt_bias" },
    TensorName { role: Role::StateDecay,     gguf: "blk.{}.ssm_a",           config: "model.layers.{}.self_attn.A_log" },
    TensorName { role: Role::StateNorm,      gguf: "blk.{}.ssm_norm",        config: "model.layers.{}.self_attn.o_norm" },
    TensorName { role: Role::StateOut,       gguf: "blk.{}.attn_output",     config: "model.layers.{}.self_attn.o_proj" },
];

const CONFIG: &str = "the default of transformers' KimiLinearConfig";
const HEADS: Key = Key { gguf: ".attention.head_count", config: "linear_attn_config.num_heads" };
const HEAD_DIM: Key = Key { gguf: ".kda.head_dim", config: "linear_attn_config.head_dim" };
const CONV: &str = "linear_attn_config.short_conv_kernel_size";

pub(super) const FAMILY: Family = Family {
    id: "kimi-linear",
    gguf_architectures: &["kimi-linear"],
    model_types: &[("kimi_linear", &["KimiLinearForCausalLM"])],
    wrappers: &[],
    files: FileTable {
        keys: Keys { context: Key { config: "model_max_length", ..KEYS.context }, ..KEYS },
        // The last three are transformers' names.
        aliases: &[
            ("model_max_length", "max_position_embeddings"),
            (HEADS.config, "linear_num_heads"),
            (HEAD_DIM.config, "linear_head_dim"),
            (CONV, "linear_conv_kernel_dim"),
        ],
        defaults: &[&[
            ("model_max_length", 1_048_576.0),
            ("kv_lora_rank", 512.0),
            ("qk_nope_head_dim", 128.0),
            ("qk_rope_head_dim", 64.0),
            ("v_head_dim", 128.0),
            ("moe_intermediate_size", 1024.0),
            ("num_shared_experts", 1.0),
            ("num_experts_per_token", 8.0),
            ("num_expert_group", 1.0),
            ("topk_group", 1.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Unless(Key::config("moe_layer_freq"), &["1"], "experts in some layers"),
            // transformers computes sigmoids, whatever it says.
            Refusal::Unless(Key::config("moe_router_activation_func"), &["sigmoid"], "other scores of experts"),
            Refusal::Unset(Key::config("mla_use_nope"), "rotation of latent attention"),
            Refusal::AbsentGguf(".expert_gating_func"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, deepseek2::LATENTS, TENSORS, MIXTRAL_EXPERTS],
    fused: &[FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "")],
    biases: &[deepseek2::BIAS, (&[Role::ChoiceBias], Bias::Always)],
    block: BlockTable {
        latent_eps: Some(1e-6),
        factors: &[Factor { config_default: Some((2.446, CONFIG)), ..ROUTED_SCALE }],
        states: Some(StateTable {
            mixer: StateMixer::DeltaNet(DeltaNetKeys {
                key_heads: HEADS,
                value_heads: HEADS,
                key_dim: HEAD_DIM,
                values: HEAD_DIM,
                gguf_sharing: KeySharing::Neighbours,
                doubled: None,
                norm_eps: None,
                by_channel: true,
            }),
            layer_types: &["linear_attention"],
            attention: &["full_attention"],
            layers: StateLayers::Numbered {
                of_states: "linear_attn_config.kda_layers",
                of_others: "linear_attn_config.full_attn_layers",
            },
            kernel: Key { gguf: ".ssm.conv_kernel", config: CONV },
            own_norms: &[],
            other_norms: &[],
        }),
        ..BLOCK
    },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        optional: false,
        chosen: Key { config: "num_experts_per_token", ..ROUTED.chosen },
        shared_count: Some(SHARED_COUNT),
        scores: None,
        groups: Some(GroupTable { count: Key { config: "num_expert_group", ..GROUPS.count }, ..GROUPS }),
        normalized: Normalized::Flag { config: "moe_renormalize", absent: true, gguf: true },
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (1, CONFIG), kinds: MLP_KINDS, ..DENSE }),
        ..deepseek3::ROUTING
    }),
    rope: RopeTable { never: true, ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..deepseek2::PREDICTED },
    name: "Kimi Linear",
    ..LLAMA_LIKE
};
