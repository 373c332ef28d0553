//! Mistral 3: Pixtral, whose queries and keys are rotated by rows and columns of patches, and of whose patches each square becomes
//! a row by a product.

use super::{
    AxialTable, Epsilon, IdKey, MmprojTable, Names, Outputs, PatchTable, PromptPiece, PromptTable, Step, Tower, siglip,
};
use crate::block::{Activation, DenseActivation, RopeLayout};
use crate::family::{
    Bias, BlockTable, Encoder, Family, FileTable, HeadTable, Key, Keys, LLAMA_LIKE, NormKind, Role, TensorName,
};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm, gguf: "v.blk.{}.ln1",      config: "transformer.layers.{}.attention_norm" },
    TensorName { role: Role::Q,             gguf: "v.blk.{}.attn_q",   config: "transformer.layers.{}.attention.q_proj" },
    TensorName { role: Role::K,             gguf: "v.blk.{}.attn_k",   config: "transformer.layers.{}.attention.k_proj" },
    TensorName { role: Role::V,             gguf: "v.blk.{}.attn_v",   config: "transformer.layers.{}.attention.v_proj" },
    TensorName { role: Role::O,             gguf: "v.blk.{}.attn_out", config: "transformer.layers.{}.attention.o_proj" },
    TensorName { role: Role::MlpNorm,       gguf: "v.blk.{}.ln2",      config: "transformer.layers.{}.ffn_norm" },
    TensorName { role: Role::Gate,          gguf: "v.blk.{}.ffn_gate", config: "transformer.layers.{}.feed_forward.gate_proj" },
    TensorName { role: Role::Up,            gguf: "v.blk.{}.ffn_up",   config: "transformer.layers.{}.feed_forward.up_proj" },
    TensorName { role: Role::Down,          gguf: "v.blk.{}.ffn_down", config: "transformer.layers.{}.feed_forward.down_proj" },
    TensorName { role: Role::EmbeddingNorm, gguf: "v.pre_ln",          config: "ln_pre" },
];

const CONFIG: &str = "the default of transformers' PixtralVisionConfig";

const MISTRAL3: &str = "the default of transformers' Mistral3Config";

const ENCODER: Family = Family {
    id: "pixtral",
    files: FileTable {
        keys: Keys { head_dim: Key::config("head_dim"), ..siglip::KEYS },
        defaults: &[&[("layer_norm_eps", 1e-5), ("num_channels", 3.0)]],
        defaults_source: CONFIG,
        ..LLAMA_LIKE.files
    },
    tensors: &[TENSORS],
    block: BlockTable {
        activation: (Activation::GeGluErf { gate: () }, &["gelu"]),
        other_activations: &[(Activation::SwiGlu { gate: () }, &["silu"])],
        ..LLAMA_LIKE.block
    },
    head: HeadTable { encoder: Encoder::Yes { by_name: true }, ..LLAMA_LIKE.head },
    name: "Pixtral",
    ..LLAMA_LIKE
};

/// The template writes it for an image, and it holds the place of each row.
const IMAGE: IdKey = ("image_token_index", 10, MISTRAL3);

pub(super) const TOWER: Tower = Tower {
    name: "Pixtral of Mistral 3",
    classes: &["Mistral3ForConditionalGeneration"],
    model_types: &["pixtral"],
    mmproj: Some(MmprojTable {
        projector_type: "pixtral",
        architectures: &["mistral3", "llama"],
        activations: &[
            (".use_silu", Activation::SwiGlu { gate: () }),
            (".use_gelu", Activation::GeGluErf { gate: () }),
        ],
        layout: RopeLayout::Interleaved,
        tokens: &[("image_token_index", &["[IMG]"])],
        ..siglip::MMPROJ
    }),
    config_class: "PixtralVisionConfig",
    encoder: &ENCODER,
    fronts: &["vision_tower.", "model.vision_tower."],
    processors: &["PixtralImageProcessor"],
    // `replace_image_token` of transformers' PixtralProcessor.
    prompt: PromptTable {
        mark: IMAGE,
        placeholder: IMAGE,
        pieces: &[PromptPiece::Lines("[IMG_BREAK]"), PromptPiece::Special("[IMG_END]")],
    },
    patches: PatchTable {
        embedding: Names { gguf: "v.patch_embd", config: "patch_conv" },
        bias: false,
        positions: None,
        norm: Some(Names { gguf: "v.pre_ln", config: "ln_pre" }),
        smaller: true,
        ..siglip::PATCHES
    },
    windows: None,
    rope: Some(AxialTable { theta: (10_000.0, CONFIG), alternating: true }),
    fixed: &[("vision_feature_layer", "-1"), ("projector_hidden_act", "\"gelu\"")],
    projector: &[
        Step::Norm {
            names: Names { gguf: "mm.input_norm", config: "multi_modal_projector.norm" },
            kind: NormKind::Rms,
            eps: Epsilon::Text,
            flag: None,
        },
        Step::Merge {
            side: ("spatial_merge_size", 2, MISTRAL3),
            gguf: (".vision.spatial_merge_size", 1, "llama.cpp default"),
            by_element: true,
        },
        Step::Linear {
            names: Names { gguf: "mm.patch_merger", config: "multi_modal_projector.patch_merger.merging_layer" },
            outputs: Outputs::Tower,
            bias: None,
            transposed: false,
        },
        Step::Linear {
            names: Names { gguf: "mm.1", config: "multi_modal_projector.linear_1" },
            outputs: Outputs::Text,
            bias: Some(Bias::Flag("multimodal_projector_bias")),
            transposed: false,
        },
        Step::Activation(DenseActivation::Gelu),
        Step::Linear {
            names: Names { gguf: "mm.2", config: "multi_modal_projector.linear_2" },
            outputs: Outputs::Text,
            bias: Some(Bias::Flag("multimodal_projector_bias")),
            transposed: false,
        },
    ],
    deepstack: None,
};
