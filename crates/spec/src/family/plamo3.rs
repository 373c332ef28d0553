//! PLaMo 3: norms around the sub-layers and of heads, windows in seven of eight layers. A table of GGUF alone: transformers has
//! no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "plamo3",
    gguf_architectures: &["plamo3"],
    tensors: &[LLAMA_LIKE_TENSORS, olmo2::NORMS, HEAD_NORMS],
    fused: &[QKV, GATE_UP],
    window: Window::Pattern(WindowPattern { full_every: 8, source: "the default of llama.cpp", ..PATTERN }),
    rope: RopeTable { window: Some(WindowRope { key: Key::gguf(".rope.freq_base_swa"), default_theta: None }), ..ROPE },
    name: "PLaMo 3",
    ..LLAMA_LIKE
};
