//! Granite 4: Mamba-2 and attention layers, mostly without rotation, or only attention layers; with experts or dense.

use super::granite::FACTORS;
use super::granite_moe::{EXPERTS, FUSED_GATES, SHARED_WIDTH};
use super::*;

#[rustfmt::skip]
pub(super) const MAMBA: &[TensorName] = &[
    TensorName { role: Role::StateGate,     gguf: "blk.{}.ssm_in",      config: "model.layers.{}.mamba.in_proj" },
    TensorName { role: Role::MambaInput,    gguf: "blk.{}.ssm_in",      config: "model.layers.{}.mamba.in_proj" },
    TensorName { role: Role::MambaStep,     gguf: "blk.{}.ssm_in",      config: "model.layers.{}.mamba.in_proj" },
    TensorName { role: Role::Conv,          gguf: "blk.{}.ssm_conv1d",  config: "model.layers.{}.mamba.conv1d" },
    TensorName { role: Role::StateStepBias, gguf: "blk.{}.ssm_dt.bias", config: "model.layers.{}.mamba.dt_bias" },
    TensorName { role: Role::StateDecay,    gguf: "blk.{}.ssm_a",       config: "model.layers.{}.mamba.A_log" },
    TensorName { role: Role::MambaSkip,     gguf: "blk.{}.ssm_d",       config: "model.layers.{}.mamba.D" },
    TensorName { role: Role::StateNorm,     gguf: "blk.{}.ssm_norm",    config: "model.layers.{}.mamba.norm" },
    TensorName { role: Role::StateOut,      gguf: "blk.{}.ssm_out",     config: "model.layers.{}.mamba.out_proj" },
];

/// Listed before Llama's names: in models without experts the shared expert takes the place of the feed-forward layer.
#[rustfmt::skip]
const SHARED: &[TensorName] = &[
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",    config: "model.layers.{}.shared_mlp.input_linear" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",      config: "model.layers.{}.shared_mlp.input_linear" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",    config: "model.layers.{}.shared_mlp.output_linear" },
];

pub(super) const MAMBA_IN: &[Role] = &[Role::StateGate, Role::MambaInput, Role::MambaStep];

pub(super) const FUSED_INPUT: FusedName = FusedName::new(MAMBA_IN, "blk.{}.ssm_in", "model.layers.{}.mamba.in_proj");

pub(super) const INPUT_BIAS: Biases = (MAMBA_IN, Bias::Flag("mamba_proj_bias"));
pub(super) const OUTPUT_BIAS: Biases = (&[Role::StateOut], Bias::Flag("mamba_proj_bias"));
pub(super) const CONV_BIAS: Biases = (&[Role::Conv], Bias::UnlessFlag("mamba_conv_bias"));

pub(super) const STATES: StateTable = StateTable {
    mixer: StateMixer::Mamba2 {
        heads: Key { gguf: ".ssm.time_step_rank", config: "mamba_n_heads" },
        groups: Key { gguf: ".ssm.group_count", config: "mamba_n_groups" },
        state_dim: Key { gguf: ".ssm.state_size", config: "mamba_d_state" },
        head_dim: "mamba_d_head",
        inner: Key { gguf: ".ssm.inner_size", config: "mamba_expand" },
        step_limit: "time_step_limit",
        norm: None,
    },
    // In each list the first name is the one of transformers 5, the other the one of published files.
    layer_types: &["linear_attention", "mamba"],
    attention: &["full_attention", "attention"],
    layers: StateLayers::All("the default of transformers' GraniteMoeHybridConfig"),
    kernel: Key { gguf: ".ssm.conv_kernel", config: "mamba_d_conv" },
    own_norms: &[],
    other_norms: &[],
};

pub(super) const FAMILY: Family = Family {
    id: "granitehybrid",
    gguf_architectures: &["granitehybrid"],
    model_types: &[("granitemoehybrid", &["GraniteMoeHybridForCausalLM"])],
    files: FileTable {
        keys: Keys { feed_forward: Key { config: "shared_intermediate_size", ..KEYS.feed_forward }, ..KEYS },
        aliases: &[("layer_types", "layers_block_type")],
        defaults: &[&[
            ("mamba_n_heads", 128.0),
            ("mamba_n_groups", 1.0),
            ("mamba_d_state", 256.0),
            ("mamba_d_conv", 4.0),
            ("mamba_expand", 2.0),
        ]],
        defaults_source: "the default of transformers' GraniteMoeHybridConfig",
        ..FILES
    },
    tensors: &[MAMBA, SHARED, LLAMA_LIKE_TENSORS, EXPERTS],
    fused: &[
        FUSED_INPUT,
        FusedName { gguf: "", config: "model.layers.{}.shared_mlp.input_linear", ..GATE_UP },
        FUSED_GATES[0],
        FUSED_GATES[1],
    ],
    biases: &[ATTENTION_BIAS, INPUT_BIAS, OUTPUT_BIAS, CONV_BIAS],
    block: BlockTable { factors: FACTORS, states: Some(STATES), ..BLOCK },
    experts: Some(ExpertTable {
        optional: true,
        feed_forward: Some(KEYS.feed_forward),
        shared_feed_forward: Some(SHARED_WIDTH),
        score: RouterScore::SoftmaxOfChosen,
        ..ROUTED
    }),
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' GraniteMoeHybridConfig and of llama.cpp")),
        switch: Some(Key { gguf: ".rope.scaling.finetuned", config: "position_embedding_type" }),
        ..PERMUTED
    },
    head: HeadTable { tied: (false, "the default of transformers' GraniteMoeHybridConfig"), ..HEAD },
    name: "Granite 4",
    ..LLAMA_LIKE
};
