//! Gemma 3: SigLIP, of whose patches each square becomes a row by its mean, a norm and a product.

use super::{Names, PatchTable, Step, Tower, siglip};
use crate::family::{Key, NormKind};

pub(super) const TOWER: Tower = Tower {
    name: "SigLIP of Gemma 3",
    classes: &["Gemma3ForConditionalGeneration"],
    model_types: &["siglip_vision_model"],
    config_class: "SiglipVisionConfig",
    encoder: &siglip::ENCODER,
    // As published, as transformers 5 writes it, and either where the whole is a model within another.
    fronts: &["vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower."],
    patches: PatchTable {
        image_size: Key { gguf: ".vision.image_size", config: "image_size" },
        patch_size: Key { gguf: ".vision.patch_size", config: "patch_size" },
        channels: Key::config("num_channels"),
        embedding: Names { gguf: "v.patch_embd", config: "embeddings.patch_embedding" },
        bias: true,
        positions: Some(Names { gguf: "v.position_embd", config: "embeddings.position_embedding" }),
    },
    projector: &[
        Step::Mean {
            tokens: ("mm_tokens_per_image", 256, "the default of transformers' Gemma3Config"),
            side: (".vision.projector.scale_factor", 4, "llama.cpp default"),
        },
        Step::Norm {
            names: Names { gguf: "mm.soft_emb_norm", config: "multi_modal_projector.mm_soft_emb_norm" },
            kind: NormKind::RmsFromOne,
        },
        Step::ToText {
            names: Names { gguf: "mm.input_projection", config: "multi_modal_projector.mm_input_projection_weight" },
            bias: false,
            transposed: true,
        },
    ],
};
