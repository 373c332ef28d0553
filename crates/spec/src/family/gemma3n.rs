//! Gemma 3n, text only: Gemma 3's attention with norms of values and Gemma 4's embeddings of layers, in several residual streams
//! (AltUp), with a low-rank residual beside attention (LAuReL) and gates of which only the largest count.

use super::gemma2::{LOGIT_CAP, NORMS};
use super::*;

#[rustfmt::skip]
const STREAMS: &[TensorName] = &[
    TensorName { role: Role::AltUpInput,      gguf: "altup_proj",                          config: "model.altup_projections.{}" },
    TensorName { role: Role::AltUpOutput,     gguf: "altup_unembd_proj",                   config: "model.altup_unembed_projections.{}" },
    TensorName { role: Role::AltUpRouterNorm, gguf: "blk.{}.altup_router_norm",            config: "model.layers.{}.altup.router_norm" },
    TensorName { role: Role::AltUpRouter,     gguf: "blk.{}.altup_router",                 config: "model.layers.{}.altup.modality_router" },
    TensorName { role: Role::AltUpPrediction, gguf: "blk.{}.altup_predict_coef",           config: "model.layers.{}.altup.prediction_coefs" },
    TensorName { role: Role::AltUpCorrection, gguf: "blk.{}.altup_correct_coef",           config: "model.layers.{}.altup.correction_coefs" },
    TensorName { role: Role::AltUpScale,      gguf: "blk.{}.altup_correct_scale.weight",   config: "model.layers.{}.altup.correct_output_scale" },
    TensorName { role: Role::LaurelDown,      gguf: "blk.{}.laurel_l",                     config: "model.layers.{}.laurel.linear_left" },
    TensorName { role: Role::LaurelUp,        gguf: "blk.{}.laurel_r",                     config: "model.layers.{}.laurel.linear_right" },
    TensorName { role: Role::LaurelNorm,      gguf: "blk.{}.laurel_post_norm",             config: "model.layers.{}.laurel.post_laurel_norm" },
];

/// Without the factor of a layer, which Gemma 3n does not have.
const LAYERS: &[TensorName] = gemma4::LAYERS.split_at(1).1;

const CONFIG: &str = "the default of transformers' Gemma3nTextConfig";

/// No key gives the first factor.
#[rustfmt::skip]
const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Scores, key: Key::gguf(""), gguf_default: Some((1.0, "llama.cpp")), config_default: Some((1.0, "transformers' Gemma3nTextAttention")) },
    Factor { gguf_default: Some((30.0, "llama.cpp")), config_default: Some((30.0, CONFIG)), ..LOGIT_CAP },
];

pub(super) const FAMILY: Family = Family {
    id: "gemma3n",
    gguf_architectures: &["gemma3n"],
    model_types: &[("gemma3n_text", &["Gemma3nForCausalLM"])],
    wrappers: &[("Gemma3nForConditionalGeneration", "gemma3n")],
    files: FileTable {
        defaults: &[&[
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 2.0),
            ("head_dim", 256.0),
            ("vocab_size", 262_400.0),
            ("max_position_embeddings", 32_768.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        refused: &[Refusal::Unless(
            Key { gguf: ".altup.active_idx", config: "altup_active_idx" },
            &["0"],
            "blocks that read another stream than the first",
        )],
        ..FILES
    },
    tensors: &[NORMS, LLAMA_LIKE_TENSORS, HEAD_NORMS, LAYERS, STREAMS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 5,
        config_default: 512,
        source: CONFIG,
        model_types: &["gemma3n_text"],
        ..PATTERN
    }),
    block: BlockTable {
        activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh"]),
        factors: FACTORS,
        value_norm: true,
        shared_layers: gemma4::FAMILY.block.shared_layers,
        layer_embedding: gemma4::FAMILY.block.layer_embedding,
        layer_vocabulary: Some(("vocab_size_per_layer_input", 262_144, CONFIG)),
        altup: Some(AltUpTable {
            streams: Key { gguf: ".altup.num_inputs", config: "altup_num_inputs" },
            default: (4, CONFIG),
            scaled: "altup_correct_scale",
        }),
        laurel_rank: Some((Key::config("laurel_rank"), 64, "transformers and llama.cpp")),
        sparse_gates: Some(SparseGates {
            list: Key { gguf: ".activation_sparsity_scale", config: "activation_sparsity_pattern" },
            default: (10, 0.95, CONFIG),
        }),
        ..BLOCK
    },
    rope: RopeTable {
        theta: Some((1_000_000.0, CONFIG)),
        window: Some(WindowRope {
            key: Key { gguf: ".rope.freq_base_swa", config: "rope_local_base_freq" },
            default_theta: Some((10_000.0, "the default of transformers' Gemma3nTextConfig and of llama.cpp")),
        }),
        ..ROPE
    },
    head: HeadTable { tied: (true, CONFIG), embedding_by_root_of_width: true, ..HEAD },
    name: "Gemma 3n",
    ..LLAMA_LIKE
};
