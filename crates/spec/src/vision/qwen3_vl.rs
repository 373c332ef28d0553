//! Qwen3-VL: patches of two frames, square after square, position embeddings that are interpolated, queries and keys that are rotated
//! by rows and columns, and rows of some blocks that are added after the first layers of the language model.

use super::{
    AxialTable, DeepstackTable, IdKey, MmprojTable, Names, Outputs, PatchTable, PromptPiece, PromptTable, Step, Tower,
    siglip,
};
use crate::block::{Activation, DenseActivation, RopeLayout};
use crate::family::{Family, FileTable, FusedName, Key, Keys, LLAMA_LIKE, Role, TensorName};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm, gguf: "v.blk.{}.ln1",      config: "blocks.{}.norm1" },
    TensorName { role: Role::O,             gguf: "v.blk.{}.attn_out", config: "blocks.{}.attn.proj" },
    TensorName { role: Role::MlpNorm,       gguf: "v.blk.{}.ln2",      config: "blocks.{}.norm2" },
    TensorName { role: Role::Up,            gguf: "v.blk.{}.ffn_up",   config: "blocks.{}.mlp.linear_fc1" },
    TensorName { role: Role::Down,          gguf: "v.blk.{}.ffn_down", config: "blocks.{}.mlp.linear_fc2" },
];

const QKV: FusedName = FusedName::new(&[Role::Q, Role::K, Role::V], "v.blk.{}.attn_qkv", "blocks.{}.attn.qkv");

const CONFIG: &str = "the default of transformers' Qwen3VLVisionConfig";

pub(super) const ENCODER: Family = Family {
    id: "qwen3vl_vision",
    files: FileTable {
        keys: Keys {
            layers: Key { config: "depth", ..siglip::KEYS.layers },
            heads: Key { config: "num_heads", ..siglip::KEYS.heads },
            ..siglip::KEYS
        },
        defaults: &[&[
            ("layer_norm_eps", 1e-6),
            ("in_channels", 3.0),
            ("temporal_patch_size", 2.0),
            ("spatial_merge_size", 2.0),
            ("num_position_embeddings", 2304.0),
        ]],
        defaults_source: CONFIG,
        ..siglip::ENCODER.files
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    rope: LLAMA_LIKE.rope,
    name: "Qwen3-VL",
    ..siglip::ENCODER
};

pub(super) const MMPROJ: MmprojTable = MmprojTable {
    projector_type: "qwen3vl_merger",
    architectures: &["qwen3vl", "qwen3vlmoe"],
    activations: &[(".use_gelu", Activation::GeluTanh)],
    layout: RopeLayout::HalfSplit,
    exchanged: false,
    frames: 2,
    pixels: Some((65_536, 16_777_216, "as in the published preprocessor_config.json of Qwen3-VL and Qwen3.5")),
    squares: None,
    deepstack: ".vision.is_deepstack_layers",
    tokens: &[("image_token_id", &["<|image_pad|>"])],
};

/// The template writes it for an image, and it holds the place of each row.
const IMAGE: IdKey = ("image_token_id", 151_655, "the default of transformers' Qwen3VLConfig");

pub(super) const TOWER: Tower = Tower {
    name: "Qwen3-VL",
    classes: &["Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"],
    // As transformers 5 writes them, and as published.
    model_types: &["qwen3_vl_vision", "qwen3_vl", "qwen3_vl_moe_vision", "qwen3_vl_moe"],
    config_class: "Qwen3VLVisionConfig",
    encoder: &ENCODER,
    mmproj: Some(MMPROJ),
    fronts: &["model.visual.", "visual."],
    processors: &["Qwen2VLImageProcessor"],
    // `replace_image_token` of transformers' Qwen3VLProcessor.
    prompt: PromptTable { mark: IMAGE, placeholder: IMAGE, pieces: &[PromptPiece::Rows] },
    patches: PatchTable {
        image_size: Key::NONE,
        channels: Key::config("in_channels"),
        frames: Key::config("temporal_patch_size"),
        squares: Key { gguf: ".vision.spatial_merge_size", config: "spatial_merge_size" },
        embedding: Names { gguf: "v.patch_embd", config: "patch_embed.proj" },
        positions: Some(Names { gguf: "v.position_embd", config: "pos_embed" }),
        interpolated: Key { gguf: ".vision.image_size", config: "num_position_embeddings" },
        smaller: true,
        ..siglip::PATCHES
    },
    windows: None,
    rope: Some(AxialTable { theta: (10_000.0, CONFIG), alternating: false }),
    fixed: &[],
    projector: &[
        Step::layer_norm("v.post_ln", "visual.merger.norm"),
        Step::Squares,
        Step::linear("mm.0", "visual.merger.linear_fc1", Outputs::Same),
        Step::Activation(DenseActivation::Gelu),
        Step::linear("mm.2", "visual.merger.linear_fc2", Outputs::TextBy("out_hidden_size")),
    ],
    deepstack: Some(DeepstackTable {
        blocks: ("deepstack_visual_indexes", &[8, 16, 24], CONFIG),
        steps: &[
            Step::Squares,
            Step::layer_norm("v.deepstack.{}.norm", "visual.deepstack_merger_list.{}.norm"),
            Step::linear("v.deepstack.{}.fc1", "visual.deepstack_merger_list.{}.linear_fc1", Outputs::Same),
            Step::Activation(DenseActivation::Gelu),
            Step::linear(
                "v.deepstack.{}.fc2",
                "visual.deepstack_merger_list.{}.linear_fc2",
                Outputs::TextBy("out_hidden_size"),
            ),
        ],
    }),
};
