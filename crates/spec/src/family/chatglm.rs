//! ChatGLM3, GLM-4 of 2024: a part of a head rotated, fused gates. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "chatglm",
    gguf_architectures: &["chatglm"],
    fused: &[QKV, GATE_UP],
    biases: &[ATTENTION_BIAS],
    rope: RopeTable { rotary_part: Some((0.5, "llama.cpp's converter")), ..PERMUTED },
    name: "ChatGLM",
    ..LLAMA_LIKE
};
