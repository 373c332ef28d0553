//! Gemma 3: SigLIP, of whose patches each square becomes a row by its mean, a norm and a product.

use super::{Epsilon, IdKey, MmprojTable, Names, Outputs, PromptPiece, PromptTable, Step, Tower, siglip};
use crate::family::NormKind;

const BEGIN: IdKey = ("boi_token_index", 255_999, CONFIG);
const CONFIG: &str = "the default of transformers' Gemma3Config";

pub(super) const TOWER: Tower = Tower {
    name: "SigLIP of Gemma 3",
    classes: &["Gemma3ForConditionalGeneration"],
    model_types: &["siglip_vision_model"],
    mmproj: Some(MmprojTable {
        projector_type: "gemma3",
        architectures: &["gemma3"],
        exchanged: true,
        tokens: &[
            ("boi_token_index", &["<start_of_image>"]),
            ("eoi_token_index", &["<end_of_image>"]),
            // The converter leaves it out where `config.json` has no size of the vocabulary; no prompt has padding.
            ("image_token_index", &["<image_soft_token>", "<pad>"]),
        ],
        ..siglip::MMPROJ
    }),
    config_class: "SiglipVisionConfig",
    encoder: &siglip::ENCODER,
    // As published, as transformers 5 writes it, and either where the whole is a model within another.
    fronts: &["vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower."],
    processors: &["Gemma3ImageProcessor"],
    // `full_image_sequence` of transformers' Gemma3Processor.
    prompt: PromptTable {
        mark: BEGIN,
        placeholder: ("image_token_index", 262_144, CONFIG),
        pieces: &[
            PromptPiece::Text("\n\n"),
            PromptPiece::Token(BEGIN),
            PromptPiece::Rows,
            PromptPiece::Token(("eoi_token_index", 256_000, CONFIG)),
            PromptPiece::Text("\n\n"),
        ],
    },
    patches: siglip::PATCHES,
    windows: None,
    rope: None,
    fixed: &[],
    projector: &[
        Step::Mean {
            tokens: ("mm_tokens_per_image", 256, "the default of transformers' Gemma3Config"),
            side: (".vision.projector.scale_factor", 4, "llama.cpp default"),
        },
        Step::Norm {
            names: Names { gguf: "mm.soft_emb_norm", config: "multi_modal_projector.mm_soft_emb_norm" },
            kind: NormKind::RmsFromOne,
            eps: Epsilon::Encoder,
            flag: None,
        },
        Step::Linear {
            names: Names { gguf: "mm.input_projection", config: "multi_modal_projector.mm_input_projection_weight" },
            outputs: Outputs::Text,
            bias: None,
            transposed: true,
        },
    ],
    deepstack: None,
};
