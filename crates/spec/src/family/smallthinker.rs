//! SmallThinker: experts that are chosen before attention, with a ReLU of the gate; layers without a window do not rotate. A
//! table of GGUF alone.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "smallthinker",
    gguf_architectures: &["smallthinker"],
    tensors: &[LLAMA_LIKE_TENSORS, QWEN_EXPERTS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern { full_every: 4, first_is_full: true, source: "llama.cpp", ..PATTERN }),
    block: BlockTable { activation: (Activation::ReGlu { gate: () }, &["relu"]), ..BLOCK },
    experts: Some(ExpertTable {
        feed_forward: Some(EXPERT_WIDTH),
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        normalized: Normalized::Fixed(true),
        input: ExpertInput::RouterBefore,
        ..ROUTED
    }),
    rope: RopeTable { unrotated: Some(Unrotated::WithoutWindow { unless_all: true, but_dense: false }), ..ROPE },
    name: "SmallThinker",
    ..LLAMA_LIKE
};
