//! LFM2: two of three layers are gated convolutions of the last few positions, the others attention.

use super::*;

#[rustfmt::skip]
pub(super) const TENSORS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm,     gguf: "token_embd_norm",           config: "model.embedding_norm" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",          config: "model.layers.{}.operator_norm" },
    TensorName { role: Role::QNorm,         gguf: "blk.{}.attn_q_norm",        config: "model.layers.{}.self_attn.q_layernorm" },
    TensorName { role: Role::KNorm,         gguf: "blk.{}.attn_k_norm",        config: "model.layers.{}.self_attn.k_layernorm" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",        config: "model.layers.{}.self_attn.out_proj" },
    TensorName { role: Role::ConvIn,        gguf: "blk.{}.shortconv.in_proj",  config: "model.layers.{}.conv.in_proj" },
    TensorName { role: Role::Conv,          gguf: "blk.{}.shortconv.conv",     config: "model.layers.{}.conv.conv" },
    TensorName { role: Role::ConvOut,       gguf: "blk.{}.shortconv.out_proj", config: "model.layers.{}.conv.out_proj" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",           config: "model.layers.{}.ffn_norm" },
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",           config: "model.layers.{}.feed_forward.w1" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",             config: "model.layers.{}.feed_forward.w3" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",           config: "model.layers.{}.feed_forward.w2" },
];

/// In transformers' `Lfm2ShortConv` one flag covers all three.
pub(super) const CONV_BIAS: Biases = (&[Role::ConvIn, Role::Conv, Role::ConvOut], Bias::Flag("conv_bias"));

pub(super) const STATES: StateTable = StateTable {
    mixer: StateMixer::ShortConv,
    layer_types: &["conv"],
    attention: &["full_attention"],
    layers: StateLayers::AllButListed("full_attn_idxs"),
    kernel: Key { gguf: ".shortconv.l_cache", config: "conv_L_cache" },
    own_norms: &[],
    other_norms: &[],
};

pub(super) const FAMILY: Family = Family {
    id: "lfm2",
    gguf_architectures: &["lfm2"],
    model_types: &[("lfm2", &["Lfm2ForCausalLM"])],
    wrappers: &[("Lfm2VlForConditionalGeneration", "lfm2_vl")],
    files: FileTable {
        keys: Keys { norm_eps: Key { config: "norm_eps", ..KEYS.norm_eps }, ..KEYS },
        adjusted_width: Some(AdjustedWidth {
            width: "block_ff_dim",
            flag: "block_auto_adjust_ff_dim",
            multiplier: "block_ffn_dim_multiplier",
            multiple: "block_multiple_of",
            default_multiple: (256, "the default of transformers' Lfm2Config"),
        }),
        refused: &[Refusal::Unset(Key::config("block_use_swiglu"), "feed-forward layers without a gate")],
        ..FILES
    },
    tensors: &[EMBEDDING_TO_VALUES, TENSORS],
    biases: &[CONV_BIAS],
    block: BlockTable { states: Some(STATES), ..BLOCK },
    rope: RopeTable { theta: Some((1_000_000.0, "the default of transformers' Lfm2Config")), ..ROPE },
    head: HeadTable {
        tied: (true, "the default of transformers' Lfm2Config"),
        tied_keys: &["tie_embedding", "tie_word_embeddings"],
        images: Some(ImageRows::Causal),
        ..HEAD
    },
    name: "LFM2",
    ..LLAMA_LIKE
};
