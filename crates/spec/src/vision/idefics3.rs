//! Idefics 3 and SmolVLM: SigLIP over each square of an image that is cut, of whose patches each square becomes a row by a product.

use super::{IdKey, MmprojTable, Names, Outputs, PromptPiece, PromptTable, Step, Tower, siglip};
use crate::family::{Family, FileTable};

const CONFIG: &str = "the default of transformers' Idefics3Config and SmolVLMConfig";

/// Published files leave out what is the default.
const SIZES: &[(&str, f64)] = &[
    ("hidden_size", 1152.0),
    ("intermediate_size", 3072.0),
    ("num_hidden_layers", 12.0),
    ("num_attention_heads", 16.0),
    ("num_channels", 3.0),
    ("image_size", 224.0),
    ("patch_size", 32.0),
    ("layer_norm_eps", 1e-6),
];

const ENCODER: Family = Family {
    id: "idefics3_vision",
    files: FileTable {
        defaults: &[SIZES],
        defaults_source: "the default of transformers' Idefics3VisionConfig and SmolVLMVisionConfig",
        ..siglip::ENCODER.files
    },
    ..siglip::ENCODER
};

/// The template writes it for an image, and it holds the place of each row.
const IMAGE: IdKey = ("image_token_id", 128_257, CONFIG);

pub(super) const TOWER: Tower = Tower {
    name: "SigLIP of Idefics 3",
    classes: &["Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"],
    // As transformers 5 writes them, and as published.
    model_types: &["idefics3_vision", "smolvlm_vision", "idefics3", "smolvlm"],
    mmproj: Some(MmprojTable {
        projector_type: "idefics3",
        architectures: &["llama"],
        exchanged: true,
        tokens: &[("image_token_id", &["<image>"])],
        ..siglip::MMPROJ
    }),
    config_class: "Idefics3VisionConfig",
    encoder: &ENCODER,
    fronts: &["model.vision_model.", "vision_model."],
    processors: &["Idefics3ImageProcessor", "SmolVLMImageProcessor"],
    // `get_image_prompt_string` of transformers' Idefics3Processor and SmolVLMProcessor.
    prompt: PromptTable {
        mark: IMAGE,
        placeholder: IMAGE,
        pieces: &[
            PromptPiece::Tiles {
                tile: "<fake_token_around_image><row_{row}_col_{column}>",
                line: "\n",
                overview: "\n",
            },
            PromptPiece::Special("<fake_token_around_image>"),
            PromptPiece::Text("<global-img>"),
            PromptPiece::Rows,
            PromptPiece::Special("<fake_token_around_image>"),
        ],
    },
    patches: siglip::PATCHES,
    windows: None,
    rope: None,
    fixed: &[],
    projector: &[
        Step::Merge {
            side: ("scale_factor", 2, CONFIG),
            gguf: (".vision.projector.scale_factor", 1, "llama.cpp default"),
            by_element: false,
        },
        Step::Linear {
            names: Names { gguf: "mm.model.fc", config: "connector.modality_projection.proj" },
            outputs: Outputs::Text,
            bias: None,
            transposed: false,
        },
    ],
    deepstack: None,
};
