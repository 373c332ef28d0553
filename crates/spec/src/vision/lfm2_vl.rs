//! LFM2-VL: SigLIP 2 over images of any shape, or over tiles of large ones, position embeddings that are interpolated, and a product of
//! each square of patches.

use super::{
    Epsilon, IdKey, Interpolation, MmprojTable, Names, Outputs, PatchTable, PromptPiece, PromptTable, Step, Tower,
    siglip,
};
use crate::block::DenseActivation;
use crate::family::{Bias, Family, FileTable, Key, NormKind};

const CONFIG: &str = "the default of transformers' Lfm2VlConfig";

const SIZES: &[(&str, f64)] = &[
    ("hidden_size", 768.0),
    ("intermediate_size", 3072.0),
    ("num_hidden_layers", 12.0),
    ("num_attention_heads", 12.0),
    ("num_channels", 3.0),
    ("num_patches", 256.0),
    ("patch_size", 16.0),
    ("layer_norm_eps", 1e-6),
];

const ENCODER: Family = Family {
    id: "siglip2",
    files: FileTable {
        defaults: &[SIZES],
        defaults_source: "the default of transformers' Siglip2VisionConfig",
        ..siglip::ENCODER.files
    },
    name: "SigLIP 2",
    ..siglip::ENCODER
};

/// The template writes it for an image, and it holds the place of each row.
const IMAGE: IdKey = ("image_token_id", 396, CONFIG);

pub(super) const TOWER: Tower = Tower {
    name: "SigLIP 2 of LFM2-VL",
    classes: &["Lfm2VlForConditionalGeneration"],
    model_types: &["siglip2_vision_model"],
    mmproj: Some(MmprojTable {
        projector_type: "lfm2",
        architectures: &["lfm2"],
        tokens: &[("image_token_id", &["<image>"])],
        ..siglip::MMPROJ
    }),
    config_class: "Siglip2VisionConfig",
    encoder: &ENCODER,
    // As published, and as transformers 5 writes it.
    fronts: &["model.vision_tower.vision_model.", "model.vision_tower.", "vision_tower.vision_model.", "vision_tower."],
    processors: &["Lfm2VlImageProcessor"],
    // `_build_image_tokens` of transformers' Lfm2VlProcessor.
    prompt: PromptTable {
        mark: IMAGE,
        placeholder: IMAGE,
        pieces: &[
            PromptPiece::Special("<|image_start|>"),
            PromptPiece::Tiles { tile: "<|img_row_{row}_col_{column}|>", line: "", overview: "<|img_thumbnail|>" },
            PromptPiece::Rows,
            PromptPiece::Special("<|image_end|>"),
        ],
    },
    patches: PatchTable {
        image_size: Key::NONE,
        by_pixel: true,
        interpolated: Key { gguf: ".vision.image_size", config: "num_patches" },
        interpolation: Interpolation::Antialiased,
        smaller: true,
        ..siglip::PATCHES
    },
    windows: None,
    rope: None,
    fixed: &[("vision_feature_layer", "-1"), ("projector_hidden_act", "\"gelu\"")],
    projector: &[
        Step::Merge {
            side: ("downsample_factor", 2, CONFIG),
            gguf: (".vision.projector.scale_factor", 1, "llama.cpp default"),
            by_element: false,
        },
        Step::Norm {
            names: Names { gguf: "mm.input_norm", config: "multi_modal_projector.layer_norm" },
            kind: NormKind::Layer,
            eps: Epsilon::Of(1e-5),
            flag: Some(("projector_use_layernorm", true, CONFIG)),
        },
        Step::Linear {
            names: Names { gguf: "mm.1", config: "multi_modal_projector.linear_1" },
            outputs: Outputs::By("projector_hidden_size", 2560, CONFIG),
            bias: Some(Bias::UnlessFlag("projector_bias")),
            transposed: false,
        },
        Step::Activation(DenseActivation::Gelu),
        Step::Linear {
            names: Names { gguf: "mm.2", config: "multi_modal_projector.linear_2" },
            outputs: Outputs::Text,
            bias: Some(Bias::UnlessFlag("projector_bias")),
            transposed: false,
        },
    ],
    deepstack: None,
};
