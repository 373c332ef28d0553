//! PLaMo 2, of whose safetensors transformers has no code: Mamba with a decay for each head, attention, norms around both sub-layers.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm", config: "" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",       config: "" },
    TensorName { role: Role::MambaInput,          gguf: "blk.{}.ssm_in",              config: "" },
    TensorName { role: Role::Conv,                gguf: "blk.{}.ssm_conv1d",          config: "" },
    TensorName { role: Role::MambaKey,            gguf: "blk.{}.ssm_x",               config: "" },
    TensorName { role: Role::MambaQuery,          gguf: "blk.{}.ssm_x",               config: "" },
    TensorName { role: Role::MambaRank,           gguf: "blk.{}.ssm_x",               config: "" },
    TensorName { role: Role::MambaRankNorm,       gguf: "blk.{}.ssm_dt_norm",         config: "" },
    TensorName { role: Role::MambaKeyNorm,        gguf: "blk.{}.ssm_b_norm",          config: "" },
    TensorName { role: Role::MambaQueryNorm,      gguf: "blk.{}.ssm_c_norm",          config: "" },
    TensorName { role: Role::MambaStep,           gguf: "blk.{}.ssm_dt",              config: "" },
    TensorName { role: Role::StateStepBias,       gguf: "blk.{}.ssm_dt.bias",         config: "" },
    TensorName { role: Role::StateDecay,          gguf: "blk.{}.ssm_a",               config: "" },
    TensorName { role: Role::MambaSkip,           gguf: "blk.{}.ssm_d",               config: "" },
    TensorName { role: Role::StateOut,            gguf: "blk.{}.ssm_out",             config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "plamo2",
    gguf_architectures: &["plamo2"],
    files: FileTable { refused: &[Refusal::Unless(Key::gguf(".ssm.group_count"), &["0"], "heads in groups")], ..FILES },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS, HEAD_NORMS],
    fused: &[QKV, GATE_UP, FusedName::new(&[Role::MambaKey, Role::MambaQuery, Role::MambaRank], "blk.{}.ssm_x", "")],
    block: BlockTable {
        head_norms: HeadNorms::OfEachHead,
        states: Some(StateTable {
            mixer: StateMixer::Mamba(MambaKeys {
                heads: Some(Key::gguf(".ssm.time_step_rank")),
                rank: None,
                state_dim: Key::gguf(".ssm.state_size"),
                inner: Key::gguf(".ssm.inner_size"),
                plain_norms: None,
            }),
            layer_types: &[],
            attention: &[],
            layers: StateLayers::AllButListed(""),
            kernel: Key::gguf(".ssm.conv_kernel"),
            own_norms: &[],
            other_norms: &[],
        }),
        ..BLOCK
    },
    name: "PLaMo 2",
    ..LLAMA_LIKE
};
