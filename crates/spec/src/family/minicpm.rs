//! MiniCPM 1 and 2: Llama with Granite's factors. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "minicpm",
    gguf_architectures: &["minicpm"],
    files: FileTable {
        refused: &[
            Refusal::AbsentGguf(".embedding_scale"),
            Refusal::AbsentGguf(".residual_scale"),
            Refusal::AbsentGguf(".logit_scale"),
        ],
        ..FILES
    },
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    block: BlockTable { factors: granite::FACTORS, ..BLOCK },
    rope: PERMUTED,
    name: "MiniCPM",
    ..LLAMA_LIKE
};
