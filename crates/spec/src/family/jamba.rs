//! Jamba: Mamba with norms of what steps, keys and queries are made of, attention without rotation, experts in some layers.

use super::mamba::{INPUT, SELECTED};
use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm,      gguf: "output_norm",          config: "model.final_layernorm" },
    TensorName { role: Role::MlpNorm,        gguf: "blk.{}.ffn_norm",      config: "model.layers.{}.pre_ff_layernorm" },
    TensorName { role: Role::Gate,           gguf: "blk.{}.ffn_gate",      config: "model.layers.{}.feed_forward.gate_proj" },
    TensorName { role: Role::Up,             gguf: "blk.{}.ffn_up",        config: "model.layers.{}.feed_forward.up_proj" },
    TensorName { role: Role::Down,           gguf: "blk.{}.ffn_down",      config: "model.layers.{}.feed_forward.down_proj" },
    TensorName { role: Role::Router,         gguf: "blk.{}.ffn_gate_inp",  config: "model.layers.{}.feed_forward.router" },
    TensorName { role: Role::ExpertGate,     gguf: "blk.{}.ffn_gate_exps", config: "model.layers.{}.feed_forward.experts.{expert}.gate_proj" },
    TensorName { role: Role::ExpertUp,       gguf: "blk.{}.ffn_up_exps",   config: "model.layers.{}.feed_forward.experts.{expert}.up_proj" },
    TensorName { role: Role::ExpertDown,     gguf: "blk.{}.ffn_down_exps", config: "model.layers.{}.feed_forward.experts.{expert}.down_proj" },
    TensorName { role: Role::MambaInput,     gguf: "blk.{}.ssm_in",        config: "model.layers.{}.mamba.in_proj" },
    TensorName { role: Role::StateGate,      gguf: "blk.{}.ssm_in",        config: "model.layers.{}.mamba.in_proj" },
    TensorName { role: Role::Conv,           gguf: "blk.{}.ssm_conv1d",    config: "model.layers.{}.mamba.conv1d" },
    TensorName { role: Role::MambaRank,      gguf: "blk.{}.ssm_x",         config: "model.layers.{}.mamba.x_proj" },
    TensorName { role: Role::MambaKey,       gguf: "blk.{}.ssm_x",         config: "model.layers.{}.mamba.x_proj" },
    TensorName { role: Role::MambaQuery,     gguf: "blk.{}.ssm_x",         config: "model.layers.{}.mamba.x_proj" },
    TensorName { role: Role::MambaRankNorm,  gguf: "blk.{}.ssm_dt_norm",   config: "model.layers.{}.mamba.dt_layernorm" },
    TensorName { role: Role::MambaKeyNorm,   gguf: "blk.{}.ssm_b_norm",    config: "model.layers.{}.mamba.b_layernorm" },
    TensorName { role: Role::MambaQueryNorm, gguf: "blk.{}.ssm_c_norm",    config: "model.layers.{}.mamba.c_layernorm" },
    TensorName { role: Role::MambaStep,      gguf: "blk.{}.ssm_dt",        config: "model.layers.{}.mamba.dt_proj" },
    TensorName { role: Role::StateStepBias,  gguf: "blk.{}.ssm_dt.bias",   config: "model.layers.{}.mamba.dt_proj.bias" },
    TensorName { role: Role::StateDecay,     gguf: "blk.{}.ssm_a",         config: "model.layers.{}.mamba.A_log" },
    TensorName { role: Role::MambaSkip,      gguf: "blk.{}.ssm_d",         config: "model.layers.{}.mamba.D" },
    TensorName { role: Role::StateOut,       gguf: "blk.{}.ssm_out",       config: "model.layers.{}.mamba.out_proj" },
];

const CONFIG: &str = "the default of transformers' JambaConfig";

pub(super) const FAMILY: Family = Family {
    id: "jamba",
    gguf_architectures: &["jamba"],
    model_types: &[("jamba", &["JambaForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("mamba_d_state", 16.0),
            ("mamba_d_conv", 4.0),
            ("mamba_expand", 2.0),
            ("num_key_value_heads", 8.0),
            ("num_experts_per_tok", 2.0),
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 262_144.0),
        ]],
        defaults_source: CONFIG,
        ..FILES
    },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS],
    fused: &[
        FusedName::new(INPUT, "blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"),
        FusedName::new(SELECTED, "blk.{}.ssm_x", "model.layers.{}.mamba.x_proj"),
        FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "model.layers.{}.feed_forward.experts.gate_up_proj"),
        FusedName::new(&[Role::ExpertDown], "", "model.layers.{}.feed_forward.experts.down_proj"),
    ],
    biases: &[
        (INPUT, Bias::Flag("mamba_proj_bias")),
        (&[Role::StateOut], Bias::Flag("mamba_proj_bias")),
        (&[Role::Conv], Bias::UnlessFlag("mamba_conv_bias")),
    ],
    block: BlockTable {
        states: Some(StateTable {
            mixer: StateMixer::Mamba(MambaKeys {
                heads: None,
                rank: Some(Key { gguf: ".ssm.time_step_rank", config: "mamba_dt_rank" }),
                state_dim: Key { gguf: ".ssm.state_size", config: "mamba_d_state" },
                inner: Key { gguf: ".ssm.inner_size", config: "mamba_expand" },
                plain_norms: None,
            }),
            layer_types: &["linear_attention", "mamba"],
            attention: &["full_attention", "attention"],
            layers: StateLayers::AllButAt(PlaceOfLayers {
                every: ("attn_layer_period", 8),
                at: ("attn_layer_offset", 4),
                source: CONFIG,
            }),
            kernel: Key { gguf: ".ssm.conv_kernel", config: "mamba_d_conv" },
            own_norms: &[],
            other_norms: &[],
        }),
        ..BLOCK
    },
    experts: Some(ExpertTable {
        feed_forward: None,
        optional: true,
        normalized: Normalized::Fixed(false),
        dense_layers: Some(DenseLayers {
            gguf_without_router: true,
            place: Some(PlaceOfLayers {
                every: ("expert_layer_period", 2),
                at: ("expert_layer_offset", 1),
                source: CONFIG,
            }),
            ..DENSE
        }),
        ..QWEN_ROUTED
    }),
    rope: RopeTable { never: true, ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Jamba",
    ..LLAMA_LIKE
};
