//! PaddleOCR-VL, text only: ERNIE 4.5 with another rotation. Positions of text are the same in all sections of it.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "paddleocr",
    gguf_architectures: &["paddleocr"],
    // Published files have the keys of the language model at the top level.
    model_types: &[("paddleocr_vl", &["PaddleOCRVLForConditionalGeneration"]), ("paddleocr_vl_text", &[])],
    wrappers: &[("PaddleOCRVLForConditionalGeneration", "paddleocr_vl")],
    rope: RopeTable { theta: ernie::FAMILY.rope.theta, aliases: &[("mrope", "default")], ..ROPE },
    name: "PaddleOCR-VL",
    ..ernie::FAMILY
};
