//! Mamba, and Falcon Mamba, which norms what steps, keys and queries are made of: no layer attends.

use super::*;

/// The names of the embedding, the head and the norms, which Mamba-2 has too.
#[rustfmt::skip]
pub(super) const BACKBONE: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",      config: "backbone.embeddings" },
    TensorName { role: Role::Head,          gguf: "output",          config: "lm_head" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",     config: "backbone.norm_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm", config: "backbone.layers.{}.norm" },
];

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::MambaInput,    gguf: "blk.{}.ssm_in",      config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::StateGate,     gguf: "blk.{}.ssm_in",      config: "backbone.layers.{}.mixer.in_proj" },
    TensorName { role: Role::Conv,          gguf: "blk.{}.ssm_conv1d",  config: "backbone.layers.{}.mixer.conv1d" },
    TensorName { role: Role::MambaRank,     gguf: "blk.{}.ssm_x",       config: "backbone.layers.{}.mixer.x_proj" },
    TensorName { role: Role::MambaKey,      gguf: "blk.{}.ssm_x",       config: "backbone.layers.{}.mixer.x_proj" },
    TensorName { role: Role::MambaQuery,    gguf: "blk.{}.ssm_x",       config: "backbone.layers.{}.mixer.x_proj" },
    TensorName { role: Role::MambaStep,     gguf: "blk.{}.ssm_dt",      config: "backbone.layers.{}.mixer.dt_proj" },
    TensorName { role: Role::StateStepBias, gguf: "blk.{}.ssm_dt.bias", config: "backbone.layers.{}.mixer.dt_proj.bias" },
    TensorName { role: Role::StateDecay,    gguf: "blk.{}.ssm_a",       config: "backbone.layers.{}.mixer.A_log" },
    TensorName { role: Role::MambaSkip,     gguf: "blk.{}.ssm_d",       config: "backbone.layers.{}.mixer.D" },
    TensorName { role: Role::StateOut,      gguf: "blk.{}.ssm_out",     config: "backbone.layers.{}.mixer.out_proj" },
];

pub(super) const INPUT: &[Role] = &[Role::MambaInput, Role::StateGate];
pub(super) const SELECTED: &[Role] = &[Role::MambaRank, Role::MambaKey, Role::MambaQuery];

/// Of these models no key says how far they reach.
pub(super) const CONTEXT: (&str, f64) = ("max_position_embeddings", 1_048_576.0);

const CONFIG: &str = "the default of transformers' MambaConfig; the context is what llama.cpp's converter writes";

pub(super) const FAMILY: Family = Family {
    id: "mamba",
    gguf_architectures: &["mamba"],
    model_types: &[("mamba", &["MambaForCausalLM"]), ("falcon_mamba", &["FalconMambaForCausalLM"])],
    files: FileTable {
        keys: Keys { norm_eps: Key { config: "layer_norm_epsilon", ..KEYS.norm_eps }, ..KEYS },
        defaults: &[&[
            ("state_size", 16.0),
            ("conv_kernel", 4.0),
            ("expand", 2.0),
            ("layer_norm_epsilon", 1e-5),
            CONTEXT,
        ]],
        defaults_source: CONFIG,
        ..FILES
    },
    tensors: &[BACKBONE, TENSORS],
    fused: &[
        FusedName::new(INPUT, "blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"),
        FusedName::new(SELECTED, "blk.{}.ssm_x", "backbone.layers.{}.mixer.x_proj"),
    ],
    biases: &[
        (INPUT, Bias::Flag("use_bias")),
        (&[Role::StateOut], Bias::Flag("use_bias")),
        (&[Role::Conv], Bias::UnlessFlag("use_conv_bias")),
    ],
    block: BlockTable {
        states: Some(StateTable {
            mixer: StateMixer::Mamba(MambaKeys {
                heads: None,
                rank: Some(Key { gguf: ".ssm.time_step_rank", config: "time_step_rank" }),
                state_dim: Key { gguf: ".ssm.state_size", config: "state_size" },
                inner: Key { gguf: ".ssm.inner_size", config: "expand" },
                plain_norms: Some(PlainNorms {
                    flag: ".ssm.dt_b_c_rms",
                    model_type: "falcon_mamba",
                    eps: ("mixer_rms_eps", 1e-6, "the default of transformers' FalconMambaConfig"),
                }),
            }),
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
    head: HeadTable { tied: (true, "the default of transformers' MambaConfig"), ..HEAD },
    variants: &[Variant { name: "Falcon Mamba", any: &[&[PlainlyNormed]] }],
    name: "Mamba",
    ..LLAMA_LIKE
};
