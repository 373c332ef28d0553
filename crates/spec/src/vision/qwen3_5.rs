//! Qwen3.5: the tower of Qwen3-VL, of whose blocks only the last makes rows.

use super::{AxialTable, IdKey, MmprojTable, PromptPiece, PromptTable, Tower, qwen3_vl};
use crate::family::{Family, FileTable, Refusal};

const CONFIG: &str = "the default of transformers' Qwen3_5VisionConfig";

const ENCODER: Family = Family {
    id: "qwen35_vision",
    files: FileTable {
        defaults_source: CONFIG,
        // Published files have an empty list.
        refused: &[Refusal::Set("deepstack_visual_indexes", "rows of blocks that are added after layers")],
        ..qwen3_vl::ENCODER.files
    },
    name: "Qwen3.5",
    ..qwen3_vl::ENCODER
};

const IMAGE: IdKey = ("image_token_id", 248_056, "the default of transformers' Qwen3_5Config");

pub(super) const TOWER: Tower = Tower {
    name: "Qwen3.5",
    classes: &["Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"],
    // As transformers 5 writes them, and as published.
    model_types: &["qwen3_5_vision", "qwen3_5", "qwen3_5_moe_vision", "qwen3_5_moe"],
    mmproj: Some(MmprojTable { architectures: &["qwen35", "qwen35moe"], ..qwen3_vl::MMPROJ }),
    config_class: "Qwen3_5VisionConfig",
    encoder: &ENCODER,
    prompt: PromptTable { mark: IMAGE, placeholder: IMAGE, pieces: &[PromptPiece::Rows] },
    rope: Some(AxialTable { theta: (10_000.0, CONFIG), alternating: false }),
    deepstack: None,
    ..qwen3_vl::TOWER
};
