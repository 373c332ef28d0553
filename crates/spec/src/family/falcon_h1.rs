//! Falcon-H1: attention and Mamba-2 side by side in every layer, and factors of many products, which GGUF files have in their
//! weights.

use super::granite_hybrid::{CONV_BIAS, FUSED_INPUT, MAMBA, MAMBA_IN, STATES};
use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm, gguf: "output_norm",     config: "model.final_layernorm" },
    TensorName { role: Role::MlpNorm,   gguf: "blk.{}.ffn_norm", config: "model.layers.{}.pre_ff_layernorm" },
    TensorName { role: Role::Gate,      gguf: "blk.{}.ffn_gate", config: "model.layers.{}.feed_forward.gate_proj" },
    TensorName { role: Role::Up,        gguf: "blk.{}.ffn_up",   config: "model.layers.{}.feed_forward.up_proj" },
    TensorName { role: Role::Down,      gguf: "blk.{}.ffn_down", config: "model.layers.{}.feed_forward.down_proj" },
];

const CONFIG: &str = "the default of transformers' FalconH1Config";

pub(super) const FAMILY: Family = Family {
    id: "falcon-h1",
    gguf_architectures: &["falcon-h1"],
    model_types: &[("falcon_h1", &["FalconH1ForCausalLM"])],
    files: FileTable {
        refused: &[
            // Factors of their products are before some of the biases and behind others.
            Refusal::Set("attention_bias", "biases of attention"),
            Refusal::Set("mlp_bias", "biases of the feed-forward layer"),
            Refusal::Set("mamba_proj_bias", "biases of Mamba-2"),
            Refusal::Set("projectors_bias", "biases of Mamba-2"),
        ],
        ..FILES
    },
    tensors: &[TENSORS, MAMBA, LLAMA_LIKE_TENSORS],
    fused: &[FUSED_INPUT],
    biases: &[CONV_BIAS],
    block: BlockTable {
        factors: &[
            Factor::of_config(FactorOf::Embedding, "embedding_multiplier"),
            Factor::of_config(FactorOf::Logits, "lm_head_multiplier"),
            Factor::of_config(FactorOf::Products(&[Role::Q, Role::K, Role::V]), "attention_in_multiplier"),
            Factor::of_config(FactorOf::Products(&[Role::K]), "key_multiplier"),
            Factor::of_config(FactorOf::Products(&[Role::O]), "attention_out_multiplier"),
            Factor::of_config(FactorOf::Products(&[Role::Gate]), "mlp_multipliers[0]"),
            Factor::of_config(FactorOf::Products(&[Role::Down]), "mlp_multipliers[1]"),
            Factor::of_config(FactorOf::Products(MAMBA_IN), "ssm_in_multiplier"),
            Factor::of_config(FactorOf::Products(&[Role::StateGate]), "ssm_multipliers[0]"),
            Factor::of_config(FactorOf::StateInput(0), "ssm_multipliers[1]"),
            Factor::of_config(FactorOf::StateInput(1), "ssm_multipliers[2]"),
            Factor::of_config(FactorOf::StateInput(2), "ssm_multipliers[3]"),
            Factor::of_config(FactorOf::Products(&[Role::MambaStep]), "ssm_multipliers[4]"),
            Factor::of_config(FactorOf::Products(&[Role::StateOut]), "ssm_out_multiplier"),
        ],
        states: Some(StateTable {
            mixer: StateMixer::Mamba2 {
                heads: Key { gguf: ".ssm.time_step_rank", config: "mamba_n_heads" },
                groups: Key { gguf: ".ssm.group_count", config: "mamba_n_groups" },
                state_dim: Key { gguf: ".ssm.state_size", config: "mamba_d_state" },
                head_dim: "mamba_d_head",
                inner: Key::gguf(".ssm.inner_size"),
                step_limit: "time_step_limit",
                norm: Some(["mamba_rms_norm", "mamba_norm_before_gate"]),
            },
            layers: StateLayers::Beside,
            ..STATES
        }),
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Falcon-H1",
    ..LLAMA_LIKE
};
