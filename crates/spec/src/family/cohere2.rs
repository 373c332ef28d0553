//! Cohere 2: Command R7B and Command A. As Cohere, with windows in three of four layers; only these rotate.

use super::*;

const CONFIG: &str = "the default of transformers' Cohere2Config";

pub(super) const FAMILY: Family = Family {
    id: "cohere2",
    gguf_architectures: &["cohere2"],
    model_types: &[("cohere2", &["Cohere2ForCausalLM"])],
    files: FileTable {
        keys: LAYER_NORM_KEYS,
        // transformers reads none of the first three, and computes what the first two say.
        refused: &[
            Refusal::Unset(Key::config("use_parallel_block"), "a feed-forward layer after attention"),
            Refusal::Unset(Key::config("use_gated_activation"), "a feed-forward layer without a gate"),
            Refusal::Set("use_qk_norm", "norms of queries and keys"),
            Refusal::AbsentGguf(".attention.sliding_window"),
            Refusal::AbsentGguf(".logit_scale"),
        ],
        ..FILES
    },
    tensors: &[WITHOUT_MLP_NORM],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        config_key: "sliding_window_pattern",
        source: "the default of transformers' Cohere2Config and of llama.cpp",
        model_types: &["cohere2"],
        ..PATTERN
    }),
    block: BlockTable { norm: NormKind::PlainLayer, parallel: Parallel::Yes, factors: &[cohere::LOGIT_SCALE], ..BLOCK },
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        unrotated: Some(Unrotated::WithoutWindow { unless_all: false, but_dense: false }),
        ..INTERLEAVED
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "Command R7B",
    ..LLAMA_LIKE
};
