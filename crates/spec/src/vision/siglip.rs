//! The blocks of SigLIP: norms before sub-layers, biases, GELU, attention to both sides.

use super::{Interpolation, MmprojTable, Names, PatchTable};
use crate::block::{Activation, RopeLayout};
use crate::family::{
    Bias, BlockTable, Encoder, Family, FileTable, HeadTable, Key, Keys, LLAMA_LIKE, NormKind, Role, RopeTable,
    TensorName,
};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm, gguf: "v.blk.{}.ln1",      config: "encoder.layers.{}.layer_norm1" },
    TensorName { role: Role::Q,             gguf: "v.blk.{}.attn_q",   config: "encoder.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,             gguf: "v.blk.{}.attn_k",   config: "encoder.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,             gguf: "v.blk.{}.attn_v",   config: "encoder.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,             gguf: "v.blk.{}.attn_out", config: "encoder.layers.{}.self_attn.out_proj" },
    TensorName { role: Role::MlpNorm,       gguf: "v.blk.{}.ln2",      config: "encoder.layers.{}.layer_norm2" },
    TensorName { role: Role::Up,            gguf: "v.blk.{}.ffn_up",   config: "encoder.layers.{}.mlp.fc1" },
    TensorName { role: Role::Down,          gguf: "v.blk.{}.ffn_down", config: "encoder.layers.{}.mlp.fc2" },
    TensorName { role: Role::FinalNorm,     gguf: "v.post_ln",         config: "post_layernorm" },
];

/// The keys of encoders of images in GGUF's `clip` and in a `vision_config`.
#[rustfmt::skip]
pub(super) const KEYS: Keys = Keys {
    hidden:       Key { gguf: ".vision.embedding_length",             config: "hidden_size" },
    feed_forward: Key { gguf: ".vision.feed_forward_length",          config: "intermediate_size" },
    layers:       Key { gguf: ".vision.block_count",                  config: "num_hidden_layers" },
    heads:        Key { gguf: ".vision.attention.head_count",         config: "num_attention_heads" },
    kv_heads:     Key::NONE,
    head_dim:     Key::NONE,
    vocab:        Key::NONE,
    context:      Key::NONE,
    norm_eps:     Key { gguf: ".vision.attention.layer_norm_epsilon", config: "layer_norm_eps" },
};

pub(super) const ENCODER: Family = Family {
    id: "siglip",
    files: FileTable {
        keys: KEYS,
        // Published files leave out what is the default.
        defaults: &[&[("layer_norm_eps", 1e-6), ("num_channels", 3.0)]],
        defaults_source: "the default of transformers' SiglipVisionConfig",
        ..LLAMA_LIKE.files
    },
    tensors: &[TENSORS],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::GeluTanh, &["gelu_pytorch_tanh"]),
        ..LLAMA_LIKE.block
    },
    rope: RopeTable { never: true, ..LLAMA_LIKE.rope },
    head: HeadTable { encoder: Encoder::Yes { by_name: true }, ..LLAMA_LIKE.head },
    name: "SigLIP",
    ..LLAMA_LIKE
};

/// The input in the names of SigLIP: images of one size, whose patches have position embeddings each.
pub(super) const PATCHES: PatchTable = PatchTable {
    image_size: Key { gguf: ".vision.image_size", config: "image_size" },
    patch_size: Key { gguf: ".vision.patch_size", config: "patch_size" },
    channels: Key::config("num_channels"),
    frames: Key::NONE,
    squares: Key::NONE,
    by_pixel: false,
    embedding: Names { gguf: "v.patch_embd", config: "embeddings.patch_embedding" },
    bias: true,
    positions: Some(Names { gguf: "v.position_embd", config: "embeddings.position_embedding" }),
    interpolated: Key::NONE,
    interpolation: Interpolation::Corners,
    norm: None,
    smaller: false,
};

/// What most towers have in GGUF.
pub(super) const MMPROJ: MmprojTable = MmprojTable {
    projector_type: "",
    architectures: &[],
    activations: &[(".use_gelu", Activation::GeluTanh)],
    layout: RopeLayout::HalfSplit,
    exchanged: false,
    frames: 1,
    pixels: None,
    squares: None,
    deepstack: "",
    tokens: &[],
};
