//! Qwen3.5 and Qwen3.6, dense, without their towers: three of four layers are gated delta nets, the fourth is gated attention.

use super::*;

/// Listed before Llama's names: the norm before the feed-forward layer has another name in GGUF.
#[rustfmt::skip]
pub(super) const DELTA_NET: &[TensorName] = &[
    TensorName { role: Role::MlpNorm,    gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::DeltaQkv,   gguf: "blk.{}.attn_qkv",            config: "model.layers.{}.linear_attn.in_proj_qkv" },
    TensorName { role: Role::StateGate,  gguf: "blk.{}.attn_gate",           config: "model.layers.{}.linear_attn.in_proj_z" },
    TensorName { role: Role::DeltaBeta,  gguf: "blk.{}.ssm_beta",            config: "model.layers.{}.linear_attn.in_proj_b" },
    TensorName { role: Role::DeltaAlpha, gguf: "blk.{}.ssm_alpha",           config: "model.layers.{}.linear_attn.in_proj_a" },
    TensorName { role: Role::Conv,       gguf: "blk.{}.ssm_conv1d",          config: "model.layers.{}.linear_attn.conv1d" },
    TensorName { role: Role::StateStepBias, gguf: "blk.{}.ssm_dt.bias",     config: "model.layers.{}.linear_attn.dt_bias" },
    TensorName { role: Role::StateDecay, gguf: "blk.{}.ssm_a",               config: "model.layers.{}.linear_attn.A_log" },
    TensorName { role: Role::StateNorm,  gguf: "blk.{}.ssm_norm",            config: "model.layers.{}.linear_attn.norm" },
    TensorName { role: Role::StateOut,   gguf: "blk.{}.ssm_out",             config: "model.layers.{}.linear_attn.out_proj" },
];

/// Tensors of the head that predicts a further token, in addition to its block.
#[rustfmt::skip]
pub(super) const PREDICTOR: &[TensorName] = &[
    TensorName { role: Role::NextProjection,    gguf: "blk.{}.nextn.eh_proj",          config: "mtp.fc" },
    TensorName { role: Role::NextEmbeddingNorm, gguf: "blk.{}.nextn.enorm",            config: "mtp.pre_fc_norm_embedding" },
    TensorName { role: Role::NextHiddenNorm,    gguf: "blk.{}.nextn.hnorm",            config: "mtp.pre_fc_norm_hidden" },
    TensorName { role: Role::NextNorm,          gguf: "blk.{}.nextn.shared_head_norm", config: "mtp.norm" },
    TensorName { role: Role::NextEmbedding,     gguf: "blk.{}.nextn.embed_tokens",     config: "" },
    TensorName { role: Role::NextHead,          gguf: "blk.{}.nextn.shared_head_head", config: "" },
];

const DELTA_NET_KEYS: DeltaNetKeys = DeltaNetKeys {
    key_heads: Key { gguf: ".ssm.group_count", config: "linear_num_key_heads" },
    value_heads: Key { gguf: ".ssm.time_step_rank", config: "linear_num_value_heads" },
    key_dim: Key { gguf: ".ssm.state_size", config: "linear_key_head_dim" },
    values: Key { gguf: ".ssm.inner_size", config: "linear_value_head_dim" },
    // The GGUF converter reorders the value heads.
    gguf_sharing: KeySharing::Strided,
    doubled: None,
    norm_eps: None,
    by_channel: false,
};

const STATES: StateTable = StateTable {
    mixer: StateMixer::DeltaNet(DELTA_NET_KEYS),
    layer_types: &["linear_attention"],
    attention: &["full_attention"],
    layers: StateLayers::AllButEvery {
        every: Key { gguf: ".full_attention_interval", config: "full_attention_interval" },
        list: ".attention.recurrent_layers",
        default: (4, "the default of transformers' config of this family and of llama.cpp"),
    },
    kernel: Key { gguf: ".ssm.conv_kernel", config: "linear_conv_kernel_dim" },
    own_norms: &[],
    other_norms: &[],
};

/// The table of Qwen3-Next, whose value heads no converter reorders.
pub(super) const UNMOVED_STATES: StateTable = StateTable {
    mixer: StateMixer::DeltaNet(DeltaNetKeys { gguf_sharing: KeySharing::Neighbours, ..DELTA_NET_KEYS }),
    ..STATES
};

pub(super) const SIZES: &[(&str, f64)] = &[
    ("num_attention_heads", 16.0),
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("linear_conv_kernel_dim", 4.0),
    ("linear_key_head_dim", 128.0),
    ("linear_value_head_dim", 128.0),
    ("linear_num_key_heads", 16.0),
    ("linear_num_value_heads", 32.0),
    ("rms_norm_eps", 1e-6),
];

const CONFIG: &str = "the default of transformers' Qwen3_5TextConfig";

pub(super) const FAMILY: Family = Family {
    id: "qwen35",
    gguf_architectures: &["qwen35"],
    model_types: &[("qwen3_5_text", &["Qwen3_5ForCausalLM"])],
    wrappers: &[("Qwen3_5ForConditionalGeneration", "qwen3_5")],
    files: FileTable {
        defaults: &[SIZES],
        defaults_source: CONFIG,
        // transformers always computes the gate.
        refused: &[Refusal::Unset(Key::config("attn_output_gate"), "attention without a gate of its output")],
        ..FILES
    },
    tensors: &[DELTA_NET, LLAMA_LIKE_TENSORS, HEAD_NORMS, PREDICTOR],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { norm: NormKind::RmsFromOne, gated_attention: true, states: Some(STATES), ..BLOCK },
    rope: RopeTable {
        rotary_part: Some((0.25, CONFIG)),
        sections: Some((true, [11, 11, 10], "the default of transformers' Qwen3_5TextRotaryEmbedding")),
        ..ROPE
    },
    head: HeadTable {
        tied: (false, CONFIG),
        images: Some(ImageRows::Causal),
        predictors: Some(Key { gguf: ".nextn_predict_layers", config: "mtp_num_hidden_layers" }),
        ..HEAD
    },
    name: "Qwen3.5",
    ..LLAMA_LIKE
};
