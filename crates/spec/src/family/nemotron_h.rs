//! Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano: layers of one sub-layer each, which is Mamba-2, attention without
//! rotation, a feed-forward layer, or experts.

use super::granite_hybrid::MAMBA_IN;
use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",               config: "backbone.embeddings" },
    TensorName { role: Role::Head,          gguf: "output",                   config: "lm_head" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",              config: "backbone.norm_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",         config: "backbone.layers.{}.norm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.attn_norm",         config: "backbone.layers.{}.norm" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",            config: "backbone.layers.{}.mixer.q_proj" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",            config: "backbone.layers.{}.mixer.k_proj" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",            config: "backbone.layers.{}.mixer.v_proj" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",       config: "backbone.layers.{}.mixer.o_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",            config: "backbone.layers.{}.mixer.up_proj" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",          config: "backbone.layers.{}.mixer.down_proj" },
    TensorName { role: Role::StateGate,     gguf: "blk.{}.ssm_in",            config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::MambaInput,    gguf: "blk.{}.ssm_in",            config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::MambaStep,     gguf: "blk.{}.ssm_in",            config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::Conv,          gguf: "blk.{}.ssm_conv1d",        config: "backbone.layers.{}.mixer.conv1d" },
    TensorName { role: Role::StateStepBias, gguf: "blk.{}.ssm_dt.bias",       config: "backbone.layers.{}.mixer.dt_bias" },
    TensorName { role: Role::StateDecay,    gguf: "blk.{}.ssm_a",             config: "backbone.layers.{}.mixer.A_log" },
    TensorName { role: Role::MambaSkip,     gguf: "blk.{}.ssm_d",             config: "backbone.layers.{}.mixer.D" },
    TensorName { role: Role::StateNorm,     gguf: "blk.{}.ssm_norm",          config: "backbone.layers.{}.mixer.norm" },
    TensorName { role: Role::StateOut,      gguf: "blk.{}.ssm_out",           config: "backbone.layers.{}.mixer.out_proj" },
    TensorName { role: Role::Router,        gguf: "blk.{}.ffn_gate_inp",      config: "backbone.layers.{}.mixer.gate" },
    TensorName { role: Role::ChoiceBias,    gguf: "blk.{}.exp_probs_b.bias",  config: "backbone.layers.{}.mixer.gate.e_score_correction_bias" },
    TensorName { role: Role::ExpertUp,      gguf: "blk.{}.ffn_up_exps",       config: "backbone.layers.{}.mixer.experts.{expert}.up_proj" },
    TensorName { role: Role::ExpertDown,    gguf: "blk.{}.ffn_down_exps",     config: "backbone.layers.{}.mixer.experts.{expert}.down_proj" },
    TensorName { role: Role::SharedUp,      gguf: "blk.{}.ffn_up_shexp",      config: "backbone.layers.{}.mixer.shared_experts.up_proj" },
    TensorName { role: Role::SharedDown,    gguf: "blk.{}.ffn_down_shexp",    config: "backbone.layers.{}.mixer.shared_experts.down_proj" },
];

const CONFIG: &str = "the default of transformers' NemotronHConfig";

pub(super) const FAMILY: Family = Family {
    id: "nemotron_h",
    gguf_architectures: &["nemotron_h", "nemotron_h_moe"],
    model_types: &[("nemotron_h", &["NemotronHForCausalLM"])],
    files: FileTable {
        keys: Keys { norm_eps: Key { config: "layer_norm_epsilon", ..KEYS.norm_eps }, ..KEYS },
        aliases: &[
            ("layer_types", "layers_block_type"),
            ("head_dim", "attention_head_dim"),
            ("hidden_act", "mlp_hidden_act"),
            (".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon"),
        ],
        refused: &[
            Refusal::Unless(Key::config("mamba_hidden_act"), &["silu"], "another activation of Mamba-2"),
            Refusal::Unless(Key::config("n_group"), &["1"], "experts in groups"),
            Refusal::Unless(Key::config("topk_group"), &["1"], "experts in groups"),
            Refusal::Unless(Key { gguf: ".moe_latent_size", config: "moe_latent_size" }, &["0"], "projected experts"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[
        FusedName::new(MAMBA_IN, "blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"),
        FusedName::new(&[Role::ExpertUp], "", "backbone.layers.{}.mixer.experts.up_proj"),
        FusedName::new(&[Role::ExpertDown], "", "backbone.layers.{}.mixer.experts.down_proj"),
    ],
    biases: &[
        ATTENTION_BIAS,
        (&[Role::Up, Role::Down, Role::SharedUp, Role::SharedDown], Bias::Flag("mlp_bias")),
        (MAMBA_IN, Bias::Flag("use_bias")),
        (&[Role::StateOut], Bias::Flag("use_bias")),
        (&[Role::Conv], Bias::UnlessFlag("use_conv_bias")),
        (&[Role::ChoiceBias], Bias::Always),
    ],
    block: BlockTable {
        activation: (Activation::ReluSquared, &["relu2"]),
        factors: &[ROUTED_SCALE],
        states: Some(StateTable {
            mixer: StateMixer::Mamba2 {
                heads: Key { gguf: ".ssm.time_step_rank", config: "mamba_num_heads" },
                groups: Key { gguf: ".ssm.group_count", config: "n_groups" },
                state_dim: Key { gguf: ".ssm.state_size", config: "ssm_state_size" },
                head_dim: "mamba_head_dim",
                inner: Key::gguf(".ssm.inner_size"),
                step_limit: "time_step_limit",
                norm: None,
            },
            layer_types: &["linear_attention", "mamba"],
            attention: &["full_attention", "attention"],
            layers: StateLayers::Single {
                dense: "mlp",
                experts: "moe",
                letters: ("hybrid_override_pattern", ['M', '*', '-', 'E']),
            },
            kernel: Key { gguf: ".ssm.conv_kernel", config: "conv_kernel" },
            own_norms: &[],
            other_norms: &[],
        }),
        ..BLOCK
    },
    experts: Some(ExpertTable {
        count: &[Key { gguf: ".expert_count", config: "n_routed_experts" }],
        optional: true,
        shared_feed_forward: Some(Key { config: "moe_shared_expert_intermediate_size", ..qwen2_moe::SHARED_WIDTH }),
        score: RouterScore::Sigmoid,
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: false },
        added_to_sum: 1e-20,
        ..QWEN_ROUTED
    }),
    rope: RopeTable { never: true, ..ROPE },
    head: HeadTable {
        tied: (false, CONFIG),
        predictors: Some(Key { gguf: ".nextn_predict_layers", config: "num_nextn_predict_layers" }),
        ..HEAD
    },
    variants: &[
        Variant { name: "Nemotron Nano 2", any: &[&[Hidden(4480), Layers(56)], &[Hidden(5120), Layers(62)]] },
        Variant { name: "Nemotron 3 Nano", any: &[&[Hidden(2688), Layers(52)]] },
    ],
    name: "Nemotron-H",
    ..LLAMA_LIKE
};
