//! Ministral 8B: Llama's block with a window in the layers that a list names. In GGUF it is a Llama.

use super::*;

const CONFIG: &str = "the default of transformers' MinistralConfig";

pub(super) const FAMILY: Family = Family {
    id: "ministral",
    model_types: &[("ministral", &["MinistralForCausalLM"])],
    window: Window::Pattern(WindowPattern { full_every: 0, source: CONFIG, model_types: &["ministral"], ..PATTERN }),
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Ministral",
    ..LLAMA_LIKE
};
