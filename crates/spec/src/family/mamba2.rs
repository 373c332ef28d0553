//! Mamba-2, Codestral Mamba: no layer attends.

use super::granite_hybrid::MAMBA_IN;
use super::mamba::{BACKBONE, CONTEXT};
use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::StateGate,     gguf: "blk.{}.ssm_in",      config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::MambaInput,    gguf: "blk.{}.ssm_in",      config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::MambaStep,     gguf: "blk.{}.ssm_in",      config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::Conv,          gguf: "blk.{}.ssm_conv1d",  config: "backbone.layers.{}.mixer.conv1d" },
    TensorName { role: Role::StateStepBias, gguf: "blk.{}.ssm_dt.bias", config: "backbone.layers.{}.mixer.dt_bias" },
    TensorName { role: Role::StateDecay,    gguf: "blk.{}.ssm_a",       config: "backbone.layers.{}.mixer.A_log" },
    TensorName { role: Role::MambaSkip,     gguf: "blk.{}.ssm_d",       config: "backbone.layers.{}.mixer.D" },
    TensorName { role: Role::StateNorm,     gguf: "blk.{}.ssm_norm",    config: "backbone.layers.{}.mixer.norm" },
    TensorName { role: Role::StateOut,      gguf: "blk.{}.ssm_out",     config: "backbone.layers.{}.mixer.out_proj" },
];

const CONFIG: &str = "the default of transformers' Mamba2Config; the context is what llama.cpp's converter writes";

pub(super) const FAMILY: Family = Family {
    id: "mamba2",
    gguf_architectures: &["mamba2"],
    model_types: &[("mamba2", &["Mamba2ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("num_heads", 128.0),
            ("head_dim", 64.0),
            ("n_groups", 8.0),
            ("state_size", 128.0),
            ("conv_kernel", 4.0),
            ("expand", 2.0),
            ("layer_norm_epsilon", 1e-5),
            CONTEXT,
        ]],
        defaults_source: CONFIG,
        ..mamba::FAMILY.files
    },
    tensors: &[BACKBONE, TENSORS],
    fused: &[FusedName::new(MAMBA_IN, "blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj")],
    biases: &[
        (MAMBA_IN, Bias::Flag("use_bias")),
        (&[Role::StateOut], Bias::Flag("use_bias")),
        (&[Role::Conv], Bias::UnlessFlag("use_conv_bias")),
    ],
    block: BlockTable {
        states: Some(StateTable {
            mixer: StateMixer::Mamba2 {
                heads: Key { gguf: ".ssm.time_step_rank", config: "num_heads" },
                groups: Key { gguf: ".ssm.group_count", config: "n_groups" },
                state_dim: Key { gguf: ".ssm.state_size", config: "state_size" },
                head_dim: "head_dim",
                inner: Key { gguf: ".ssm.inner_size", config: "expand" },
                step_limit: "time_step_limit",
                norm: None,
            },
            layer_types: &["linear_attention"],
            attention: &[],
            layers: StateLayers::Only,
            kernel: Key { gguf: ".ssm.conv_kernel", config: "conv_kernel" },
            own_norms: &[],
            other_norms: &[],
        }),
        ..BLOCK
    },
    rope: RopeTable { never: true, ..ROPE },
    head: HeadTable { tied: (false, "the default of transformers' Mamba2Config"), ..HEAD },
    name: "Mamba-2",
    ..LLAMA_LIKE
};
